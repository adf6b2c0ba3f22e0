"""The short check while working: what was touched since `main`, and the tests that import it.

python tests/tools/quick.py
"""

import ast, os, subprocess, sys
from functools import lru_cache
from pathlib import Path
import stubs, sync
from project import ROOT, module_of, notebooks, read

PYTEST = [sys.executable, *'-m pytest -q -n 2 --dist loadfile -m'.split(), 'not slow and not campaign']

def git(*args):
    return subprocess.run(['git', *args], cwd=ROOT, capture_output=True, text=True).stdout.split()

def touched():
    "Files that differ from where this branch left `main`, committed or not."
    base = (git('merge-base', 'main', 'HEAD') or ['HEAD'])[0]
    return sorted({*git('diff', '--name-only', base), *git('ls-files', '--others', '--exclude-standard')})

# ---- which tests belong to a module ----
def public():
    "{public name: the module that it lives in}."
    sys.path.insert(0, str(ROOT))
    import fedskew_nb

    return {n: f'fedskew_nb.{m}' for n, m in fedskew_nb._names().items()}

@lru_cache(None)
def taken_by(path):
    "What a file imports, as (module, name); names that it takes from the package."
    pairs, words, tree = set(), set(), ast.parse(path.read_text(encoding='utf-8'))
    for n in ast.walk(tree):
        if isinstance(n, ast.Import):
            pairs |= {(a.name, '') for a in n.names}
        elif isinstance(n, ast.ImportFrom) and not n.level:
            pairs |= {(n.module, a.name) for a in n.names}
        elif isinstance(n, ast.Attribute) and getattr(n.value, 'id', '') in ('fs', 'fedskew_nb'):
            words.add(n.attr)
    words |= {name for module, name in pairs if module == 'fedskew_nb'}
    if '*' in words:
        words |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    return pairs, words

@lru_cache(None)
def named_in(path):
    "The modules of the package that a test file, or a helper that it imports, imports or takes a name from."
    pairs, words = taken_by(path)
    found = {m for m, _ in pairs} | {f'{m}.{name}' for m, name in pairs if name}
    helpers = (path.parent / f'{m}.py' for m in found if '.' not in m)
    more = [named_in(p) for p in helpers if p.exists() and p != path]
    return frozenset({*found, *(m for n, m in public().items() if n in words)}.union(*more))

@lru_cache(None)
def importers():
    "{module: the modules that import it, or that hold a class to which it gives a method}."
    out = {name: set() for name in stubs.modules()}
    for name, m in stubs.modules().items():
        for home, original, _ in m.imports.values():
            for target in (home, f'{home}.{original}'):
                if target in out:
                    out[target].add(name)
    return out

def patched_by(module):
    "The modules whose classes a module gives methods: who tests them tests it."
    return {home for (home, _), more in stubs.grown().items() if any(m.name == module for m, _ in more)}

# {room: lists made by walking it}
WALKED = dict(data={'SUITES'}, methods={'METHODS', 'registry', 'protocols'})

def tests_of_lists(module):
    "The tests of the lists that a module enters without being imported: those of all names, and its room's."
    lists = WALKED.get(module.split('.')[1], set())

    def asks(path):
        return lists & {name for module, name in taken_by(path)[0] if module.startswith('fedskew_nb')}

    files = (p.relative_to(ROOT).as_posix() for p in (ROOT / 'tests').glob('test_*.py') if asks(p))
    return {'tests/test_package.py', *files}

def tests_of(module):
    "The tests that import a module, or the modules that import it; where none does, those of lists."
    files, seen, todo = set(), set(), {module, *patched_by(module)}
    while todo and not files:
        found = (p for p in (ROOT / 'tests').glob('test_*.py') if todo & named_in(p))
        files = {p.relative_to(ROOT).as_posix() for p in found}
        seen |= todo
        todo = set().union(*(importers().get(m, ()) for m in todo)) - seen
    return files or tests_of_lists(module)

def to_run(files):
    "The notebooks and test files that a list of changed files asks for."
    files = [f for f in files if (ROOT / f).exists()]
    nbs = {f for f in files if f.startswith('nbs/') and f.endswith('.ipynb')}
    of = {p.relative_to(ROOT).as_posix(): module_of(read(p)) for p in notebooks()}
    of = {nb: m for nb, m in of.items() if m}
    nbs |= {nb for nb, m in of.items() if f'fedskew_nb/{m.replace(".", "/")}.py' in files}
    tests = {f for f in files if f.startswith('tests/test_')}
    tests |= {t for m in {of[nb] for nb in nbs if nb in of} for t in tests_of(f'fedskew_nb.{m}')}
    if any(f.startswith('tests/tools/') for f in files):
        tests.add('tests/test_tools.py')
    return sorted(nbs), sorted(tests | {'tests/test_sync.py'})

def main():
    os.environ.update(OMP_NUM_THREADS='1', IN_TEST='1', MPLBACKEND='Agg')
    if wrong := sync.differences(ROOT):
        sys.exit('\n'.join(wrong) + '\nout of step: run `make export`')
    bin = Path(sys.executable).parent
    if subprocess.run([bin / 'ruff', 'check'], cwd=ROOT).returncode:
        sys.exit('ruff: see above')
    nbs, tests = to_run(touched())
    print('touched since main:', ', '.join(Path(n).name for n in nbs) or 'no notebook')
    print('tests:', ', '.join(Path(t).stem for t in tests), flush=True)
    code = (
        subprocess.run([bin / 'nbdev_test', '--path', nbs[0], '--timing'], cwd=ROOT).returncode
        if len(nbs) == 1
        else 0
    )
    if len(nbs) > 1:
        keep = '^(' + '|'.join(Path(n).name for n in nbs) + ')$'
        code = subprocess.run(
            [bin / 'nbdev_test', '--file_re', keep, '--n_workers', '2', '--timing'], cwd=ROOT
        ).returncode
    code |= subprocess.run([*PYTEST, *tests], cwd=ROOT).returncode
    sys.exit(code)

if __name__ == '__main__':
    main()
