"""Domain-skewed federated learning, from the picture to the equation to the tested code.

The one module written by hand. The public names of the modules are here (`import fedskew_nb as fs; fs.Federation`, or
`from fedskew_nb import *`), and are imported only when they are asked for: `import fedskew_nb` itself loads no torch.
Of a paper's folder it has what `method.py` defines; the rest is imported from its own module.
"""
__version__ = "0.1.0"

import ast, importlib, re, sys
from functools import lru_cache
from pathlib import Path

@lru_cache(None)
def _names():
    "Every public name and the module it lives in, read from the `__all__` that nbdev writes, without importing anything."
    home, found = Path(__file__).parent, {}
    files = [p for of in ('*/*.py', 'methods/baselines/*.py', 'methods/*/method.py') for p in home.glob(of)]
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

def _main():
    "The command `fedskew`; its version is said at once, without the seconds that torch takes to load."
    if sys.argv[1:] != ['--version']: return importlib.import_module('.app.cli', __name__).main()
    print(__version__)
