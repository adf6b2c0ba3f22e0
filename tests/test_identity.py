"What changes the letters of a method or a net: code and numbers. What does not: prose and places."
import importlib, inspect, linecache, os, random, subprocess, sys, types
from itertools import count
from importlib.util import module_from_spec, spec_from_file_location
import pytest, torch
from fedskew_nb.core.identity import Walk, digest
from fedskew_nb.core.source import home_of, node_of, reads_in, text_of, writes_in
from fedskew_nb.core.method import Method
from fedskew_nb.nets.models import MODELS, small_conv
from fedskew_nb.core.names import registry

METHODS = registry(Method)
ROOMS = 'tools.cli analysis.story deploy.hub methods.fdse.method methods.baselines.updates'.split()

# ---- one module, edited

SOURCE = '''
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial, wraps
import torch
from fastcore.basics import patch
from fedskew_nb.core.mechanism import Mechanism

SCALE = 2.
TABLE = dict(a=1, b=(2, 3))
PARTS = {}

def part(f):
    "Register a part."
    PARTS[f.__name__] = f
    return f

@part
def half(x): return x/2

def twice(f):
    @wraps(f)
    def inner(*args): return 2*f(*args)
    return inner

@lru_cache(None)
def table_of(n): return list(range(n))

@twice
def helper(x, by=3):
    """What it does."""
    def inside(y:int, *, z:float=1.)->'a number':
        "Inside."
        class Local:
            "A class in a function."
            weight:float = 4.
            def go(self, v:int)->int:
                "Go."
                class Heir(list):
                    "An heir."
                    own = 1
                return v*self.weight*Heir.own
        return Local().go(y)*z
    return inside(x, z=by)*SCALE + TABLE['a']

def risky(x):
    try: return 1/x
    except ZeroDivisionError: return 7.

power = partial(pow, exp=2)

class Base:
    offset = 5

@dataclass
class Mine(Mechanism, Base):
    "A mechanism."
    mu:float = .1      # how strong
    names:list = field(default_factory=lambda: ['one'])
    stacks = True
    def loss(self, c, b, out):
        "Its loss."
        term:float = helper(out) + power(base=out) + risky(out)
        return dict(mine=self.mu*term + sum(v+1 for v in self._later) + PARTS['half'](out) + len(table_of(3)))
    @cached_property
    def _later(self):
        "Worked out once."
        return [6]
    def start(self, c):
        from SELF_helper import late
        import SELF_helper as aside
        late(c)
        aside.beside(c)

@patch
def finish(self:Mine, c):
    "Patched in."
    return dict(sent=8)

class Layer(torch.nn.Module):
    def __init__(self): super().__init__()
    def forward(self, x): return x*9
'''

HELPER = 'STEP = 1\ndef late(c): return c+STEP\ndef beside(c): return c-1\ndef unread(c): return c*5\n'

def module(folder, name, source):
    "A module of this source, imported anew."
    folder.mkdir(exist_ok=True, parents=True)
    path = folder/f'{name.rpartition(".")[2]}.py'
    path.write_text(source)
    spec = spec_from_file_location(name, path)
    made = sys.modules[name] = module_from_spec(spec)
    exec(compile(source, str(path), 'exec'), vars(made))          # no compiled copy
    return made

@pytest.fixture
def letters(tmp_path, request):
    "Digests of the mechanism and of the net of an edited source; `home` is whose it is."
    before = set(sys.modules)
    def of(edit=lambda s: s, name='mine', home='yours', helper=HELPER):
        name = f'fedskew_nb.core.{name}' if home == 'ours' else name
        near = name.rpartition('.')[0]+'.helper_of_it' if home == 'ours' else 'helper_of_it'
        module(tmp_path/home/name, near, helper)
        edited = edit(SOURCE).replace('SELF_helper', '.helper_of_it' if home == 'ours' else 'helper_of_it')
        if home == 'ours': edited = edited.replace('import .helper_of_it as', 'from . import helper_of_it as')
        made = module(tmp_path/home/name, name, edited)
        if home == 'ours': importlib.import_module('fedskew_nb.core').helper_of_it = sys.modules[near]
        assert home_of(name) == home
        return digest(made.Mine()), digest(made.Layer())
    yield of
    for n in set(sys.modules)-before: sys.modules.pop(n)
    vars(sys.modules['fedskew_nb.core']).pop('helper_of_it', None)

def change(old, new):
    "An edit that must find what it replaces."
    def edit(s):
        assert old in s, old
        return s.replace(old, new)
    return edit

PROSE = dict(
    comments=lambda s: s.replace('\n', '   # a comment\n# and more\n'),
    blank_lines=lambda s: s.replace('\n', '\n\n\n'),
    module_doc=lambda s: '"About it."\n' + s,
    doc_changed=change('"""What it does."""', '"""Something\n    else."""'),
    doc_dropped=change('    """What it does."""\n', ''),
    doc_added=change('    try: return 1/x', '    "Never zero."\n    try: return 1/x'),
    doc_inside=change('        "Inside."\n', ''),
    doc_of_class=change('    "A mechanism."\n', '    "Another text."\n'),
    doc_of_class_dropped=change('    "A mechanism."\n', ''),
    doc_of_local_class=change('            "A class in a function."\n', ''),
    doc_of_local_method=change('"Go."', '"Goes."'),
    doc_of_local_heir=change('                    "An heir."\n', ''),
    doc_of_hook=change('        "Its loss."\n', ''),
    doc_of_patch=change('    "Patched in."\n', ''),
    doc_of_cached=change('"Worked out once."', '"Once."'),
    doc_of_property_like=change('    "Register a part."\n', ''),
    hints=change('def inside(y:int, *, z:float=1.)->\'a number\':', 'def inside(y, *, z=1.):'),
    hints_that_are_called=change('y:int', 'y:dict(a=int, b=[str])'),
    hints_of_method=change('def go(self, v:int)->int:', 'def go(self, v:"a number"):'),
    hint_of_field=change('mu:float = .1', "mu:'float' = .1"),
    hint_of_attribute=change('weight:float = 4.', 'weight = 4.'),
    hint_of_local=change('term:float =', 'term ='),
    hint_from_future=lambda s: 'from __future__ import annotations\n' + s,
    hook_hints=change('def loss(self, c, b, out):', 'def loss(self, c:object, b:dict, out)->dict:'),
    new_function=lambda s: s + '\ndef nobody_reads(x): return x\nOTHER = 5\n',
    order_of_functions=lambda s: s.replace('SCALE = 2.\n', '') + '\nSCALE = 2.\n')

@pytest.mark.parametrize('home', ['ours', 'yours'])
@pytest.mark.parametrize('edit', PROSE)
def test_prose_does_not_count(letters, edit, home):
    assert letters(PROSE[edit], home=home) == letters(home=home)

CODE = dict(
    constant=change('SCALE = 2.', 'SCALE = 3.'),
    type_of_constant=change('SCALE = 2.', 'SCALE = 2'),
    table=change('b=(2, 3)', 'b=(2, 4)'),
    helper=change('*SCALE', '/SCALE'),
    default=change('by=3', 'by=4'),
    keyword_default=change('z:float=1.', 'z:float=2.'),
    hyper_parameter=change('mu:float = .1', 'mu:float = .2'),
    default_factory=change("['one']", "['two']"),
    class_attribute=change('stacks = True', 'stacks = False'),
    base=change('offset = 5', 'offset = 6'),
    bases=change('class Mine(Mechanism, Base)', 'class Mine(Mechanism)'),
    nested_function=change('return Local().go(y)*z', 'return Local().go(y)+z'),
    local_class=change('weight:float = 4.', 'weight:float = 5.'),
    method_of_local_class=change('v*self.weight', 'v+self.weight'),
    decorator=change('2*f(*args)', '3*f(*args)'),
    remembered=change('list(range(n))', 'list(range(1+n))'),
    generator=change('sum(v+1 for', 'sum(v+2 for'),
    cached=change('return [6]', 'return [7]'),
    partial=change('exp=2', 'exp=3'),
    registered=change('return x/2', 'return x/3'),
    patched=change('sent=8', 'sent=9'),
    keyword=change('sent=8', 'lent=8'),
    argument_by_name=change('z=by', 'y=by'),
    what_is_caught=change('except ZeroDivisionError', 'except ValueError'),
    where_it_is_caught=change('    try: return 1/x\n', '    y = 1/x\n    try: return y\n'),
    arguments=change('def go(self, v:int)', 'def go(self, w:int, v=1)'),
    name_of_class=lambda s: s.replace('class Mine', 'class Our').replace('self:Mine', 'self:Our')
                            + 'Mine = Our\n',
    new_hook=lambda s: s + '\n@patch\ndef prepare(self:Mine, c): pass\n')

@pytest.mark.parametrize('home', ['ours', 'yours'])
@pytest.mark.parametrize('edit', CODE)
def test_code_and_numbers_count(letters, edit, home):
    mine, layer = letters(home=home)
    other, same = letters(CODE[edit], home=home)
    assert mine != other and layer == same

@pytest.mark.parametrize('home', ['ours', 'yours'])
def test_the_code_of_a_layer_counts(letters, home):
    assert letters(home=home)[1] != letters(change('x*9', 'x*10'), home=home)[1]

@pytest.mark.parametrize('home', ['ours', 'yours'])
@pytest.mark.parametrize('helper, same', [
    (HELPER.replace('def late(c): ', 'def late(c):\n    "Late."\n    '), True),
    (HELPER.replace('c*5', 'c*6'), True),
    (HELPER.replace('c+STEP', 'c-STEP'), False),
    (HELPER.replace('STEP = 1', 'STEP = 2'), False),
    (HELPER.replace('c-1', 'c-2'), False)], ids=['doc', 'unread', 'code', 'constant', 'of the module'])
def test_an_import_inside_a_function(letters, home, helper, same):
    assert (letters(home=home)[0] == letters(home=home, helper=helper)[0]) is same

def without_aside(s):
    return s.replace('        import SELF_helper as aside\n', '').replace('aside.beside(c)', 'pass')

def test_a_moved_module_is_the_same(letters):
    "Renamed, in another folder, further down, and from a file of yours into the package."
    assert letters(name='mine') == letters(name='another') == letters(lambda s: 20*'\n'+s, name='third')
    assert letters(name='mine', home='ours') == letters(name='another', home='ours')
    assert letters(without_aside) == letters(without_aside, home='ours') != letters()

# ---- what is read

def body(source, **names):
    "The function `f` of this source, whose text Python knows as that of a notebook's cell."
    made, name = dict(__name__='mine') | names, f'<cell {next(CELLS)}>'
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    exec(compile(source, name, 'exec'), made)
    return made['f']

CELLS = count()

def test_reads():
    f = body("""
def f(x, c):
    "No."
    import json, os.path
    import xml.dom as tree
    from .near import one, two as three
    class Local(Base):
        size:Hint = WIDTH
        def go(self): return three(x) + helper.deep.number
    return np.mean(c.mu) + json.dumps(os.path.sep) + tree.Node + one + Local
""")
    assert set(reads_in(f.__code__)) == {
        ('', 'Base'), ('', 'WIDTH'), ('', 'np', 'mean'), ('', 'helper', 'deep', 'number'), ('.near', 'one'),
        ('.near', 'two'), ('json', 'dumps'), ('os', 'path', 'sep'), ('xml.dom', 'Node')}

def test_of_a_module_what_is_asked_of_it_counts(tmp_path):
    "And all of it where nothing in particular is."
    def letters(source, f): return digest(body(f, helpers=module(tmp_path, 'helpers', source)))
    asked, whole = 'def f(x): return helpers.used(x)', 'def f(x): return getattr(helpers, x)'
    one, two = 'def used(x): return x\nother = 1\n', 'def used(x): return x\nother = 2\n'
    try:
        assert letters(one, asked) == letters(two, asked)
        assert letters(one, asked) != letters(two.replace('return x', 'return -x'), asked)
        assert letters(one, whole) == letters(one, whole) != letters(two, whole)
    finally: sys.modules.pop('helpers', None)

def test_a_library_is_known_by_its_name_and_not_imported_for_it():
    late = 'def f(x):\n    from xml.sax.saxutils import escape\n    return escape(x)\n'
    gone = 'def f(x):\n    from no_such_module import escape\n    return escape(x)\n'
    assert digest(body(late)) == digest(body(late)) != digest(body(late.replace('escape', 'unescape')))
    assert digest(body(gone)) != digest(body(late)) != digest(body(late.replace('xml.sax.saxutils', 'html')))
    assert digest(body(gone)) != digest(body(gone.replace('no_such', 'no_other')))

def test_names_of_arguments_count():
    one, two = 'def f(a, b): return a-b', 'def f(b, a): return b-a'
    assert digest(body(one)) == digest(body(one)) != digest(body(two))

def test_a_function_without_a_text_is_its_instructions():
    "Made by `exec`, or typed into a bare shell: what it does counts, and what it reads."
    def made(source):
        names = dict(__name__='mine')
        exec(source, names)
        return names['f']
    source = 'SCALE = 2\ndef f(x): return [SCALE*y for y in x if y not in {"a", "b", "c"}]'
    assert node_of(made(source).__code__) is None and digest(made(source)) == digest(made(source))
    for other in (source.replace('= 2', '= 3'), source.replace('*y', '/y')):
        assert digest(made(other)) != digest(made(source))

def test_functions_of_one_line_are_told_apart():
    f, g, h = (lambda x: x+1), (lambda x: x*2), (lambda x: (lambda x: x*2)(x))
    assert len({digest(v) for v in (f, g, h)}) == 3 and digest(g) == digest(lambda x: x*2)

def test_a_method_in_its_class_and_patched_into_it_has_the_same_letters(letters):
    "Names of runs do not hang on where a notebook writes a method down."
    def whole(s):
        first, begin, rest = s.replace(PATCHED, '').partition('    @cached_property\n')
        return f'{first}    def finish(self, c): return dict(sent=8)\n{begin}{rest}'
    assert PATCHED in SOURCE and letters(whole) == letters()

PATCHED = '''@patch
def finish(self:Mine, c):
    "Patched in."
    return dict(sent=8)
'''

def test_a_number_whose_name_begins_like_fastcores_counts():
    one, two = (type('Mine', (), dict(_orig_lr=v)) for v in (1, 2))
    assert digest(one) != digest(two)

def test_a_wrapper_of_a_library_shows_what_it_wraps():
    def made(by):
        @torch.no_grad()
        def f(x): return by*x
        return f
    assert digest(made(1)) == digest(made(1)) != digest(made(2))

def test_many_constants():
    "A docstring moves the numbers of all entries, and the 256th takes another instruction."
    added = ''.join(f'        x += {i+1000}\n' for i in range(254))
    source = 'def f(x):\n{}    for i in x:\n' + added + '    return x\n'
    assert digest(body(source.format(''))) == digest(body(source.format('    "Long."\n')))

FIXED = '''
from dataclasses import dataclass, field
import math
SCALE, TABLE = 2., {'a': (1, None)}
def near(x, *more, by=3, **rest):
    "A docstring."
    try: return [f'{y:.{by}f} of {x!r}' for y in more if (z := y) > SCALE] or {**rest, 'z': lambda: x@by}
    except* ValueError as e: raise TypeError('no') from e
    finally:
        with open(x) as f, open('b'): pass
@dataclass(frozen=True)
class Small:
    "Of three fields."
    a:int = 1
    b:list = field(default_factory=lambda: [math.pi, ...])
    c:float = -0.
    def go(self, x:int|None=None)->'it':
        match x:
            case {'k': [1, *rest]} if rest: return near(*rest, by=self.a)
            case str() | None: return TABLE['a'][0]
        async def later(): return [y async for y in x]
        class Inside(list):
            size:int = 4
            def __len__(self): return self.size
        return Inside, later, (x if x else not x)
def f(x): return Small(x).go(x)
'''

def test_the_letters_of_a_fixed_source_are_those_of_any_version_of_python():
    "Stored under 3.11.7; made again under 3.12.1 and 3.13.0."
    assert digest(body(FIXED)) == 'bc9378437088bdba'

# ---- what changes in use

CHANGING = dict(
    table="""
table = {}
def f(x):
    if x not in table: table[x] = 2*x
    return table[x]
""",
    two_functions="""
table = {}
def remember(x): table.setdefault(x, 2*x)
def f(x):
    remember(x)
    return table[x]
""",
    counted="""
counts = dict(a=0)
def f(x):
    counts['a'] += 1
    return counts['a']
""",
    rows="""
rows = []
def f(x): rows.append(x)
""",
    counter="""
calls = 0
def f(x):
    global calls
    calls += 1
    return calls
""",
    closure="""
def make():
    calls, seen = 0, {}
    def f(x):
        nonlocal calls
        calls += 1
        seen[x] = calls
        return seen
    return f
f = make()
""",
    default="""
def f(x, seen={}, *, rows=[]):
    seen[x] = 1
    rows += [x]
    rows.append(x)
    return seen
""",
    remembered="""
from functools import lru_cache
@lru_cache(None)
def g(x): return 2*x
def f(x): return g(x)
""",
    dispatched="""
from functools import singledispatch
@singledispatch
def g(x): return 2*x
def f(x): return g(x)
""",
    attribute="""
class State: pass
state = State()
state.step, state.rows = 0, []
def f(x):
    state.step += 1
    state.last = x
    state.rows.append(x)
""",
    of_class="""
class Table:
    kept = {}
    def get(self, x):
        self.kept[x] = 2*x
        return self.kept[x]
def f(x): return Table().get(x)
""",
    late="""
class Late:
    from functools import cached_property
    @cached_property
    def table(self): return [1]
late = Late()
def f(x): return late.table
""",
    dice="""
import torch, numpy
one, two = torch.Generator(), numpy.random.default_rng(0)
def f(x): return torch.rand(1, generator=one), two.random()
""",
    steps="""
import itertools
steps, lines = itertools.count(), (i for i in range(9))
def f(x): return next(steps), next(lines)
""",
    log="""
import logging, threading
log, here, lock = logging.getLogger('mine'), threading.local(), threading.RLock()
def f(x):
    here.x = x
    lock.acquire()
    log.debug('%s', x)
""",
    set_anew="""
def reset():
    global table
    table = {}
def f(x):
    reset()
    table[x] = 1
    return table
""",
    imported="""
def f(x):
    global digits
    from string import digits
    return digits
""",
    tensor="""
import torch
total = torch.zeros(2)
def f(x): total.add_(x)
""")

@pytest.mark.parametrize('source', CHANGING)
def test_letters_stay_while_a_function_is_used(source):
    f = body(CHANGING[source])
    before = digest(f)
    for x in (1, 2, 2): f(x)
    assert digest(f) == before == digest(body(CHANGING[source]))

def test_a_table_that_is_only_read_counts():
    source = 'table = {}\ndef put(x, y): table[x] = y\nput(1, 2)\ndef f(x): return table[x]\n'
    other = source.replace('put(1, 2)', 'put(1, 3)')
    assert digest(body(source)) == digest(body(source)) != digest(body(other))

@pytest.mark.parametrize('line', [
    'table[KEY] += 1', 'table[KEY] = 1', 'del table[KEY]', 'table.update(KEY=KEY)', 'state.last = KEY',
    'state.last += KEY', 'table[x], table[KEY] = table[KEY], 1'])
def test_what_a_table_is_changed_with_counts(line):
    source = f'KEY = 1\ntable, state = {{}}, type("State", (), {{}})()\ndef f(x): {line}\n'
    assert digest(body(source)) == digest(body(source)) != digest(body(source.replace('KEY = 1', 'KEY = 2')))

def test_writes():
    f = body("""
def f(x, seen=[]):
    import own.caches as caches
    caches.found[x] = 1
    a.b.c += 2
    rows[x] += 2
    del left[x]
    tensors.add_(x).relu()
    x.append(fixed)
    def inside():
        nonlocal x
        x = seen.pop()
    return other.mean_of(fixed[x])
""")
    assert writes_in(f.__code__) == {
        ('own.caches', 'found'), ('', 'a', 'b', 'c'), ('', 'rows'), ('', 'left'), ('', 'tensors'),
        ('*', 'x'), ('*', 'seen')}

def test_a_seed_counts():
    source = """
import torch
dice = torch.Generator().manual_seed(1)
def f(x): return torch.rand(x, generator=dice)
"""
    other = source.replace('seed(1)', 'seed(2)')
    assert digest(body(source)) == digest(body(source)) != digest(body(other))

def test_code_stays_while_it_is_used():
    "Python rewrites the instructions of code that runs often."
    f = body('def f(n):\n    s = 0\n    for i in range(n): s += i*2.5\n    return [s+j for j in range(n)]')
    before = digest(f)
    for _ in range(50): f(100)
    text_of.cache_clear()
    assert digest(f) == before

def test_nets_stay_while_they_answer():
    net = small_conv(3, size=8, width=2).eval()
    before = digest(net)
    net.see(torch.zeros(2, 3, 8, 8, dtype=torch.uint8))
    assert digest(net) == before

# ---- the methods of the package

def all_letters(methods, seed):
    "The letters of all methods, asked in some order, and of all models."
    names = random.Random(seed).sample(sorted(methods), len(methods))
    made = {}
    exec('def f(x): return x in {"a", "b", "c", ("d", "e")}', made)      # a set of constants, without a text
    found = {n: digest(methods[n].mechanisms) for n in names} | {n: digest(f(3)) for n, f in MODELS.items()}
    return found | dict(made=digest(made['f']))

ALL = """
import random
from fedskew_nb.core.identity import digest
from fedskew_nb.core.method import Method
from fedskew_nb.nets.models import MODELS
from fedskew_nb.core.names import registry
"""

@pytest.mark.slow
def test_every_method_has_the_same_letters_in_any_process():
    "Whatever seeds Python's hashes, whatever is imported first, in whatever order they are asked."
    code = ALL+inspect.getsource(all_letters)+'found = all_letters(registry(Method), 1)\n'
    code += 'for n in sorted(found): print(n, found[n])'
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True,
                          env=os.environ | dict(PYTHONHASHSEED='1'))
    assert not done.returncode, done.stderr
    there = dict(line.rsplit(' ', 1) for line in done.stdout.splitlines())
    for room in ROOMS: importlib.import_module(f'fedskew_nb.{room}')
    assert METHODS.keys() < there.keys() and all_letters(METHODS, 2) == there

def test_methods_differ():
    made = {}
    for m in METHODS.values(): made.setdefault(digest(m.mechanisms), []).append(m.mechanisms)
    assert all(all(m == same[0] for m in same) for same in made.values())

def met_by(thing, monkeypatch):
    "The modules and names of all functions and classes that a digest reads."
    enter, met = Walk.enter, set()
    def entered(self, o):
        enter(self, o)
        if isinstance(o, (type, types.FunctionType)): met.add((o.__module__, o.__qualname__))
    monkeypatch.setattr(Walk, 'enter', entered)
    digest(thing)
    return met

@pytest.mark.parametrize('name', METHODS)
def test_a_method_is_made_of_neither_engine_nor_drawings(name, monkeypatch):
    modules = {m for m, _ in met_by(METHODS[name].mechanisms, monkeypatch)}
    rooms = {m.split('.')[1] for m in modules if home_of(m) == 'ours'}
    assert rooms <= {'core', 'nets', 'data', 'methods', 'analysis'}
    assert not [m for m in modules if 'matplotlib' in m or m.endswith('style')]

def test_what_a_hook_calls_is_read(monkeypatch):
    from fedskew_nb.methods.baselines.personal import AdaBN
    assert ('fedskew_nb.engine.scoring', 'reestimate') in met_by(AdaBN(), monkeypatch)
