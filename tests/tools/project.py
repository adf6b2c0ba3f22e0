"What the tools and tests share: where the project is, its settings, its notebooks, the directives of a cell."

import ast, configparser, json, re
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NBS = ROOT / 'nbs'
EXPORTED = {'export', 'exports', 'exporti'}
LONG = 900  # characters of code that a page shows open

@lru_cache(None)
def settings():
    "The values of settings.ini."
    cp = configparser.ConfigParser(delimiters=['='])
    cp.read(ROOT / 'settings.ini', encoding='utf-8')
    return dict(cp['DEFAULT'])

def site():
    "The address of the site."
    cfg = settings()
    return cfg.get('doc_host', '') + cfg.get('doc_baseurl', '')

def flags():
    return set(settings()['tst_flags'].split())

def notebooks(folder=NBS):
    "Every notebook of a folder and of the folders in it, in the reader's order."
    found = (p for p in Path(folder).rglob('[!_.]*.ipynb') if '.ipynb_checkpoints' not in p.parts)
    return sorted(found, key=lambda p: p.relative_to(folder).as_posix())

def named(items):
    "The pages that an entry of a sidebar names, in the reader's order."
    for x in items:
        if isinstance(x, str):
            yield x
        else:
            yield from ([x['href']] if 'href' in x else [])
            yield from named(x.get('contents', []))

def sidebar(folder=NBS):
    "The parts of the site, or one for all, as sidebar.yml has them."
    import yaml  # late: an installation makes stubs without it

    found = yaml.safe_load((Path(folder) / 'sidebar.yml').read_text(encoding='utf-8'))['website']['sidebar']
    return found if isinstance(found, list) else [found]

@lru_cache(None)
def rendered():
    "The pages of the site, by their place in nbs/; every other notebook is a listing."
    return frozenset({'index.ipynb', *named(sidebar())})

def is_listing(name):
    "Is it a notebook that nobody reads from top to bottom? The site has it in its room's reference."
    return name not in rendered() and (NBS / name).is_file()

@lru_cache(None)
def guides():
    "The pages of Use: who reads them wants to do something, so the code behind it is folded."
    return frozenset(named(next((part['contents'] for part in sidebar() if part.get('id') == 'use'), ())))

def is_folded(name, code, says=()):
    "Is this code, which a page exports, folded on the site? `#| fold` says so where it is short."
    return name in guides() or len(code) > LONG or 'fold' in says

def only_imports(code):
    "Does a cell hold nothing but imports?"
    try:
        body = ast.parse(code).body
    except SyntaxError:
        return False
    return bool(body) and all(isinstance(n, (ast.Import, ast.ImportFrom)) for n in body)

def read(path):
    return json.loads(Path(path).read_text(encoding='utf-8'))

def source(cell):
    return ''.join(cell.get('source', ''))

def directives(src):
    "The `#| key: value` lines at the top of a cell."
    found = {}
    for line in src.splitlines():
        if not (m := re.match(r'^\s*#\s*\|\s*([\w-]+)\s*:?\s*(.*)$', line)):
            break
        found[m[1]] = m[2].strip()
    return found

def skipped(src, left_out=None):
    "Is this cell one that no machine runs: `#| eval: false`, a test flag, or the export call?"
    d = directives(src)
    return (
        d.get('eval', '').lower() == 'false'
        or bool((flags() if left_out is None else left_out) & d.keys())
        or 'nbdev_export(' in src
    )

def code_directives(nb):
    "The directives of each code cell."
    return [directives(source(c)) for c in nb['cells'] if c['cell_type'] == 'code']

def default_exp(nb):
    "The module a notebook begins (`data.suite`), or None."
    return next((d['default_exp'] for d in code_directives(nb) if 'default_exp' in d), None)

def added_to(nb):
    "The module of another notebook to which this one adds (`#| export data.suite`), or None."
    named = (d.get(k) for d in code_directives(nb) for k in ('export', 'exports', 'exporti'))
    return next(filter(None, named), None)

def module_of(nb):
    "The module in which the code of a notebook stands, or None for a page."
    return default_exp(nb) or added_to(nb)
