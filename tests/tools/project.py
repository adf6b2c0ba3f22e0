"What the tools and tests share: where the project is, its settings, its notebooks, the directives of a cell."

import configparser, json, re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NBS = ROOT / 'nbs'

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

def default_exp(nb):
    "The module a notebook writes (`data.suite`), or None for a page."
    return next(
        (d['default_exp'] for c in nb['cells'] if 'default_exp' in (d := directives(source(c)))), None
    )
