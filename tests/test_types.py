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
    'fs.compare': '-> fedskew_nb.analysis.comparison.Comparison',
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
REFUSED |= {     # everyday mistakes at the front door
    "Federation(F2DC, net, suite, rounds='many')": 'expected "int"',
    "Federation(F2DC, net, suite, lr='fast')": 'expected "float"',
    'Federation(F2DC, net, suite, roundz=3)': 'did you mean "rounds"?',
    'Federation(F2DC, net, suite, batch_size=1.5)': 'expected "int"',
    'compare(3)': 'Argument 1 to "compare"',
    "compare('FedAvg', seeds='three')": 'Argument "seeds"',
    "compare('FedAvg', size='enormous')": 'Argument "size"',
    "compare('FedAvg', lrr=.1)": 'did you mean "lr"?',
    "compare('FedAvg', jobs='2')": 'Argument "jobs"',
    "compare('FedAvg', control='no')": 'Argument "control"',
    'F2DC(sigmaa=.3)': 'did you mean "sigma"?',
    "F2DC(sigma='x')": 'expected "float"',
    "diagnose('d', rounds='many')": 'expected "int"',
    "fed.fit('all')": 'expected "int | None"',
    'plot_curves(hist, view=1)': 'Unexpected keyword argument "view"',
    "fed.predict(images, client='a')": 'expected "int | None"',
    "small_conv('ten')": 'expected "int"',
    'load_suite(5)': 'expected "str"',
    "tune('FedAvg', trials='all')": 'expected "int"',
}
TAKEN = [        # what is right, in all its spellings
    "compare(['FedAvg', F2DC + FPL], lambda seed: suite, seeds=[0, 4], size='tiny', model=small_conv, lr=1)",
    "compare('FedAvg,FedBN', ['emoji-pacs', suite], clip=None, adamw=True, rates={'FedBN': .1}, out='runs')",
    "Federation(FedProx(mu=1), net, suite, rounds=2, clip=10, stack=False, device='cpu')",
    "F2DC(preset='released', DFD__sigma=.2, DFC__lam=1)",
    "tune('FedAvg', own={'FedProx': {'mu': [.1]}}, rounds=3)",
    "diagnose(suite, seeds=2, rounds=4, model='resnet10', jobs=2)",
    "load_folder('mine', white=(0., 4095.), n=8, unseen=['x'])",
]

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
    for room in list(to.rglob('*')):        # else a clone's are read
        if room.is_dir(): (room/'__init__.pyi').touch()
    every = [f'import {name}' for name in stubs.modules()]
    asked = [f'reveal_type({e})' for e in SEEN]
    begin = [*twelve_lines().splitlines(), 'import fedskew_nb as fs', 'images = suite.clients[0].test.x']
    lines = [*begin, *asked, *REFUSED, *TAKEN, *every]
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

def test_stubs_are_made_where_nothing_is_installed():
    "As in the bare environment in which pip builds a wheel, or links a clone."
    tools = str(ROOT/'tests'/'tools')
    code = f'import sys; sys.path.insert(0, {tools!r}); import stubs; print(len(stubs.stubs()))'
    r = subprocess.run([sys.executable, '-S', '-c', code], cwd=ROOT, capture_output=True, text=True)
    assert r.stdout == f'{len(stubs.stubs())}\n', r.stderr

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
        kind = ast.unparse(node.annotation)
        own = names_in(stub_of(module).body).get(kind)        # a method with its own hyper-parameters
        kind = ast.unparse(own.bases[0]) if own else kind.removeprefix('_')
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
