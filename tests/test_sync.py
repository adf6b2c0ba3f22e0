"Notebooks, modules, version and metadata belong together."
import ast, re, subprocess, sys
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
        if mod := default_exp(read(p)): assert (LIB/f'{mod.replace(".", "/")}.py').exists(), f'{p.name} was never exported'

def test_subpackages_are_packages():
    for p in MODULES: assert (p.parent/'__init__.py').exists(), f'{p.parent.name} has no __init__.py, so a wheel leaves it out'

def test_modules_import_only_earlier_ones():
    "The number of a notebook is the import order: data flows to the right only."
    order = {default_exp(read(p)): i for i, p in enumerate(notebooks()) if default_exp(read(p))}
    for p in notebooks():
        if not (me := default_exp(read(p))): continue
        for node in ast.walk(ast.parse((LIB/f'{me.replace(".", "/")}.py').read_text(encoding='utf-8'))):
            if not isinstance(node, ast.ImportFrom) or node.col_offset: continue
            base = ('fedskew_nb.' + '.'.join(me.split('.')[:-node.level] + [node.module or ''])).rstrip('.') if node.level else node.module or ''
            used = base.removeprefix('fedskew_nb').lstrip('.')
            for u in [used] if used in order else [f'{used}.{a.name}'.lstrip('.') for a in node.names] if base.startswith('fedskew_nb') else []:
                if u in order: assert order[u] < order[me], f'{me} imports {u}, which comes later'

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
