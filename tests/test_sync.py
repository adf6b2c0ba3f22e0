"Notebooks, modules, version and metadata belong together."
import ast, re, subprocess, sys
from graphlib import TopologicalSorter
import pytest
from project import NBS, ROOT, default_exp, notebooks, read, settings, source, directives

LIB = ROOT/settings()['lib_path']
MODULES = sorted(p for p in LIB.rglob('*.py') if p.name not in ('__init__.py', '_modidx.py'))
name = lambda p: '.'.join(p.relative_to(ROOT).with_suffix('').parts)

@pytest.mark.parametrize('path', MODULES, ids=name)
def test_module_has_its_notebook(path):
    "A renamed or deleted notebook must not leave its module behind."
    header = re.search(r'File to edit: (\S+\.ipynb)', path.read_text(encoding='utf-8'))
    assert header, f'{path.name} was written by hand: modules come from notebooks'
    nb = (path.parent/header[1]).resolve()
    assert nb.exists(), f'{path.name} comes from {header[1]}, which is gone: delete the module'
    assert f'fedskew_nb.{default_exp(read(nb))}' == name(path)

@pytest.mark.parametrize('path', MODULES, ids=name)
def test_modidx_lists_module(path):
    from fedskew_nb._modidx import d
    assert name(path) in d['syms'] or not re.search(r'^(def|class) ', path.read_text(encoding='utf-8'), re.M)

def test_every_notebook_is_exported():
    for p in notebooks():
        if mod := default_exp(read(p)):
            assert (LIB/f'{mod.replace(".", "/")}.py').exists(), f'{p.name} was never exported'
            assert mod.split('.')[-1] == re.sub(r'^\d+_', '', p.stem), f'{p.name} writes {mod}: a notebook and its module share a stem'

def test_subpackages_are_packages():
    for p in MODULES: assert (p.parent/'__init__.py').exists(), f'{p.parent.name} has no __init__.py, so a wheel leaves it out'

ROOMS = 'core data engine analysis methods app'.split()

def imported(path):
    "Modules of this package that a module imports when it is loaded, with dots."
    here = path.relative_to(LIB).with_suffix('').parts
    for node in ast.parse(path.read_text(encoding='utf-8')).body:
        if isinstance(node, ast.Import): yield from (a.name.removeprefix('fedskew_nb.') for a in node.names if a.name.startswith('fedskew_nb.'))
        if isinstance(node, ast.ImportFrom) and node.level: yield '.'.join([*here[:-node.level], *filter(None, [node.module])])

def test_every_module_has_a_room():
    assert {p.relative_to(LIB).parts[0] for p in MODULES} == set(ROOMS)

@pytest.mark.parametrize('path', MODULES, ids=name)
def test_rooms_import_only_rooms_before_them(path):
    "core < data < engine < analysis < methods < app."
    mine = path.relative_to(LIB).parts[0]
    for module in imported(path):
        room = module.split('.')[0]
        if room: assert ROOMS.index(room) <= ROOMS.index(mine), f'{name(path)} imports {module}: {room} comes after {mine}'

def test_no_import_runs_in_a_circle():
    edges = {name(p).removeprefix('fedskew_nb.'): set(imported(p)) for p in MODULES}
    TopologicalSorter(edges).prepare()                        # raises CycleError, which names the circle

def test_one_version():
    "settings.ini says it; the package, the citation and the changelog follow."
    import fedskew_nb
    v = settings()['version']
    assert fedskew_nb.__version__ == v
    assert f'version: {v}\n' in (ROOT/'CITATION.cff').read_text(encoding='utf-8')
    assert f'## {v} ' in (ROOT/'CHANGELOG.md').read_text(encoding='utf-8')

def test_site_settings_are_those_of_settings_ini():
    text, cfg = (NBS/'nbdev.yml').read_text(encoding='utf-8'), settings()
    assert all(cfg[k] in text for k in ('title', 'description', 'git_url', 'branch'))

def test_package_imports_no_tool():
    "People who only use the package need none of the pinned tools."
    for p in MODULES:
        found = re.findall(r'^(?:from|import) (nbdev|execnb|ghapi|fastgit|nbclient|jupytext)\b', p.read_text(encoding='utf-8'), re.M)
        assert not found, f'{p.name} imports {found}'
