"What an editor and mypy see: stubs that say what is there, annotations that can be read."
import ast, importlib, inspect, re, subprocess, sys
from functools import cached_property, lru_cache
from typing import get_type_hints
import pytest
import fedskew_nb as fs
import stubs
from project import ROOT

LIB = ROOT/'fedskew_nb'

# Libraries that take long to read are not looked at; matplotlib is, for the README draws.
CONFIG = """
[mypy]
cache_dir = /dev/null
disable_error_code = override
[mypy-torch.*,torchvision.*,pandas.*,numpy.*,scipy.*,sklearn.*,fastcore.*,PIL.*]
follow_imports = skip
follow_imports_for_stubs = True
ignore_missing_imports = True
"""

SEEN = {        # an expression of a user: the type that mypy sees
    'fed': 'fedskew_nb.engine.federation.Federation',
    'hist': 'fedskew_nb.engine.history.History',
    'fed.fit': '-> fedskew_nb.engine.history.History',
    'fed.history': 'fedskew_nb.engine.history.History',
    'fed.predict': 'def (images: Any, client: ',
    'F2DC.adapt': 'def (net: Any, seed: int =)',
    'F2DC(sigma=.3)': 'fedskew_nb.core.method.Method',
    'F2DC + FPL': 'fedskew_nb.core.method.Method',
    'fs.compare': 'keep_models: Any =, **kwargs: Any) -> fedskew_nb.analysis.comparison.Comparison',
    "compare('FedAvg').table": '-> fedskew_nb.analysis.table.Table',
    'suite.clients': 'list[',
    'suite.chance': 'float',
}
REFUSED = {     # a mistake: what mypy says
    'fs.comparr': 'no attribute "comparr"',
    'F2DC.adopt(net)': 'has no attribute "adopt"',
    'F2DC + 3': 'Unsupported operand types for +',
    'Federation(3, net, suite)': 'expected "Method"',
    "fed.fit(rounds=3)": 'Unexpected keyword argument "rounds"',
}

def twelve_lines():
    "The example of README.md."
    text = (ROOT/'README.md').read_text(encoding='utf-8')
    return re.search(r'^``` ?python\n(.*?)^```', text, re.M | re.S)[1]

@pytest.fixture(scope='module')
def said(tmp_path_factory):
    "What mypy says of a user's script: {line: message}, and what stands in each line."
    to = tmp_path_factory.mktemp('mypy')
    for p, text in {LIB/'py.typed': '', **stubs.stubs()}.items():
        (copy := to/p.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, encoding='utf-8')
    every = [f'import {name}' for name in stubs.modules()]
    asked = [f'reveal_type({e})' for e in SEEN]
    lines = [*twelve_lines().splitlines(), 'import fedskew_nb as fs', *asked, *REFUSED, *every]
    (to/'script.py').write_text('\n'.join(lines), encoding='utf-8')
    (to/'mypy.ini').write_text(CONFIG)
    command = [sys.executable, '-m', 'mypy', '--config-file', 'mypy.ini', 'script.py']
    r = subprocess.run(command, cwd=to, capture_output=True, text=True)
    assert 'checked 1 source file' in r.stdout, r.stdout + r.stderr
    return r.stdout.splitlines(), lines

def messages(said, line):
    out, lines = said
    at = lines.index(line)+1
    return ' '.join(t for t in out if t.startswith(f'script.py:{at}:'))

def test_mypy_accepts_the_twelve_lines_and_the_stubs(said):
    "No error but in the lines that are wrong on purpose."
    out, lines = said
    wrong = {f'script.py:{lines.index(e)+1}:' for e in REFUSED}
    assert [t for t in out if ': error:' in t and not t.startswith(tuple(wrong))] == []

@pytest.mark.parametrize('expression', SEEN)
def test_mypy_sees(said, expression):
    assert SEEN[expression] in messages(said, f'reveal_type({expression})')

@pytest.mark.parametrize('line', REFUSED)
def test_mypy_refuses(said, line): assert REFUSED[line] in messages(said, line)

# ---- stubs and what is there ----
@lru_cache(None)
def stub_of(module): return ast.parse(stubs.stubs()[LIB/f'{module.replace(".", "/")}.pyi'])

def names_in(body):
    "{name: its node} of a stub's or class's body."
    out = {n.name: n for n in body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    return out | {n.target.id: n for n in body if isinstance(n, ast.AnnAssign)}

def kinds(value): return {c.__name__ for c in type(value).__mro__}

def lacking(name, module):
    "What the stub of a public name lacks, or says wrongly."
    value, node = getattr(fs, name), names_in(stub_of(module).body).get(name)
    if node is None: return [name]
    if isinstance(node, ast.AnnAssign):
        kind = ast.unparse(node.annotation).removeprefix('_')
        return [] if kind == 'Any' or kind in kinds(value) else [f'{name}: {kind}']
    if not isinstance(value, type): return []
    own = {n for n, v in vars(value).items() if hasattr(v, '__get__') and not n.startswith('_')}
    return [f'{name}.{n}' for n in own - names_in(node.body).keys()]

def test_stubs_say_what_is_there():
    "Every public name, every method and property, however it came there; values are what they say."
    assert [fault for n, m in fs._names().items() for fault in lacking(n, m)] == []

def routines(o, name):
    "(name, function) of a function, or of a class and all its methods."
    if inspect.isroutine(o): yield name, o
    if not inspect.isclass(o): return
    yield name, o
    for n, v in vars(o).items():
        f = getattr(v, 'fget', None) or getattr(v, '__func__', None) or getattr(v, 'f', v)
        f = v.func if isinstance(v, cached_property) else f
        if inspect.isroutine(f): yield f'{name}.{n}', f

def unreadable(f):
    try: get_type_hints(f)
    except Exception as e: return f'{type(e).__name__}: {e}'

def test_every_annotation_can_be_read():
    "`get_type_hints` of every function, class and method, public or not."
    faults = []
    for name in stubs.modules():
        module = importlib.import_module(name)
        own = [(n, o) for n, o in vars(module).items() if getattr(o, '__module__', '') == name]
        found = [pair for n, o in own for pair in routines(o, f'{name}.{n}')]
        faults += [f'{n}: {why}' for n, f in found if (why := unreadable(f))]
    assert faults == []
