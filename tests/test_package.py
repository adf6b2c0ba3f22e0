"The hand-written `fedskew_nb/__init__.py`: every public name, nothing before it is asked for."
import ast, importlib, re, subprocess, sys
import pytest
import fedskew_nb as fs
from project import ROOT

def fresh(code):
    "What a new Python process prints."
    r = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True)
    assert not r.returncode, r.stderr
    return r.stdout.strip()

FORGET = """
def forget():
    for m in [m for m in sys.modules if m.partition('.')[0] == 'fedskew_nb']: del sys.modules[m]
"""

def anew(codes):
    "What each of them prints in a process that forgets the package before it; libraries are read once."
    return fresh(f'import sys\n{FORGET}\nfor code in {list(codes)!r}: forget(); exec(code, {{}})').splitlines()

def test_import_is_light(): assert fresh('import fedskew_nb, sys; print({"torch", "pandas", "matplotlib"} & sys.modules.keys() or "light")') == 'light'

def test_help_without_torch(): assert fresh('import fedskew_nb as fs, sys; dir(fs); fs.__all__; fs.__version__; print("torch" in sys.modules)') == 'False'

def test_every_name_resolves():
    for n in fs.__all__: assert getattr(fs, n) is not None and n in dir(fs), n

def test_star():
    ns = {}
    exec('from fedskew_nb import *', ns)
    assert set(fs.__all__) <= ns.keys()

def test_unknown_name():
    with pytest.raises(AttributeError, match='FedSomething'): fs.FedSomething

def test_no_name_twice():
    "Two modules must not export the same name: the lazy package could only show one of them."
    seen = {}
    for p in sorted((ROOT/'fedskew_nb').rglob('*.py')):
        if p.name.startswith('_'): continue
        for names in re.findall(r'^__all__ = (\[.*?\])', p.read_text(encoding='utf-8'), re.M | re.S):
            for n in ast.literal_eval(names): assert seen.setdefault(n, p.name) == p.name, f'{n} is exported by {seen[n]} and {p.name}'

def test_no_name_is_a_rooms():
    "Importing a room puts it into the package under its name: no public name may be the same."
    rooms = {p.stem for p in (ROOT/'fedskew_nb').iterdir() if p.name[0] not in '_.'}
    assert {'core', 'data', 'engine', 'analysis', 'methods', 'app'} <= rooms and not rooms & set(fs.__all__)

FIRST = ['import fedskew_nb.app.compare', 'from fedskew_nb import *', 'fs.compare; import fedskew_nb.app.compare']

@pytest.fixture(scope='module')
def kinds():
    codes = [f'import fedskew_nb as fs; {first}; print(type(fs.compare).__name__)' for first in FIRST]
    return dict(zip([*FIRST, 'then'], anew([*codes, 'import sys; print("torchvision" in sys.modules)'])))

@pytest.mark.parametrize('first', FIRST)
def test_a_function_of_its_modules_name(first, kinds):
    "`fs.compare` is the function, whichever way the module came in."
    assert kinds[first] == 'function'

def test_every_name_without_torchvision(kinds): assert kinds['then'] == 'False'    # it takes as long to load as torch

def test_patches_come_along():
    "A method that a later module adds to a class is there for whoever takes the class, or the one who makes it, from the package."
    from fedskew_nb._modidx import d
    home = {s.rsplit('.', 1)[1]: mod for mod, syms in d['syms'].items() for s in syms if s.removeprefix(mod + '.').count('.') == 0}
    added = sorted({tuple(p) for mod, syms in d['syms'].items() for s in syms
                    if len(p := s.removeprefix(mod + '.').split('.')) == 2 and home.get(p[0], mod) != mod and p[0] in fs.__all__})
    codes = [f'import fedskew_nb as fs; print([m for m in {added} if not hasattr(getattr(fs, m[0]), m[1])])',
             'import fedskew_nb as fs, sys; fs.Federation; print(hasattr(sys.modules["fedskew_nb.engine.history"].History, "table"))']
    assert anew(codes) == ['[]', 'True']
