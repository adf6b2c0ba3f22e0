# Made from alternation.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.net import Out
from torch import Tensor
from torch import nn
from typing import Callable
from typing import Any as _Any
__all__ = ['halves', 'branch', 'Branches']


class Both(nn.Module):
    """E_s and E_c side by side, their channels one after the other."""
    E_c: nn.Module
    E_s: _Any
    cut: bool
    prefix: _Any
    def __init__(self, m: nn.Module, cut: bool, anew: bool) -> None: ...
    def forward(self, x: Tensor) -> Tensor: ...

def halves(out: Out) -> tuple:
    """What the two branches say of a batch."""
def branch(net, which: str) -> nn.Sequential:
    """One branch of a net by itself.
    
    net: as Branches adapts it
    which: 'E_s' or 'E_c'"""

@dataclass
class Branches(Mechanism):
    """A specific and an invariant extractor, trained in turns, and one predictor (DFL, Sec. 3.1)."""
    stages: int = 2  # 1: everything at once
    predictor_step: str = 'both'  # when P learns; specific: step 1, invariant: step 2
    first: float = 0.5  # share of the local steps that step 1 gets
    share_predictor: bool = False  # average P, too
    share_specific: bool = False  # average E_s, too: the control with two branches
    fresh: bool = True  # E_s starts anew; False: as a copy of E_c
    def __post_init__(self) -> None: ...
    def adapt(self, net):
        """Two extractors in place of one, and P on both features; sizes are read off the net."""
    def phases(self, c):
        """Step 1 trains E_s, step 2 E_c, and P learns where it may (Alg. 1)."""
    def rules(self, net):
        """E_s and P stay; what is left, E_c, is averaged (Eq. 6)."""

SPECIFIC: Callable
INVARIANT: Callable
P: Callable
BRANCH_STEPS: dict
