"""Domain-skewed federated learning, from the picture to the equation to the tested code.

The one module written by hand. Every public name of every module is here (`import fedskew_nb as fs; fs.Federation`, or
`from fedskew_nb import *`), and is imported only when it is asked for: `import fedskew_nb` itself loads no torch.
"""
__version__ = "0.1.0"

import ast, importlib, re
from functools import lru_cache
from pathlib import Path

@lru_cache(None)
def _names():
    "Every public name and the module it lives in, read from the `__all__` that nbdev writes, without importing anything."
    home, found = Path(__file__).parent, {}
    for p in sorted(home.rglob('*.py')):
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
