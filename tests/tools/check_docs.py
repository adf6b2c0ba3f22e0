"""Check the processed pages with the reader that Quarto itself uses, pandoc: no Quarto, no network.

    python tests/tools/check_docs.py _proc

Looks for dead links, images and anchors, links of names to other things of that name, unresolved or doubled
cross references, figures without label, caption or alternative text, formulas that pandoc cannot set, that
the site's maths font lacks a character for or that a caption spells by hand, words that a search does not
find first on their page, paragraphs that begin like a list, local paths and addresses of objects in outputs,
links to the site's own address, texts that only hidden code follows, and pages missing in the sidebar or
in the folder.
"""

import html, json, posixpath, re, subprocess, sys, unicodedata
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
import pypandoc, yaml
import mathfont, own_links, search
from project import NBS, ROOT, directives, named, notebooks, read, sidebar, site, source

READER = 'markdown+lists_without_preceding_blankline'
XREF = re.compile(r'^(fig|tbl|eq|sec|lst|thm|lem|cor|prp|def|exm|exr)-')
PRIVATE = re.compile(
    rf'(?<![\w.])(?:{re.escape(str(ROOT))}|/tmp/|/home/\w|/root/)[\w./-]*|\bat 0x[0-9a-f]{{6,}}'
)
EMPTY = 'Call self as a function.', 'Return repr(self).', 'Initialize self.'  # what stands for no docstring
SPELT = re.compile(r'(?<![\w$])[^\W\d_]{1,2}_\w')  # h_k, a formula by hand
SCHEME = re.compile(r'^[a-z][a-z0-9+.-]*:', re.I)
# a picture as text, on which pandoc takes as long as on all other pages
INLINE = re.compile(r'(data:[\w/+.;=-]+),[\w/+=]+')

@dataclass
class Page:
    "What a page defines and what it points to."

    out: str  # name of the rendered file
    ids: list = field(default_factory=list)  # anchors
    refs: list = field(default_factory=list)  # @fig-x and the like
    links: list = field(default_factory=list)
    images: list = field(default_factory=list)
    maths: list = field(default_factory=list)  # (display?, TeX)
    faults: list = field(default_factory=list)

def pandoc(text, to, *extra):
    r = subprocess.run(
        [pypandoc.get_pandoc_path(), '-f', READER, '-t', to, *extra],
        input=text,
        capture_output=True,
        text=True,
        encoding='utf-8',
    )
    return r.stdout, r.stderr

def walk(o):
    "Every node of pandoc's tree."
    if isinstance(o, dict):
        if 't' in o:
            yield o
        for v in o.values():
            yield from walk(v)
    elif isinstance(o, list):
        for v in o:
            yield from walk(v)

def texts(cell):
    "Everything that a code cell shows as text."
    for o in cell.get('outputs', []):
        if 'text' in o:
            yield ''.join(o['text'])
        for k, v in o.get('data', {}).items():
            if k.startswith('text/'):
                yield ''.join(v)

def take_links(text, page):
    "nbdev links names in backticks, also where a link cannot be: inside another, and in a signature."
    page.faults += [
        f'a link inside a link: {m}'
        for m in re.findall(r'\[\[`[^`\n]*`\]\([^)\n]*\)[^\]\n]*\]\([^)\n]*\)', text)
    ]
    for block in re.findall(r'^```.*?^```', text, re.S | re.M):
        page.faults += [
            f'a raw link in a signature: {l.strip()}'
            for l in block.splitlines()
            if re.search(r'\]\((http|[\w./-]*\.ipynb)', l)
        ]

def take_code(cell, page):
    "Labels of a code cell, and what is wrong with its figures."
    d, label = directives(source(cell)), None
    if label := d.get('label'):
        page.ids.append(label)
        page.faults += [
            f'{label} has no {k}'
            for k in ('fig-cap', 'fig-alt')
            if label.startswith('fig-') and not d.get(k, '').strip('"\' ')
        ]
    caption = str(yaml.safe_load(d.get('fig-cap', '')) or '')
    page.maths += [(False, m) for m in re.findall(r'\$([^$]+)\$', caption)]
    if m := SPELT.search(re.sub(r'\$[^$]+\$|`[^`]+`', '', caption)):
        page.faults.append(f'a formula of a caption outside $…$: {m[0]!r} in {caption[:60]!r}')
    drawn = any({'image/png', 'image/svg+xml'} & {*o.get('data', {})} for o in cell.get('outputs', []))
    shown = d.get('output', '').lower() != 'false' and d.get('include', '').lower() != 'false'
    if drawn and shown and not (label or '').startswith('fig-'):
        page.faults.append(f'a figure has no label: {source(cell)[:60]!r}')
    for t in texts(cell):
        page.faults += [f'an output shows {m}' for m in PRIVATE.findall(t)]
    for o in cell.get('outputs', []):
        if o.get('output_type') == 'error':
            page.faults.append(f'a stored output is an error: {o.get("ename")}: {o.get("evalue")}')

def take_markdown(text, page):
    "Anchors, references, links, images and formulas of a page's prose."
    for n in walk(json.loads(pandoc(INLINE.sub(r'\1,', text), 'json')[0])):
        t, c = n['t'], n.get('c')
        if t == 'CodeBlock' and not c[0][1]:
            page.faults.append(f'a code fence without a language: {c[1][:60]!r}')
        if t == 'Header':
            page.ids.append(c[1][0])
        elif t in ('Div', 'Span', 'Code', 'CodeBlock', 'Figure', 'Table'):
            page.ids.append(c[0][0])
        elif t == 'OrderedList' and (c[0][1]['t'], c[0][2]['t']) != ('Decimal', 'Period'):
            said = ' '.join(x['c'] for x in walk(n) if x['t'] == 'Str')
            page.faults.append(f'a paragraph begins like a list: {said[:60]!r}')
        elif t == 'Cite':
            page.refs += [x['citationId'] for x in c[0]]
        elif t == 'Link':
            page.ids.append(c[0][0])
            page.links.append(c[2][0])
        elif t == 'Image':
            page.ids.append(c[0][0])
            page.images.append(c[2][0])
        elif t == 'Math':
            page.maths.append((c[0]['t'] == 'DisplayMath', c[1]))
        elif t in ('RawInline', 'RawBlock') and c[0] == 'html':
            page.ids += re.findall(r'\bid="([^"]+)"', c[1])
            page.links += re.findall(r'\bhref="([^"]+)"', c[1])
            page.images += re.findall(r'\bsrc="([^"]+)"', c[1])
    page.ids += re.findall(r'\{#(eq-[\w-]+)\}', text)
    page.ids = [i for i in page.ids if i]

def read_page(path):
    "A processed notebook as a Page."
    nb, prose = read(path), []
    page = Page(path.with_suffix('.html').name)
    for cell in nb['cells']:
        s = source(cell)
        page.faults += [f'a {cell["cell_type"]} cell names {m}' for m in PRIVATE.findall(s)]
        if cell['cell_type'] == 'code':
            take_code(cell, page)
            said = [
                ''.join(md) for o in cell.get('outputs', []) if (md := o.get('data', {}).get('text/markdown'))
            ]
            for text in said:
                take_links(text, page)
            prose += said
        elif cell['cell_type'] == 'raw' and s.lstrip().startswith('---'):
            prose.insert(0, s)
            if m := re.search(r'^output-file:\s*(\S+)', s, re.M):
                page.out = m[1]
        elif cell['cell_type'] == 'markdown':
            take_links(s, page)
            page.faults += [f'no sentence, but {e!r}: {s[:80]!r}' for e in EMPTY if e in s]
            prose.append(s)
    take_markdown('\n\n'.join(prose), page)
    return page

SLANTED = map(chr, [*range(0x1D434, 0x1D468), 0x210E, *range(0x1D6E2, 0x1D71C)])
ITALICS = {unicodedata.normalize('NFKC', c): c for c in SLANTED}

def drawn(mathml):
    "The characters that a browser draws for formulas: a letter by itself is drawn in italics."
    for attributes, text in re.findall(r'<m(?:i|n|o|text)\b([^>]*)>(.*?)</m(?:i|n|o|text)>', mathml, re.S):
        text = html.unescape(text)
        yield from ITALICS.get(text, text) if not attributes else text

def bad_formulas(page, font):
    if not page.maths:
        return []
    doc = '\n\n'.join(('$$%s$$' if shown else '$%s$') % m.strip() for shown, m in page.maths)
    mathml, said = pandoc(doc, 'html', '--mathml')
    refused = re.findall(r'Could not convert TeX math (.*?)(?:, rendering as TeX|$)', said, re.S)
    lacking = sorted({c for c in drawn(mathml) if not c.isspace()} - font)
    return ['bad formula: ' + ' '.join(b.split()) for b in refused] + [
        f'a formula has {c!r} (U+{ord(c):04X}), which {mathfont.FONT.name} lacks: add it in mathfont.py'
        for c in lacking
    ]

def bad_link(link, name, pages, outs, root, site):
    "Why a link leads nowhere, or None; `outs`: {rendered file: page}."
    if site and link.startswith(site):  # written by nbdev: `core` in prose becomes a link to the site
        path, _, anchor = link[len(site) :].lstrip('/').partition('#')
        target = outs.get(path or 'index.html')
        if not target:
            return f'dead link {link}'
    elif SCHEME.match(link):
        return
    else:
        path, _, anchor = link.partition('#')
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
        if target.endswith('.html'):
            return f'link to a rendered page {link}: link to the notebook file'
        if target.startswith('../'):
            return f'link {link} leaves the site'
        if target not in pages and not (root / target).exists():
            return f'dead link {link}'
    if anchor and target in pages and anchor not in pages[target].ids:
        return f'dead anchor {link}'
    if site and link.startswith(site):
        return f'a link to the site by its address, {link}: link to the notebook file'

def sidebar_faults(root, pages):
    if not (root / 'sidebar.yml').exists():
        return []
    found = list(named(sidebar(root)))
    return (
        [f'sidebar.yml names {x}, which is no page' for x in sorted(set(found) - pages.keys())]
        + [f'{x} is not in sidebar.yml' for x in sorted(pages.keys() - set(found) - {'index.ipynb'})]
        + [f'sidebar.yml names {x} twice' for x in sorted({x for x in found if found.count(x) > 1})]
    )

def before_code(cells):
    "{id of a text: the text}, of the texts that code follows."
    kinds = {'markdown': 'code'}
    pairs = ((a, b) for a, b in zip(cells, cells[1:]) if kinds.get(a['cell_type']) == b['cell_type'])
    return {a.get('id'): source(a) for a, _ in pairs}

def orphans(nb, page):
    "The texts of a notebook that code follows there, but not on its page."
    shown = [c for c in page['cells'] if directives(source(c)).get('include') != 'false']
    kept, answered = {c.get('id') for c in shown}, before_code(shown)
    return [text for i, text in before_code(nb['cells']).items() if i in kept and i not in answered]

def orphan_faults(root, name):
    "Texts that speak of code which the page does not show."
    if not (NBS / name).exists():
        return []
    left = orphans(read(NBS / name), read(root / name))
    return [f'only hidden code follows a text: {text[-80:]!r}' for text in left]

def namesake_faults(root, name):
    "Automatic links that lead to another thing of that name than the page's code means."
    if not (NBS / name).exists():
        return []
    names = own_links.meant(read(NBS / name))
    texts = [source(c) for c in read(root / name)['cells'] if c['cell_type'] == 'markdown']
    return [f'a link to a namesake: {m}' for t in texts for m in own_links.namesakes(t, name, names)]

FINDS = {  # what is searched: the page that must come first
    'min_norm': '2_methods/fdse/01_consensus.ipynb',
    'prototype': '2_methods/baselines/07_prototypes.ipynb',
    'load_folder': '5_data/05_folder.ipynb',
    'windows': '1_begin/07_install.ipynb',
    'skew cost': '3_results/01_results.ipynb',
    'FedBN': '2_methods/baselines/03_personal.ipynb',
    'F2DC': '2_methods/f2dc/04_method.ipynb',
    'FDSE': '2_methods/fdse/04_method.ipynb',
    'FedDDL': '2_methods/fedddl/03_method.ipynb',
    'RFedDis': '2_methods/rfeddis/04_method.ipynb',
    'DFL': '2_methods/dfl/04_method.ipynb',
} | {word: page for page, words in search.synonyms().items() for word in words}

def search_faults(root, pages):
    "Words that a reader's search finds first elsewhere."
    docs = search.index(root)
    first = {q: search.find(q, docs, 1)[0].page for q, page in FINDS.items() if page in pages}
    return [f'a search for {q!r} finds {p} before {FINDS[q]}' for q, p in first.items() if p != FINDS[q]]

def check(root):
    "All pages of a folder and what is wrong: ({name: Page with .faults}, [faults of sidebar and search])."
    root = Path(root)
    paths = notebooks(root)
    with ThreadPoolExecutor() as pool:  # pandoc is a process of its own
        pages = dict(zip((p.relative_to(root).as_posix() for p in paths), pool.map(read_page, paths)))
        font = mathfont.characters()
        formulas = list(pool.map(lambda p: bad_formulas(p, font), pages.values()))
    outs, own = {posixpath.join(posixpath.dirname(n), p.out): n for n, p in pages.items()}, site()
    for (name, p), bad in zip(pages.items(), formulas):
        p.faults += [f'unresolved reference @{r}' for r in p.refs if XREF.match(r) and r not in p.ids]
        p.faults += [
            f'label {i} is used twice'
            for i in sorted({i for i in p.ids if XREF.match(i) and p.ids.count(i) > 1})
        ]
        p.faults += filter(None, (bad_link(l, name, pages, outs, root, own) for l in p.links + p.images))
        p.faults += bad + namesake_faults(root, name) + orphan_faults(root, name)
    return pages, sidebar_faults(root, pages) + search_faults(root, pages)

def main(folder='_proc'):
    pages, faults = check(folder)
    if not pages:
        sys.exit(f'no pages in {folder}')
    for name, p in pages.items():
        print(
            f'{name} -> {p.out}: {len(p.maths)} formulas, {len(p.links)} links, {len(p.images)} images, '
            f'{len(p.faults)} faults'
        )
        for f in p.faults:
            print('   ', f)
    for f in faults:
        print(f)
    if n := len(faults) + sum(len(p.faults) for p in pages.values()):
        sys.exit(f'{n} faults')
    print(f'{len(pages)} pages, no fault')

if __name__ == '__main__':
    main(*sys.argv[1:])
