"""README.md is the first page of the site: made from the processed index notebook by pandoc, in GitHub's Markdown.

    python tests/tools/readme.py            # write README.md and its figures (nbs/images/index-*.png)
    python tests/tools/readme.py --check    # say whether they are what index.ipynb makes
"""
import base64, os, re, subprocess, sys, tempfile
from pathlib import Path
import pypandoc, yaml
from project import NBS, ROOT, directives, read, settings, source

IMAGES = NBS/'images'
NOTE   = '<!-- Made from nbs/index.ipynb by tests/tools/readme.py: edit the notebook. -->\n\n'

def clean(value): return value.strip().strip('"\'')

def off(d, key): return d.get(key, '').lower() == 'false'

def picture(data, d, figures):
    "A figure: its file is noted in `figures`; alternative text and caption come from the cell."
    name = f'index-{d.get("label", f"fig-{len(figures)}").removeprefix("fig-")}.png'
    figures[name] = base64.b64decode(''.join(data))
    return f'![{clean(d.get("fig-alt", ""))}](nbs/images/{name})\n\n*{clean(d.get("fig-cap", ""))}*'

def shown(out, d, figures):
    "One output as Markdown: a figure, a table, or what was printed."
    data = out.get('data', {})
    if 'image/png' in data: return picture(data['image/png'], d, figures)
    if 'text/markdown' in data: return ''.join(data['text/markdown'])
    if 'text/html' in data: return '```{=html}\n' + re.sub(r'<style.*?</style>\s*', '', ''.join(data['text/html']), flags=re.S) + '\n```'
    text = ''.join(out.get('text') or data.get('text/plain', ''))
    return f'```text\n{text.rstrip()}\n```' if text.strip() else ''

def parts(nb, figures):
    "The visible cells of a processed notebook, as Markdown."
    for c in nb['cells']:
        s, d = source(c), directives(source(c))
        if c['cell_type'] == 'raw':
            front = yaml.safe_load(s.strip().strip('-')) or {}
            if 'title' in front: yield f'# {front["title"]}'
            if 'description' in front: yield f'> {front["description"]}'
        elif c['cell_type'] == 'markdown': yield s
        elif c['cell_type'] == 'code' and not off(d, 'include'):
            code = '\n'.join(l for l in s.splitlines() if not re.match(r'^\s*#\s*\|', l)).strip()
            if code and not off(d, 'echo'): yield f'```python\n{code}\n```'
            if not off(d, 'output'): yield from (shown(o, d, figures) for o in c.get('outputs', []))

def to_nbs(md):
    "Links between notebooks are written for nbs/; README.md lies one level up."
    return re.sub(r'\]\((?!https?:|mailto:|#|nbs/)([^)\s]+\.ipynb(?:#[^)\s]*)?)\)', r'](nbs/\1)', md)

def processed(path):
    "A notebook as the site shows it: hidden cells gone, title and description in front."
    from nbdev.processors import FilterDefaults
    from nbdev.serve_drv import exec_nb
    os.chdir(ROOT)
    os.environ['IN_TEST'] = '1'
    with tempfile.TemporaryDirectory() as d:
        exec_nb(path, Path(d)/path.name, FilterDefaults)
        return read(Path(d)/path.name)

def make(nb):
    "README.md and its figures from a processed notebook: (text, {file: bytes})."
    figures = {}
    md = to_nbs('\n\n'.join(p for p in parts(nb, figures) if p))
    r = subprocess.run([pypandoc.get_pandoc_path(), '-f', 'markdown+lists_without_preceding_blankline-smart-implicit_figures', '-t', 'gfm-smart', '--wrap=none', '--columns=10000'],
                       input=md, capture_output=True, text=True, encoding='utf-8', check=True)
    return NOTE + r.stdout.rstrip() + '\n', figures

def main(*args):
    text, figures = make(processed(NBS/settings()['readme_nb']))
    here = {p.name: p.read_bytes() for p in IMAGES.glob('index-*.png')} if IMAGES.exists() else {}
    if '--check' in args:
        if (ROOT/'README.md').read_text(encoding='utf-8') != text or here != figures: sys.exit('README.md is not what nbs/index.ipynb makes: run `make export`')
        return print('README.md equals the first page')
    (ROOT/'README.md').write_text(text, encoding='utf-8')
    for name in here.keys() - figures.keys(): (IMAGES/name).unlink()
    if figures: IMAGES.mkdir(exist_ok=True)
    for name, png in figures.items(): (IMAGES/name).write_bytes(png)
    print(f'README.md written, {len(figures)} figures')

if __name__ == '__main__': main(*sys.argv[1:])
