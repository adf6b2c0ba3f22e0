# Made from stability.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.engine.federation import Federation
from fedskew_nb.methods.dfl.method import Separate
from torch import Tensor
__all__ = ['Tamed', 'held_out', 'still_shared']


@dataclass
class Tamed(Separate):
    """I_s, held back in one way or another; for the study of what makes it stable."""
    clip: float | None = None  # largest norm of the term's gradient on E_s(x), of a whole batch
    bound: float | None = None  # largest size of a weight of the critic
    warm: int = 0  # rounds until mu_s is reached
    raw: bool = False  # the critic reads features as they are
    def __post_init__(self) -> None: ...
    def inner(self, c, b, out) -> None:
        """The critic climbs, within its bound."""
    def loss(self, c, b, out):
        """+μ_s I_s, whose weight may rise from 0."""

def clipped(z: Tensor, most: float) -> Tensor: ...
def held_out_pairs(fed: Federation, k: int) -> tuple: ...
def held_out(a: Tensor, b: Tensor, key=0) -> float:
    """Î of the second half of the rows, by a critic that has learnt on the first; NaN if they are not finite.
    
    a, b: (N, d_a), (N, d_b): features of N images that no net was trained on
    key: of the critic's seed"""
def still_shared(fed: Federation, clients: int=3) -> dict:
    """Held-out Î and the mean length of both features: mean over the first clients of a colored-mnist."""
