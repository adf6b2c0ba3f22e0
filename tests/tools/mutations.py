"""Single tokens of the package changed, one at a time: which test tells?

    python tests/tools/mutations.py --seed 2026 --count 20 --rooms run,tools,deploy,downloads
    python tests/tools/mutations.py --seed 2026 --count 20 --rooms run,tools,deploy,downloads --try

The first prints what would be changed, the second changes it in a copy of the tree and runs, for each, the
test files that name its module, until one fails; then, if none did, the module's own page. A comparison, an
operation, a Boolean word, a `not`, a number, True or False is changed, inside a function. What changes
nothing that anybody could see (an equivalent mutation) is for a reader to say.
"""
import argparse, ast, io, os, random, re, shutil, subprocess, sys, tempfile, tokenize
from pathlib import Path

REPO = Path(__file__).parents[2]
SWAPPED = {'<': '<=', '<=': '<', '>': '>=', '>=': '>', '==': '!=', '!=': '==', 'in': 'not in', 'is': 'is not',
           '+': '-', '-': '+', '*': '/', '/': '*', '//': '/', '%': '*', '&': '|', '|': '&',
           'and': 'or', 'or': 'and', 'True': 'False', 'False': 'True'}

def neighbours(n)->list: # of (node, node) with one operator between them
    if isinstance(n, ast.BinOp): return [(n.left, n.right)]
    if isinstance(n, ast.Compare): return list(zip([n.left, *n.comparators], n.comparators))
    return list(zip(n.values, n.values[1:])) if isinstance(n, ast.BoolOp) else []

def constant(n, lines)->tuple|None: # (old, new)
    if not isinstance(n, ast.Constant) or not isinstance(n.value, (bool, int, float)): return None
    new = not n.value if isinstance(n.value, bool) else n.value+1
    return lines[n.lineno-1][n.col_offset:n.end_col_offset], str(new)

def places(path:Path)->list: # of (line, first column, last column, old, new)
    "What may be changed in a module: inside its functions, without defaults and annotations."
    text = path.read_text()
    lines = text.splitlines()
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.string in SWAPPED]
    bodies = [f.body for f in ast.walk(ast.parse(text)) if isinstance(f, ast.FunctionDef)]
    found = set()
    for n in (n for body in bodies for statement in body for n in ast.walk(statement)):
        for a, b in neighbours(n):
            ends, begins = (a.end_lineno, a.end_col_offset), (b.lineno, b.col_offset)
            t = next((t for t in tokens if ends <= t.start and t.end <= begins), None)
            if t: found.add((*t.start, t.end[1], t.string, SWAPPED[t.string]))
        if isinstance(n, ast.UnaryOp) and isinstance(n.op, ast.Not):
            found.add((n.lineno, n.col_offset, n.col_offset+4, 'not ', ''))
        if words := constant(n, lines): found.add((n.lineno, n.col_offset, n.end_col_offset, *words))
    return sorted(p for p in found if lines[p[0]-1].isascii())    # a column is a byte here, a letter there

def drawn(seed:int, count:int, rooms:list)->list: # of (module, place)
    modules = [p for room in rooms for p in sorted((REPO/'fedskew_nb'/room).rglob('*.py'))]
    all_of_them = [(p.relative_to(REPO), place) for p in modules for place in places(p)]
    return random.Random(seed).sample(all_of_them, count)

def changed(text:str, place)->str:
    "The text with one token changed."
    line, a, b, old, new = place
    lines = text.splitlines(keepends=True)
    if lines[line-1][a:b] != old: raise ValueError(f'line {line} has {lines[line-1][a:b]!r}, not {old!r}')
    lines[line-1] = lines[line-1][:a]+new+lines[line-1][b:]
    return ''.join(lines)

def naming(module:Path)->list: # test files
    "The tests of a module's name, then those that import from it."
    dotted = '.'.join(module.with_suffix('').parts)
    parent, name = dotted.rsplit('.', 1)
    asks = re.compile(rf'{re.escape(dotted)}\b|from {re.escape(parent)} import .*\b{name}\b')
    tests = sorted((REPO/'tests').glob('test_*.py'))
    files = [p for p in tests if p.stem == f'test_{name}' or asks.search(p.read_text())]
    return sorted(files, key=lambda p: name not in p.stem)

def page_of(text:str, line:int)->str:
    "The page whose cell makes a line of a module, which two pages may write."
    return re.findall(r'^# %% \S*?(nbs/\S+\.ipynb)', ''.join(text.splitlines(keepends=True)[:line]), re.M)[-1]

def tried(module:Path, place, copy:Path)->str:
    "Who told, in the copy."
    target, whole = copy/module, (REPO/module).read_text()
    target.write_text(changed(whole, place))
    env = os.environ | dict(PYTHONPATH=str(copy))    # an editable installation is of the whole tree
    how = dict(cwd=copy, env=env, capture_output=True, text=True, timeout=900)
    try:
        for test in naming(module):
            call = [sys.executable, '-m', 'pytest', '-q', '-x', '-n', '0', f'tests/{test.name}']
            out = subprocess.run(call, **how).stdout
            if failed := re.search(r'^(?:FAILED|ERROR) (\S+)', out, re.M): return failed[1]
        page = page_of(whole, place[0])
        call = [sys.executable, 'tests/tools/nbtest.py', '--path', page, '--n_workers', '1']
        if subprocess.run(call, **how).returncode: return f'its page: {page}'
        return 'SURVIVES'
    except subprocess.TimeoutExpired: return 'it never ends'
    finally: target.write_text(whole)

if __name__ == '__main__':
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument('--seed', type=int, default=2026)
    ask.add_argument('--count', type=int, default=20)
    ask.add_argument('--rooms', default='run,tools,deploy,downloads')
    ask.add_argument('--only', default='', help='numbers of the list, as 1,5')
    ask.add_argument('--try', action='store_true', dest='go')
    args = ask.parse_args()
    chosen = {int(k) for k in args.only.split(',') if k}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)/'copy'
        left = shutil.ignore_patterns('.git', '.venv', '_proc', '_docs')
        if args.go: shutil.copytree(REPO, copy, ignore=left)
        for k, (module, place) in enumerate(drawn(args.seed, args.count, args.rooms.split(',')), 1):
            if chosen and k not in chosen: continue
            line = (REPO/module).read_text().splitlines()[place[0]-1].strip()
            print(f'{k:2} {module}:{place[0]} {place[3]!r} -> {place[4]!r} in `{line}`', flush=True)
            if args.go: print(f'   {tried(module, place, copy)}', flush=True)
