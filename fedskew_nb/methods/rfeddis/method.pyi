# Made from method.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from torch import Tensor
from torch import nn
from typing import Any as _Any
__all__ = ['RFedDis', 'TwoHeads', 'EqualWeights', 'Evidence', 'Disentangle']

def new_head(d: int, hidden: int, K: int) -> nn.Sequential: ...

class Heads(nn.Module):
    """ψ_G and ψ_L on one feature, and what Dempster's rule makes of both."""
    fuse: _Any
    psi_G: nn.Sequential
    psi_L: nn.Sequential
    def __init__(self, d: int, hidden: int, K: int, fuse) -> None: ...
    def forward(self, f: Tensor) -> dict: ...


@dataclass
class TwoHeads(Mechanism):
    """A head for all and a head of one's own; their evidence is fused (RFedDis, Sec. III)."""
    hidden: int = 128  # width of F_G and F_L; paper: 2048 for digits, 4096 else
    fuse: str = 'ds'  # Dempster–Shafer; average, cumulative, conflict
    share: str = 'head'  # encoder and global head; encoder: the encoder alone
    ce: bool = True  # L_CE of both heads, Eq. 13
    def __post_init__(self) -> None: ...
    def adapt(self, net):
        """Put both heads where the head was; their sizes are read off the net."""
    def rules(self, net):
        """What stays with its client."""
    def task(self, c, b, out):
        """L_CE of both heads, Eq. 9."""
    def predict(self, net, out):
        """What each head says alone, beside the fused answer."""


@dataclass
class EqualWeights(Mechanism):
    """Every participant weighs the same, however many images it has."""
    def weights(self, srv, ups): ...


@dataclass
class Evidence(Mechanism):
    """The evidential loss of both heads and of their fusion (RFedDis, Eqs. 10 to 12)."""
    lam_u: float = 1.0  # λ_u at the end, where t would be T
    def __post_init__(self) -> None: ...
    def loss(self, c, b, out): ...


@dataclass
class Disentangle(Mechanism):
    """Hidden features of the two heads are driven apart (RFedDis, Eqs. 2 and 3)."""
    lam_d: float = 1.0  # λ_d at the end, where t would be T
    reduction: str = 'batchmean'  # released: mean, divided by the number of features, too
    one_way: bool = False  # Eq. 3 as printed; released: both ways
    def __post_init__(self) -> None: ...
    def loss(self, c, b, out): ...

FUSERS: dict
SHARED: dict
RFedDis: Method
