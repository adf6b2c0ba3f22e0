# Made from weights.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from torch import Tensor
__all__ = ['domain_weights', 'DomainAware']

def domain_weights(n, Q: int, C: int, alpha: float=1.0, beta: float=0.4) -> Tensor:
    """Domain-aware aggregation, F2DC Eqs. 10 and 11.
    
    n: (K,) training images of each participant
    Q: domains in the federation
    C: classes
    alpha: of the size, Eq. 11
    beta: of the discrepancy, Eq. 11"""

@dataclass
class DomainAware(Mechanism):
    """F2DC's aggregation: large clients, and clients close to an even share, weigh more (Sec. 4.3)."""
    alpha: float = 1.0  # of the size, Eq. 11
    beta: float = 0.4  # of the discrepancy, Eq. 11
    Q: int | None = None  # domains; counted among all clients by default
    by_size: bool = False  # n_k/N, as in the released code
    def __post_init__(self) -> None: ...
    def weights(self, srv, ups):
        """p_k of this round's participants."""
