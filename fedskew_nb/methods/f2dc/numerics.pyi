# Made from numerics.py by tests/tools/stubs.py: `make export` writes it anew.
from torch import Tensor

def kept_share(p: Tensor) -> Tensor: ...
