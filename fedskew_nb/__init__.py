"""Domain-skewed federated learning, from the picture to the equation to the tested code.

The one module written by hand. The public names of the modules are here (`import fedskew_nb as fs; fs.Federation`, or
`from fedskew_nb import *`), and are imported only when they are asked for: `import fedskew_nb` itself loads no torch.
Of a paper's folder it has what `method.py` defines; the rest is imported from its own module.
"""
__version__ = "0.1.0"

import ast, importlib.machinery, json, re, sys
from functools import lru_cache
from pathlib import Path

@lru_cache(None)
def _names():
    "Every public name and the module it lives in, read from the `__all__` that nbdev writes, without importing anything."
    home, found = Path(__file__).parent, {}
    files = [p for of in ('*/*.py', 'data/suites/*.py', 'methods/baselines/*.py', 'methods/*/method.py') for p in home.glob(of)]
    for p in sorted(files):
        if p.name.startswith('_'): continue
        mod = '.'.join(p.relative_to(home).with_suffix('').parts)
        for line in re.findall(r'^__all__ = (\[.*?\])', p.read_text(encoding='utf-8'), re.M | re.S):
            for name in ast.literal_eval(line): found.setdefault(name, mod)
    return found

def __getattr__(name):
    if name == '__all__': return sorted(_names())
    if name not in _names(): raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    globals()[name] = value = getattr(importlib.import_module(f'{__name__}.{_names()[name]}'), name)
    return value

def __dir__(): return sorted({*globals(), *_names(), '__all__'})

def _to(room, modules): return {module: f'{room}.{module}' for module in modules.split()}

_MOVED = {        # where a module was in 0.1: where it is now
    'core': _to('nets', 'models pretrained remember')
          | dict(convert='nets.convert', weights='nets.weights', instructions='core.identity'),
    'analysis': dict(sights='analysis.probes', costs='nets.costs'),
    'data': _to('data.suites', 'draw digits emoji backgrounds colored factors rooms')
          | dict(detector='tools.detector', survey='data.folder'),
    'app': _to('downloads', 'archives layouts readers sets prepare')
         | _to('run', 'recipes scripts plan run compare tune executors reproduce')
         | _to('tools', 'choose diagnose questions after join catalogue shell cli boxes')
         | dict(combine='tools.combine'),
    'methods.baselines': dict(
        **dict.fromkeys(('proximal', 'regularise', 'control'), 'methods.baselines.average'),
        personalise='methods.baselines.personal', views='methods.baselines.contrast',
        anchors='methods.baselines.prototypes', updates='methods.baselines.average'),
    'methods.fdse': dict(
        solvers='methods.fdse.consensus', surgery='methods.fdse.erase', statistics='methods.fdse.erase',
        released='methods.fdse.erase',
        probes='methods.fdse.unseen', pictures='methods.fdse.unseen'),
    'methods.f2dc': dict(
        correct='methods.f2dc.mask', weights='methods.f2dc.mask', numerics='methods.f2dc.probes'),
    'methods.fedddl': dict(
        paste='methods.fedddl.counterfactual', blends='methods.fedddl.counterfactual',
        prototypes='methods.fedddl.counterfactual'),
    'methods.rfeddis': dict(
        fusion='methods.rfeddis.evidence', disentangle='methods.rfeddis.evidence',
        pictures='methods.rfeddis.controls'),
    'methods.dfl': dict(
        critics='methods.dfl.information', alternation='methods.dfl.information',
        sight='methods.dfl.stability')}

class _Moved:
    "Finds a module under the path that it had in 0.1, with a warning; until 0.3."
    @staticmethod
    def find_spec(name, path=None, target=None):
        package, _, rest = name.partition('.')
        room, _, module = rest.rpartition('.')
        if package == __name__ and (rest in _MOVED or module in _MOVED.get(room, ())):
            return importlib.machinery.ModuleSpec(name, _Moved, is_package=rest in _MOVED)
    @staticmethod
    def create_module(spec):
        old = spec.name.removeprefix(f'{__name__}.')
        if old in _MOVED: return              # the room itself, empty
        room, _, module = old.rpartition('.')
        new = f'{__name__}.{_MOVED[room][module]}'
        module = importlib.import_module(new)
        importlib.import_module('.core.names', __name__).deprecated(spec.name, new, '0.2', '0.3')
        spec.loader_state = module.__spec__
        return module
    @staticmethod
    def exec_module(module):
        if module.__spec__.loader_state: module.__spec__ = module.__spec__.loader_state

sys.meta_path.append(_Moved)

def _main():
    "The command `fedskew`; what it says to everybody alike is said at once, without what torch takes to load."
    typed, words = ' '.join(sys.argv[1:]), Path(__file__).parent/'assets'/'words.json'
    said = {'--version': f'{__version__}\n'} | json.loads(words.read_text(encoding='utf-8'))
    try:
        if typed in said and sys.stdout:
            if hasattr(sys.stdout, 'reconfigure'): sys.stdout.reconfigure(errors='replace')
            return print(said[typed], end='', flush=True)
    except OSError: pass      # a pipe that is closed, a disk that is full: told below
    alone = dict(serve='.deploy.keys', certs='.deploy.keys', predict='.tools.predict')       # without torch
    return importlib.import_module(alone.get(typed.partition(' ')[0], '.tools.cli'), __name__).main()
