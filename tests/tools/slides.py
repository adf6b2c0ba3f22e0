"""Slides of chapters, from what the notebooks store: nothing is run, and no network is asked.

    python tests/tools/slides.py [1_begin/01_start ...]    # no page: those of the plans of "Teach with it"

Writes slides/FOLDER-PAGE.slides.html. A heading begins a slide, a paragraph goes below it and takes along the
code and the picture that follow, exercises come one by one. Answers, imports and what a page hides are left
out.
"""

import base64, json, re, subprocess, sys, tempfile
from pathlib import Path
from pages import imports, shown
from project import NBS, ROOT, directives, read, source

PLANS = '1_begin/12_teach'
OUT = ROOT / 'slides'
# 110 characters of code fit between the edges of a slide
NARROW = '<style>.reveal pre, .reveal pre * { font-size: 14px !important; line-height: 1.25; }</style></head>'

def chapters():
    "The pages that the plans show, each once."
    found = []
    for c in read(NBS / f'{PLANS}.ipynb')['cells']:
        for o in c.get('outputs', []):
            shown = ''.join(o.get('data', {}).get('text/markdown', ''))
            found += re.findall(r'\]\(\.\./(\S+?)\.ipynb\)', shown)
    return list(dict.fromkeys(found))

def sections(text):
    "Prose, cut before each heading; a comment of code is none."
    parts, fenced = [[]], False
    for line in text.splitlines():
        fenced ^= line.startswith('```')
        if not fenced and re.match(r'#{1,3} ', line):
            parts.append([])
        parts[-1].append(line)
    return ['\n'.join(p).strip() for p in parts if ''.join(p).strip()]

def plain(text):
    "Without folded answers, and without links to pages: on a slide they lead nowhere."
    text = re.sub(r'<details>.*?</details>', '', text, flags=re.S)
    return re.sub(r'\[([^\]\n]+)\]\([^)\s]*\.ipynb[^)\s]*\)', r'\1', text)

def prose_slides(text, tasks):
    "(type, text) of a text cell; `tasks`: it stands among the exercises."
    for part in sections(plain(text)):
        if 'Where next' in part[:13]:
            continue
        if part.startswith('## '):
            tasks = part.startswith('## Exercises')
        first, *items = re.split(r'\n(?=\d+\. )', part) if tasks else [part]
        if first.startswith('#'):
            yield 'subslide' if first.startswith('###') else 'slide', first
        elif not tasks:
            yield 'subslide', first
        yield from (('fragment', i) for i in items)

def of_type(cell, kind, text, **metadata):
    return cell | dict(source=text, metadata=dict(slideshow=dict(slide_type=kind), **metadata))

def typed(cells):
    "The cells of a notebook, those that are shown, with their slide types."
    folded, tasks = any(c['cell_type'] == 'raw' and 'code-fold: true' in source(c) for c in cells), False
    for c in cells:
        s, d = source(c), directives(source(c))
        if c['cell_type'] == 'markdown':
            yield from (of_type(c, *slide) for slide in prose_slides(s, tasks))
            if heads := re.findall(r'^## .*', s, re.M):
                tasks = heads[-1].startswith('## Exercises')
        if c['cell_type'] != 'code' or not (code := shown(s)) or imports(code):
            continue
        if d.get('include') == 'false' or 'code-summary' in d or 'nbdev_export(' in s:
            continue
        unseen = folded or 'code-fold' in d or d.get('echo') == 'false'
        hidden = dict(transient=dict(remove_source=True)) if unseen else {}
        yield of_type(c, 'fragment' if tasks else '-', code, **hidden)

def tall(cell):
    "About the height of a cell on a slide, in its pixels: words, code, what it prints, a picture."
    text, outs = source(cell), [o.get('data', {}) | o for o in cell.get('outputs', [])]
    if cell['cell_type'] == 'markdown':
        return sum(30 + 26 * (len(line) // 88) for line in text.splitlines() if line)
    code = 0 if 'transient' in cell['metadata'] else 25 + 18 * len(text.splitlines())
    rows = [''.join(o.get('text/markdown', o.get('text', ''))).count('\n') for o in outs]
    drawn = [base64.b64decode(''.join(o['image/png'])) for o in outs if 'image/png' in o]
    return code + 28 * sum(rows) + sum(30 + int.from_bytes(png[20:24], 'big') for png in drawn)

def apart(cells, room=700):
    "What would stand below the edge of a slide begins another one."
    full = 0
    for c in cells:
        how = c['metadata']['slideshow']
        if how['slide_type'] == '-' and full and full + tall(c) > room:
            how['slide_type'] = 'subslide'
        full = tall(c) + (0 if how['slide_type'].endswith('slide') else full)
        yield c

def main(*names):
    OUT.mkdir(exist_ok=True)
    count = 0
    with tempfile.TemporaryDirectory() as t:
        for name in names or chapters():
            nb = read(NBS / f'{name}.ipynb')
            nb['cells'] = [{k: v for k, v in c.items() if k != 'id'} for c in apart(typed(nb['cells']))]
            nb['nbformat_minor'] = 4  # before cells had ids: the parts of a cell have none of their own
            count += sum(c['metadata']['slideshow']['slide_type'].endswith('slide') for c in nb['cells'])
            (Path(t) / f'{name.replace("/", "-")}.ipynb').write_text(json.dumps(nb), encoding='utf-8')
        pages = sorted(Path(t).glob('*.ipynb'))
        how = ['--to', 'slides', '--no-prompt', '--SlidesExporter.reveal_scroll=True', '--log-level=ERROR']
        subprocess.run([sys.executable, '-m', 'nbconvert', *how, f'--output-dir={OUT}', *pages], check=True)
        for page in pages:
            made = OUT / f'{page.stem}.slides.html'
            made.write_text(made.read_text(encoding='utf-8').replace('</head>', NARROW, 1), encoding='utf-8')
    print(f'{count} slides of {len(pages)} chapters in {OUT.name}/')

if __name__ == '__main__':
    main(*sys.argv[1:])
