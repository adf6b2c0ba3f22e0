"""Does every page read well? Code as wide as a page, one statement a line, headers that Quarto can read; and how long a page takes.

    python tests/tools/pages.py [-v] [NOTEBOOK ...]     # no name: every notebook; -v: say each fault
"""
import ast, re, sys
from dataclasses import dataclass, field
from pathlib import Path
import yaml
from project import NBS, directives, notebooks, read, source

WIDTH, CELL, CELLS, MINUTES = 110, 900, 50, 30
TESTS = re.compile(r'^\s*(assert |test_\w+\()', re.M)
LONG = {                                      # cells that may be longer, and why
    '4_core/03_method.ipynb': 'class Mechanism',              # all hooks stand in one table
    '5_data/11_datasets.ipynb': '@patch(cls_method=True)'}    # ten documented parameters

@dataclass
class Page:
    "One notebook: how long it is, and what is wrong with it."
    name: str
    cells: int = 0
    widest: int = 0
    minutes: float = 0.
    tests: list = field(default_factory=list)      # characters of each cell that tests
    faults: list = field(default_factory=list)     # (rule, what)

def shown(src):
    "The code of a cell without its `#|` lines."
    return '\n'.join(l for l in src.splitlines() if not re.match(r'^\s*#\s*\|', l)).strip('\n')

def parsed(code):
    "The syntax tree of a cell; None for a cell that is not Python alone."
    try: return ast.parse(re.sub(r'^(\s*)[%!].*$', r'\1pass', code, flags=re.M))
    except SyntaxError: return None

def imports(code):
    "Does a cell hold nothing but imports?"
    tree = parsed(code)
    return tree and all(isinstance(n, (ast.Import, ast.ImportFrom)) for n in tree.body)

def joined(tree):
    "Lines on which a `;` joins two statements."
    for node in ast.walk(tree):
        for body in (getattr(node, k, None) for k in ('body', 'orelse', 'finalbody')):
            if not isinstance(body, list): continue
            yield from (b.lineno for a, b in zip(body, body[1:]) if a.end_lineno == b.lineno)

def side_effects(tree):
    "Lines on which `and`, `or` or a conditional stands for an `if`."
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, (ast.BoolOp, ast.IfExp)): yield node.lineno

def nested(tree):
    "Lines with comprehensions three deep."
    kinds = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    def depth(node): return isinstance(node, kinds) + max(map(depth, ast.iter_child_nodes(node)), default=0)
    for node in ast.walk(tree):
        if isinstance(node, kinds) and depth(node) > 2: yield node.lineno

def code_faults(code):
    "(rule, what) of a piece of Python."
    for l in code.splitlines():
        if len(l) > WIDTH: yield 'width', f'a line of {len(l)} characters: {l.strip()[:70]!r}'
    if (tree := parsed(code)) is None: return
    lines = code.splitlines()
    for rule, found in (('semicolon', joined), ('side effect', side_effects), ('nesting', nested)):
        yield from ((rule, repr(lines[n-1].strip()[:80])) for n in sorted(set(found(tree))))

def header_faults(src):
    "`#|` lines that Quarto cannot read as YAML."
    for l in src.splitlines():
        if not (m := re.match(r'^#\|\s*([\w-]+:.*)$', l)): continue
        try: value = yaml.safe_load(m[1])
        except yaml.YAMLError as e: value = e
        if not isinstance(value, dict): yield 'header', f'{l[:80]!r} is no YAML: put its text into quotes'

def output_faults(cell):
    "Outputs that the site cannot show as they are."
    kinds = [k for o in cell.get('outputs', []) for k in o.get('data', {})]
    if 'text/html' in kinds: yield 'html', 'an output of text/html makes the site load scripts: show a table as Markdown'
    if 'image/png' in kinds and 'text/markdown' in kinds: yield 'figure', 'one cell gives a figure and a table: make two cells'
    label = directives(source(cell)).get('label', '')
    if label.startswith('fig-') and 'image/png' not in kinds: yield 'figure', f'{label} is not stored: run `make execute`'

def words(md): return len(re.findall(r'\w+', re.sub(r'\$\$.*?\$\$|```.*?```', ' ', md, flags=re.S)))

def read_page(path):
    nb, page = read(path), Page(path.relative_to(NBS).as_posix() if path.is_relative_to(NBS) else path.name)
    page.cells = len(nb['cells'])
    for c in nb['cells']:
        s = source(c)
        if c['cell_type'] == 'markdown': page.minutes += words(s)/180
        if c['cell_type'] != 'code': continue
        code = shown(s)
        if not imports(code): page.minutes += len(code)/600
        page.widest = max(page.widest, *map(len, code.splitlines() or ['']))
        page.faults += [*header_faults(s), *code_faults(code), *output_faults(c)]
        if len(code) > CELL and not imports(code) and not code.startswith(LONG.get(page.name, ' ')): page.faults.append(('cell', f'{len(code)} characters: {code[:60]!r}'))
        if TESTS.search(code) and 'export' not in ' '.join(directives(s)): page.tests.append(len(code))
    if page.cells > CELLS: page.faults.append(('cells', f'{page.cells} cells, at most {CELLS}: split the page'))
    if page.minutes > MINUTES: page.faults.append(('time', f'{page.minutes:.0f} minutes, at most {MINUTES}: split the page'))
    return page

def median(values): return sorted(values)[len(values)//2] if values else 0

def main(*names):
    verbose, names = '-v' in names, [n for n in names if n != '-v']
    pages = [read_page(p) for p in ([Path(n).resolve() for n in names] or notebooks())]
    print(f'{"page":44} cells widest minutes median-test faults')
    for p in pages:
        print(f'{p.name:44} {p.cells:5} {p.widest:6} {p.minutes:7.0f} {median(p.tests):11} {len(p.faults):6}')
        if names or verbose: print(*(f'    {rule}: {what}' for rule, what in p.faults), sep='\n')
    n = sum(len(p.faults) for p in pages)
    tests = [t for p in pages for t in p.tests]
    print(f'{len(pages)} pages, widest line {max(p.widest for p in pages)}, median test cell {median(tests)} characters, {n} faults')
    if n: sys.exit(1)

if __name__ == '__main__': main(*sys.argv[1:])
