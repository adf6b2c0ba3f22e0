"""Every notebook, run again with its export cells replaced by the exported module.

Proves that export equals notebook (a name that a cell defines must be in the module, and the tests of the notebook must pass with it), and
is how the coverage of the package is measured: the same examples, through the files that people install.
"""
import ast, importlib, os, re, traceback
import matplotlib, matplotlib.pyplot as plt, pytest
from project import NBS, default_exp, directives, notebooks, read, skipped, source

EXPORTS = {'export', 'exports', 'exporti'}

def bound(src):
    "The names that a cell binds at its top level; '*' when it imports everything of a module."
    for node in ast.parse(src).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if not any('patch' in ast.unparse(d) for d in node.decorator_list): yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)): yield from (a.asname or a.name.split('.')[0] for a in node.names)
        else: yield from (n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))

def take(module, src, ns):
    "Instead of running an export cell: bring what it defines from the module."
    names = set(bound(src))
    if '*' in names: ns.update({k: v for k, v in vars(module).items() if not k.startswith('__')}); names.discard('*')
    for n in names:
        if hasattr(module, n): ns[n] = getattr(module, n)
        else: assert re.search(rf'\b(for|as)\b.*\b{n}\b|\b{n}\b\s*:=', src), f'{n} is defined in the notebook but not in {module.__name__}'

def replay(path, shell):
    "Run a notebook, export cells replaced; the number of cells that ran."
    nb, count = read(path), 0
    mod = default_exp(nb)
    for i, cell in enumerate(nb['cells']):
        src = source(cell)
        if cell['cell_type'] != 'code' or not src.strip() or skipped(src): continue
        d = directives(src)
        if EXPORTS & d.keys():
            into = next(v for k in EXPORTS if (v := d.get(k)) is not None) or mod
            take(importlib.import_module(f'fedskew_nb.{into}'), src, shell.user_ns)
            continue
        res = shell.run_cell(src)
        if res.exception: raise AssertionError(f'{path.name}, cell {i}:\n{src}\n' + ''.join(traceback.format_exception(res.exception)[-6:]))
        count += 1
        plt.close('all')
    return count

@pytest.fixture
def shell(monkeypatch):
    "A fresh IPython shell in nbs/, as the notebooks expect it; what they leave behind is undone."
    from execnb.shell import CaptureShell
    from IPython.core.interactiveshell import InteractiveShell
    import torch
    monkeypatch.setenv('IN_TEST', '1')
    torch.set_num_threads(1)
    rng, before = torch.get_rng_state(), dict(os.environ)
    with matplotlib.rc_context():
        yield CaptureShell(mpl_format='png')
        plt.close('all')
    InteractiveShell._instance = None
    os.environ.clear(); os.environ.update(before)
    torch.set_rng_state(rng)

@pytest.mark.parametrize('path', notebooks(), ids=lambda p: p.stem)
def test_replay(path, shell, monkeypatch):
    monkeypatch.chdir(path.parent)
    assert replay(path, shell) > 0 or not any(c['cell_type'] == 'code' for c in read(path)['cells'])
