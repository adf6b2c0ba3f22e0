"What `pip install` puts on a machine: package, data, notebooks, and nothing that a bare environment lacks."
import json, os, re, shutil, subprocess, sys, zipfile
import pytest
import stubs, sync
from project import NBS, ROOT, notebooks, settings

pytestmark = pytest.mark.slow
campaign = pytest.mark.campaign      # the long one, make test-all
EXTRAS = '''sklearn captum ipywidgets transformers torchjd nbdev execnb nbclient nbformat
            jupyterlab jupytext yaml pypandoc pytest IPython ghapi fastgit notebook'''.split()
BARE = f'''
import socket, sys
from importlib.machinery import PathFinder
class Bare:
    "Finds what is installed, except the extras: for a bare environment they do not exist."
    invalidate_caches = PathFinder.invalidate_caches
    find_distributions = PathFinder.find_distributions
    def find_spec(name, path=None, target=None):
        if name.partition('.')[0] in {EXTRAS}: return None
        return PathFinder.find_spec(name, path, target)
def closed(*args, **kwargs): raise OSError('no network')
sys.meta_path = [Bare if f is PathFinder else f for f in sys.meta_path]
socket.socket.connect = closed
socket.getaddrinfo = closed
'''

@pytest.fixture(scope='module')
def wheel(tmp_path_factory):
    "The wheel, built from a copy of the working tree."
    tree, out = tmp_path_factory.mktemp('tree'), tmp_path_factory.mktemp('wheel')
    sync.copy_tree(ROOT, tree)
    before = sync.digests(tree)
    build(tree, out)
    made = ('build/', 'fedskew_nb.egg-info/')
    after = {f: h for f, h in sync.digests(tree).items() if not f.startswith(made)}
    assert after == before, 'building the wheel changed the tree'
    return next(out.glob('*.whl'))

def without(*names): return {k: v for k, v in os.environ.items() if k not in names}

def pip(*args, cwd=None):
    subprocess.run([sys.executable, '-m', 'pip', *args], cwd=cwd, check=True, capture_output=True)

def build(tree, out): pip('wheel', '-q', '--no-deps', '--no-build-isolation', '-w', out, '.', cwd=tree)

@pytest.fixture(scope='module')
def installed(wheel, tmp_path_factory):
    "A folder with the wheel installed in it."
    to = tmp_path_factory.mktemp('site')
    pip('install', '-q', '--no-deps', '--no-index', '--target', to, wheel)
    return to

def bare(installed, code, cwd):
    "Run code with the installed wheel, without the extras and without a network; a clean process."
    env = without('IN_TEST', 'PYTHONPATH')
    env |= dict(HOME=str(cwd), MPLBACKEND='Agg')
    for cache in ('XDG_CACHE_HOME', 'LOCALAPPDATA'): env[cache] = str(cwd/'cache')
    code = f'import sys; sys.path.insert(0, {str(installed)!r})\n{BARE}\n{code}'
    r = subprocess.run([sys.executable, '-c', code], cwd=cwd, env=env, capture_output=True, text=True)
    assert not r.returncode, r.stdout + r.stderr
    return r.stdout

def test_size(wheel): assert wheel.stat().st_size <= 8 * 2**20, f'{wheel.stat().st_size / 2**20:.1f} MB'

def test_contents(wheel):
    z = zipfile.ZipFile(wheel)
    names = set(z.namelist())
    for p in (ROOT/'fedskew_nb').rglob('*.py'): assert p.relative_to(ROOT).as_posix() in names
    tracked = [f for f in sync.git('ls-files', '-z', 'fedskew_nb') if '/assets/' in f ]
    tracked += ['fedskew_nb/py.typed', *(p.relative_to(ROOT).as_posix() for p in stubs.stubs())]
    assert tracked and set(tracked) <= names, set(tracked) - names
    assert not [n for n in names if n.startswith(('tests/', 'nbs/')) or '__pycache__' in n]
    for p in notebooks():
        nb = json.loads(z.read(f'fedskew_nb/notebooks/{p.relative_to(NBS).as_posix()}'))
        code = [c for c in nb['cells'] if c['cell_type'] == 'code']
        assert all(not c['outputs'] and c['execution_count'] is None for c in code)

def test_metadata(wheel):
    z, cfg = zipfile.ZipFile(wheel), settings()
    meta = z.read(next(n for n in z.namelist() if n.endswith('.dist-info/METADATA'))).decode()
    wanted = [f'Version: {cfg["version"]}\n', f'Requires-Python: >={cfg["min_python"]}',
              'Requires-Dist: torch>=', 'Requires-Dist: pandas>=2.1', 'Requires-Dist: tabulate>=0.9',
              'Requires-Dist: jinja2>=3.1.2', 'Requires-Dist: numpy', 'Provides-Extra: dev']
    wanted += [f'Classifier: Programming Language :: Python :: {p}' for p in cfg['pythons'].split()]
    assert [w for w in wanted if w not in meta] == []
    assert 'License-Expression: Apache-2.0' in meta or 'License: Apache-2.0' in meta
    assert any(n.endswith('LICENSE') for n in z.namelist())
    points = z.read(next(n for n in z.namelist() if n.endswith('entry_points.txt'))).decode()
    assert 'fedskew = fedskew_nb:_main' in points

@campaign
def test_source_distribution_builds_the_same_wheel(wheel, tmp_path):
    "sdist -> wheel, as `python -m build` does: MANIFEST.in must name everything that setup.py reads."
    tree = tmp_path/'tree'
    tree.mkdir()
    sync.copy_tree(ROOT, tree)
    command = [sys.executable, 'setup.py', '-q', 'sdist', '-d', tmp_path]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)
    shutil.unpack_archive(next(tmp_path.glob('*.tar.gz')), tmp_path/'from')
    build(next((tmp_path/'from').iterdir()), tmp_path)
    def names(file): return set(zipfile.ZipFile(file).namelist())
    assert names(next(tmp_path.glob('*.whl'))) == names(wheel)

COMMAND = """
from fedskew_nb.tools.cli import main
assert main(['notebooks', {learn!r}]) == 0
import fedskew_nb as fs
for n in fs.__all__: getattr(fs, n)
print(fs.__file__)
"""

@pytest.fixture(scope='module')
def visit(installed, tmp_path_factory):
    "`fedskew notebooks DIR` without a clone, then every name, in one process: the folder, and what was said."
    home = tmp_path_factory.mktemp('visit')
    return home/'learn', bare(installed, COMMAND.format(learn=str(home/'learn')), home)

def test_every_name_in_a_bare_installation(installed, visit):
    "No public name needs an extra just to be imported."
    assert visit[1].splitlines()[-1].startswith(str(installed))

@campaign
def test_readme_example(installed, tmp_path):
    "The example of README.md, first Python block, as a stranger would run it."
    readme = (ROOT/'README.md').read_text(encoding='utf-8')
    blocks = re.findall(r'^```+ ?python\n(.*?)^```', readme, re.M | re.S)
    code = next((b for b in blocks if 'fedskew_nb' in b), None)
    if code is None: pytest.skip('README.md has no example yet')
    bare(installed, code, tmp_path)

def test_notebooks_command(visit):
    "`fedskew notebooks DIR` without a clone."
    learn, _ = visit
    assert {p.relative_to(learn) for p in notebooks(learn)} == {p.relative_to(NBS) for p in notebooks()}
