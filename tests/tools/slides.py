"""Slides of chapters, from what the notebooks store: nothing is run, and no network is asked.

    python tests/tools/slides.py [1_begin/01_start ...]    # no page: those of the plans of "Teach with it"

Writes slides/FOLDER-PAGE.slides.html. A heading begins a slide, a paragraph goes below it and takes along the
code and the picture that follow, with its caption; exercises come one by one. Answers, imports, sliders and
what a page hides are left out.
"""

import base64, json, math, re, subprocess, sys, tempfile
from pathlib import Path
from pages import imports, shown
from project import NBS, ROOT, directives, read, source

PLANS = '1_begin/12_teach'
OUT = ROOT / 'slides'
# 110 characters of code fit between the edges of a slide; formulas stay whole
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

def unlinked(text):
    "Without links to pages: on a slide they lead nowhere."
    return re.sub(r'\[([^\]\n]+)\]\([^)\s]*\.ipynb[^)\s]*\)', r'\1', text)

def plain(text):
    "Without folded answers, links to pages, and scripts of the site."
    return unlinked(re.sub(r'<(details|script)\b.*?</\1>', '', text, flags=re.S))

def high(text):
    "About the height of prose on a slide, in its pixels: headings, formulas, rows of a table, lines."
    total = 0
    for line in filter(None, text.splitlines()):
        cells = [len(c) for c in line.strip('|').split('|')] if line.startswith('|') else [len(line)]
        lines = math.ceil(max(cells) * len(cells) / 88)
        total += 75 if line.startswith(('#', '$$')) else (8 if len(cells) > 1 else 14) + 26 * lines
    return total

def pieces(text, room=640):
    "A long text in parts that a slide can hold, cut between its paragraphs."
    part, fenced = [], False
    for paragraph in re.split(r'\n\n(?=\S)', text):
        if part and not fenced and high('\n\n'.join([*part, paragraph])) > room:
            yield '\n\n'.join(part)
            part = []
        fenced ^= paragraph.count('```') % 2
        part.append(paragraph)
    yield '\n\n'.join(part)

def prose_slides(text, tasks):
    "(type, text) of a text cell; `tasks`: it stands among the exercises."
    for part in sections(plain(text)):
        if 'Where next' in part[:13]:
            continue
        if part.startswith('## '):
            tasks = part.startswith('## Exercises')
        first, *items = re.split(r'\n(?=\d+\. )', part) if tasks else [part]
        first, *more = pieces(first)
        if first.startswith('#'):
            yield 'subslide' if first.startswith('###') else 'slide', first
        elif not tasks:
            yield 'subslide', first
        yield from (('subslide', piece) for piece in more)
        yield from (('fragment', i) for i in items)

def of_type(cell, kind, text, **metadata):
    return cell | dict(source=text, metadata=dict(slideshow=dict(slide_type=kind), **metadata))

def printed(cell, d):
    "What a cell gives, for a slide: tables without links to pages, a picture with its caption."
    outs = []
    for o in cell.get('outputs', []):
        data = o.get('data', {})
        if 'text/markdown' in data:
            o = o | dict(data=data | {'text/markdown': unlinked(''.join(data['text/markdown']))})
        outs.append(o)
    if said := d.get('fig-cap', '').strip('"'):
        outs.append(dict(output_type='display_data', metadata={}, data={'text/markdown': f'*{said}*'}))
    return cell | dict(outputs=outs)

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
        if d.get('include') == 'false' or 'code-summary' in d or 'nbdev_export(' in s or 'interact(' in s:
            continue
        unseen = folded or 'code-fold' in d or d.get('echo') == 'false'
        hidden = dict(transient=dict(remove_source=True)) if unseen else {}
        yield of_type(printed(c, d), 'fragment' if tasks else '-', code, **hidden)

def drawn(out):
    "The height of a picture as it is shown: its file may have two pixels for one."
    if svg := ''.join(out['data'].get('image/svg+xml', '')):
        return int(re.search(r' height="(\d+)"', svg)[1])
    png = base64.b64decode(''.join(out['data']['image/png']))
    return out.get('metadata', {}).get('image/png', {}).get('height') or int.from_bytes(png[20:24], 'big')

def tall(cell):
    "About the height of a cell on a slide, in its pixels: words, code, what it prints, a picture."
    text, total = source(cell), 0
    if cell['cell_type'] == 'markdown':
        return high(text)
    for o in cell.get('outputs', []):
        data = o.get('data', {})
        total += 30 + drawn(o) if {'image/png', 'image/svg+xml'} & {*data} else 0
        total += high(''.join(data.get('text/markdown', ''))) + 18 * ''.join(o.get('text', '')).count('\n')
    return total + (0 if 'transient' in cell['metadata'] else 25 + 18 * len(text.splitlines()))

def apart(cells, room=640):
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
            text = made.read_text(encoding='utf-8').replace('</head>', NARROW, 1)
            text = text.replace('latest.js?', 'MathJax.js?').replace('automatic: true', 'automatic: false')
            made.write_text(text, encoding='utf-8')
    print(f'{count} slides of {len(pages)} chapters in {OUT.name}/')

if __name__ == '__main__':
    main(*sys.argv[1:])
