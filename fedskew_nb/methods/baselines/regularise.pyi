# Made from regularise.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from torch import Tensor
__all__ = ['FedDyn', 'FedDecorr', 'shared', 'Dynamic', 'correlated', 'Decorrelate']

def shared(c) -> dict:
    """The parameters in training that leave the client; a correction towards the others concerns no others."""

@dataclass
class Dynamic(Mechanism):
    """A loss that is bent by what the client remembers: F_k − ⟨g_k, θ⟩ + α/2·‖θ − θ^t‖² (FedDyn, Alg. 1)."""
    alpha: float = 0.01  # of the pull; the paper: 0.1, 0.01, 0.001; 0: FedAvg
    def __post_init__(self) -> None: ...
    def start(self, c) -> None: ...
    def loss(self, c, b, out): ...
    def finish(self, c): ...
    def rules(self, net):
        """What is learnt is averaged against the memories; without α as ever."""

def correlated(feat: Tensor) -> Tensor:
    """Σ_{i≠j} K_ij² / d², K the correlations of the features over a batch (FedDecorr).
    
    feat: (N, d), at least two of each"""

@dataclass
class Decorrelate(Mechanism):
    """Features of a batch shall not be correlated: β·‖K‖²/d² (FedDecorr; from code and formula)."""
    beta: float = 0.1  # weight of the term, as in the paper
    times_n: bool = True  # as the authors' code: about N times the formula
    def __post_init__(self) -> None: ...
    def loss(self, c, b, out): ...

FedDyn: Method
FAMILY: str
FedDecorr: Method
