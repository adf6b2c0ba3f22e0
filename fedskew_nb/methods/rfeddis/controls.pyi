# Made from controls.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.names import Recipe
from fedskew_nb.data.suite import Suite
from fedskew_nb.engine.federation import Federation
from fedskew_nb.methods.rfeddis.method import TwoHeads
from torch import Tensor
from torch import nn
__all__ = ['Summed', 'KeepHead', 'head_probes', 'rfeddis_measures', 'first_digits', 'fewer']


class SummedHeads(nn.Module):
    """ψ_G and ψ_L on one feature; what they say is added."""
    fuse: str
    psi_G: nn.Sequential
    psi_L: nn.Sequential
    def __init__(self, d: int, hidden: int, K: int, fuse: str) -> None: ...
    def forward(self, f: Tensor) -> dict: ...


@dataclass
class Summed(TwoHeads):
    """A control: two heads whose features or logits are added; softmax answers, there is no evidence."""
    fuse: str = 'features'  # what is added; or logits
    share: str = 'head'  # as in TwoHeads; all: nothing stays
    def __post_init__(self) -> None: ...
    def adapt(self, net): ...
    def rules(self, net): ...
    def task(self, c, b, out): ...
    def predict(self, net, out): ...


@dataclass
class KeepHead(Mechanism):
    """A control: the head stays with its client."""
    def rules(self, net): ...

def head_probes(fed: Federation, n: int=100) -> dict:
    """Can the domain be read off F_G, and off F_L? Mean over the clients' models; n images per domain."""
def rfeddis_measures(fed: Federation) -> dict:
    """The probes of both heads, and AVG with re-estimated BatchNorm statistics."""
def first_digits(n: int, size: str, data_seed: int) -> Suite:
    """`skew-digits` with the first `n` training images of each client."""
def fewer(n: int, size: str='standard') -> Recipe:
    """`skew-digits` with so many training images of each client, for `compare`.
    
    n: training images of each client"""
ADDED: tuple
