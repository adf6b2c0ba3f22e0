"Notebooks, modules, version and metadata belong together; tests are as wide as a page."
import ast, re
from collections import Counter
from functools import lru_cache
from graphlib import TopologicalSorter
from itertools import dropwhile
import pytest
import pages as checker
from project import NBS, ROOT, added_to, code_directives, default_exp, notebooks, read, settings

LIB = ROOT/settings()['lib_path']
MODULES = sorted(p for p in LIB.rglob('*.py') if p.name not in ('__init__.py', '_modidx.py'))
ROOMS = 'core nets data downloads engine analysis methods run tools deploy'.split()

def name(path): return '.'.join(path.relative_to(ROOT).with_suffix('').parts)

@lru_cache(None)
def text_of(path): return path.read_text(encoding='utf-8')

@lru_cache(None)
def tree_of(path): return ast.parse(text_of(path))

def has_its_notebook(path):
    "A renamed or deleted notebook must not leave its module behind."
    header = re.search(r'File to edit: (\S+\.ipynb)', text_of(path))
    if not header: return 'was written by hand: modules come from notebooks'
    nb = (path.parent/header[1]).resolve()
    if not nb.exists(): return f'comes from {header[1]}, which is gone: delete the module'
    if f'fedskew_nb.{default_exp(read(nb))}' != name(path): return f'is not what {header[1]} writes'

def is_in_the_index(path):
    from fedskew_nb._modidx import d
    defines = re.search(r'^(def|class) ', text_of(path), re.M)
    if defines and name(path) not in d['syms']: return 'is not in the index: export'

def named(node, here):
    "Modules of this package that a statement or a text names, with dots; `here`: where it stands."
    if isinstance(node, ast.Import): names = [a.name for a in node.names]
    elif isinstance(node, ast.ImportFrom):
        above = f'{LIB.name}.' + '.'.join(here[:-node.level]) if node.level else ''
        names = ['.'.join(filter(None, [above.strip('.'), node.module]))]
        names += [f'{names[0]}.{a.name}' for a in node.names]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str): names = [node.value]
    else: names = []
    dotted = {n.removeprefix(f'{LIB.name}.') for n in names if n.startswith(f'{LIB.name}.')}
    return {n for n in dotted if (LIB/f'{n.replace(".", "/")}.py').exists()}

@lru_cache(None)
def imported(path, late=False):
    "Modules that a module imports when it is loaded; `late`: inside its functions, too."
    here, tree = path.relative_to(LIB).with_suffix('').parts, tree_of(path)
    return set().union(*(named(n, here) for n in (ast.walk(tree) if late else tree.body)))

def imports_only_rooms_before_it(path):
    "core < nets < data < downloads < engine < analysis < methods < run < tools < deploy."
    mine = path.relative_to(LIB).parts[0]
    if mine not in ROOMS: return f'lies in no room: {", ".join(ROOMS)}'
    rooms = {module: module.split('.')[0] for module in imported(path)}
    for module, room in rooms.items():
        if room and ROOMS.index(room) > ROOMS.index(mine): return f'imports {module}, of a later room'

def is_in_a_package(path):
    if not (path.parent/'__init__.py').exists(): return 'has no __init__.py: a wheel leaves it out'

def imports_no_tool(path):
    "People who only use the package need none of the pinned tools."
    tools = 'nbdev|execnb|ghapi|fastgit|nbclient|jupytext'
    if found := re.findall(rf'^(?:from|import) ({tools})\b', text_of(path), re.M): return f'imports {found}'

RULES = [has_its_notebook, is_in_the_index, imports_only_rooms_before_it, is_in_a_package, imports_no_tool]

@pytest.mark.parametrize('rule', RULES, ids=lambda f: f.__name__)
def test_modules(rule):
    assert [f'{name(p)} {fault}' for p in MODULES if (fault := rule(p))] == []

def not_exported(path):
    mod = default_exp(read(path))
    if not mod: return
    if not (LIB/f'{mod.replace(".", "/")}.py').exists(): return 'was never exported'
    stem = re.sub(r'^\d+_', '', path.stem)
    if mod.split('.')[-1] != stem: return f'writes {mod}: a notebook and its module share a stem'

def test_every_notebook_is_exported():
    assert [f'{p.name} {fault}' for p in notebooks() if (fault := not_exported(p))] == []

def wrongly_added(path, begins):
    "nbdev goes by the names of files: who begins a module writes it, who adds to it appends."
    nb = read(path)
    to = {d[k] for d in code_directives(nb) for k in d if k in ('export', 'exports', 'exporti')}
    if default_exp(nb) or not to: return 'begins a module and adds to another' if added_to(nb) else None
    if len(to) > 1 or '' in to: return f'adds to {sorted(to)}: say one module in each cell'
    first = begins.get(added_to(nb))
    if not first: return f'adds to {added_to(nb)}, which no notebook begins'
    if first.name >= path.name: return f'stands before {first.name}, which would overwrite what it adds'

def test_who_adds_to_a_module_stands_behind_who_begins_it():
    begins = {mod: p for p in notebooks() if (mod := default_exp(read(p)))}
    assert [f'{p.name} {fault}' for p in notebooks() if (fault := wrongly_added(p, begins))] == []

def test_every_room_has_modules():
    assert {p.relative_to(LIB).parts[0] for p in MODULES} == set(ROOMS)

def short(path): return name(path).removeprefix('fedskew_nb.')

def test_no_import_runs_in_a_circle():
    "Not when modules are loaded, and not when a function runs."
    edges = {short(p): imported(p, late=True) for p in MODULES}
    TopologicalSorter(edges).prepare()                        # raises CycleError, which names the circle

LATE = {      # what waits until it is asked for: pictures of a page, and how a site moves in
    'methods.baselines.average': 'analysis.probes', 'methods.baselines.prototypes': 'analysis.style',
    'methods.fdse.method': 'methods.fdse.unseen'}

def test_late_imports_are_counted():
    "Each hides an arrow from whoever reads the head of a module."
    found = {short(p): ' '.join(sorted(imported(p, late=True) - imported(p))) for p in MODULES}
    assert {m: late for m, late in found.items() if late} == LATE

# ---- what grows is counted: each number may only fall

def room_of(module): return 'data.suites' if module.startswith('data.suites.') else module.split('.')[0]

FLOORS = dict(run=6)           # others: 5

def test_floors_of_a_room():
    "The longest chain of imports in it: whoever changes the ground floor wakes all others."
    inside = {short(p): {m for m in imported(p) if room_of(m) == room_of(short(p))} for p in MODULES}
    height = {}
    for m in TopologicalSorter(inside).static_order():
        height[m] = 1 + max((height[below] for below in inside.get(m, ())), default=0)
    rooms = {}
    for m, h in height.items(): rooms[room_of(m)] = max(h, rooms.get(room_of(m), 0))
    assert {r: h for r, h in rooms.items() if h > FLOORS.get(r, 5)} == {}

def test_a_module_has_one_subject():
    "Nothing is imported below a definition: there another subject would begin."
    def imports(n): return isinstance(n, (ast.Import, ast.ImportFrom))
    def defines(n): return isinstance(n, (ast.FunctionDef, ast.ClassDef))
    def late(body): return any(map(imports, dropwhile(lambda n: not defines(n), body)))
    assert [short(p) for p in MODULES if late(tree_of(p).body)] == []

def test_private_functions_that_are_used_once():
    "Such a one is a paragraph of its caller, unless a page shows it alone."
    texts = {p: text_of(p) for p in MODULES}
    words = Counter(w for text in texts.values() for w in re.findall(r'\w+', text))
    once = []
    for path, text in texts.items():
        public = re.search(r'^__all__ = (\[.*?\])', text, re.M | re.S)
        names = ast.literal_eval(public[1]) if public else []
        functions = (n.name for n in tree_of(path).body if isinstance(n, ast.FunctionDef))
        once += [n for n in functions if n not in names and words[n] == 2]
    assert len(once) <= 369, sorted(once)

def test_methods_stand_in_their_class():
    "`@patch` is for the class of another page."
    assert sum(len(re.findall('^@patch', text_of(p), re.M)) for p in MODULES) <= 6

def test_tests_are_as_wide_as_a_page():
    "110 columns, one statement a line."
    files = sorted((ROOT/'tests').rglob('*.py'))
    faults = [f'{p.name}: {rule}, {what}' for p in files for rule, what in checker.code_faults(text_of(p))]
    assert faults == []

def test_one_version():
    "settings.ini says it; the package, the citation and the changelog follow."
    import fedskew_nb
    v = settings()['version']
    assert fedskew_nb.__version__ == v
    assert f'version: {v}\n' in text_of(ROOT/'CITATION.cff')
    assert f'## {v} ' in text_of(ROOT/'CHANGELOG.md')

def test_site_settings_are_those_of_settings_ini():
    text, cfg = text_of(NBS/'nbdev.yml'), settings()
    assert all(cfg[k] in text for k in ('title', 'description', 'git_url', 'branch'))
