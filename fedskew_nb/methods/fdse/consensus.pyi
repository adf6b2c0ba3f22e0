# Made from consensus.py by tests/tools/stubs.py: `make export` writes it anew.
import numpy as np
from torch import Tensor
from typing import NamedTuple
__all__ = ['min_norm', 'Agreement', 'NotFinite', 'consensus_step']

def min_norm(G) -> np.ndarray:
    """The weights of the point of the hull that is nearest to the origin, exact.
    
    G: (K, K) Gram matrix: inner products of K vectors"""

class Agreement(NamedTuple):
    """What the clients agree on, and how far."""
    step: Tensor  # (P,) Δ of FDSE's Eq. 8, in the type of V; 0 where no direction helps all
    u: float  # ‖u‖: 1 all agree, 0 no common direction
    least: float  # min_k cos(Δ, Δ_k) over the clients that moved; 0 when Δ = 0
    mean_least: float  # the same for the uniform mean of the updates
    lam: np.ndarray  # (K,) the weights λ of the unit updates
    idle: list  # rows whose update is 0


class NotFinite(ValueError):
    """Some clients' updates hold nan or inf; `rows` says which."""
    rows: list
    def __init__(self, rows) -> None: ...

def consensus_step(V: Tensor, g: Tensor | None=None, eps: float=0.0) -> Agreement:
    """Δ = mean‖Δ_k‖ · u of Eq. 8, u the min-norm point of the unit updates.
    
    V: (K, P) what K clients sent
    g: (K, P) or (P,) what they started from; None: V holds the updates
    eps: in Δ_k/(‖Δ_k‖+eps); above 0 idle clients stay in the hull; released: 1e-8"""
