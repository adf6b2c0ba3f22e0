# Made from contrast.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from torch import Tensor
from typing import Any as _Any
__all__ = ['MOON', 'FedRCL', 'ModelContrast', 'RelaxedContrast']

def model_contrast(z: Tensor, z_glob: Tensor, z_prev: Tensor, tau: float) -> Tensor: ...

@dataclass
class ModelContrast(Mechanism):
    """Features like the received model's, unlike those of one's own last model (MOON, Eqs. 3 and 4)."""
    mu: float = 5.0  # weight μ; the paper tries 0.1, 1, 5 and 10
    tau: float = 0.5  # temperature τ
    proj: int = 0  # width of the projection head; the paper: 256, tables of others: none
    def __post_init__(self) -> None: ...
    def loss(self, c, b, out):
        """μ·ℓ_con (MOON, Eq. 4)."""
    def finish(self, c):
        """Remember the model as it is now; nothing is sent."""
    def adapt(self, net):
        """With `proj`, two layers between pool and head."""

def cosines(f: Tensor) -> Tensor: ...
def attract(s: Tensor, same: Tensor, tau: float, negatives: int=2) -> Tensor: ...
def diverge(s: Tensor, same: Tensor, tau: float, threshold: float) -> Tensor: ...

class LevelHook:
    """Lays what a module takes in, or gives out, averaged over its map, on the tray of the net."""
    number: int
    tray: _Any
    def __init__(self, tray, number: int) -> None: ...
    def __call__(self, module, args, out=None) -> None: ...

def block_names(net, levels: str='') -> list: ...

@dataclass
class RelaxedContrast(Mechanism):
    """Within a batch, at every block: like one's class, but not too like (FedRCL, as its code)."""
    weight: float = 1.0  # of the supervised contrast
    beta: float = 1.0  # β, of the divergence penalty
    tau: float = 0.05  # temperature τ
    threshold: float = 0.7  # λ: a class nearer than this is pushed apart
    levels: str = ''  # names of blocks, blanks between; default: all of the body
    before_relu: bool = True  # is a block read before its last ReLU?
    def __post_init__(self) -> None: ...
    def adapt(self, net):
        """A hook on each block, or on its last ReLU."""
    def loss(self, c, b, out):
        """Both losses, each the mean over the levels that train."""

MOON: Method
FAMILY: str
FedRCL: Method
