# Made from method.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from torch import Tensor
__all__ = ['REGULARISERS', 'FDSE', 'plain_mean', 'pooled_moments', 'Erase', 'attention', 'Peers', 'KeepErasers', 'Consensus', 'eq6', 'Consistency']

def plain_mean(V: Tensor, g: Tensor, w: Tensor, srv) -> Tensor:
    """The unweighted mean: (K, P) → (P,)."""
def pooled_moments(V: Tensor, g: Tensor, w: Tensor, srv) -> Tensor:
    """Moments of all clients' batches together: the mean of the variances and the variance of the means."""

@dataclass
class Erase(Mechanism):
    """Splits every layer into a shared extractor and a personal eraser (FDSE, Sec. 4.1)."""
    G: int = 2  # channels extracted: one in G
    ghost: bool = True  # convolutions keep the channels beside G−1 copies; False: Eq. 3 as printed
    ghost_fc: bool = False  # hidden linear layers, too; current: True
    relu: bool = True  # after BN_DSE; current: False
    own_bias: bool = False  # the bias belongs to the eraser; released: True
    pad11: int | None = None  # padding of an 11 × 11 convolution; released: 5
    pooled: bool = False  # BN_DFE's global variance counts the spread of the means
    whole: bool = False  # leave whole what cannot be split, instead of refusing
    def __post_init__(self) -> None: ...
    def adapt(self, net):
        """Decompose body and pool."""
    def rules(self, net) -> list:
        """BN_DSE's statistics stay; BN_DFE's are averaged, every client counting the same."""

def attention(V: Tensor, tau: float, eps: float=1e-12) -> Tensor:
    """Who listens to whom: softmax of the cosines over τ, Eq. 9."""

@dataclass
class Peers(Mechanism):
    """Every client's eraser becomes a mix of all erasers, the similar ones first (FDSE, Sec. 4.3.2)."""
    tau: float = 0.5  # τ of Eq. 9: → 0 its own, → ∞ the plain mean
    per_tensor: bool = False  # each tensor for itself, not a whole layer; released: True
    def __post_init__(self) -> None: ...
    def rules(self, net): ...


@dataclass
class KeepErasers(Mechanism):
    """Every eraser stays with its client: FDSE without the aggregation of Sec. 4.3.2."""
    def rules(self, net): ...


@dataclass
class Consensus(Mechanism):
    """The server moves a shared layer only where no client objects: min-norm aggregation (FDSE, Sec. 4.3.1)."""
    per_tensor: bool = False  # each tensor, no whole layer; released: True
    eps: float = 0.0  # added to a norm; released: 1e-8
    def __post_init__(self) -> None: ...
    def rules(self, net):
        """Everything that is trained and no eraser."""

def eq6(m, c, erased: dict) -> list:
    """Eqs. 4–6: each block's running statistics against those that the client received."""

@dataclass
class Consistency(Mechanism):
    """Pulls the statistics of what each eraser puts out towards the federation's (FDSE, Sec. 4.2)."""
    lam: float = 0.1  # λ; first release 10; current .05 (Office), .5 (PACS)
    beta: float = 0.001  # β of Eq. 7
    gamma: float = 0.9  # γ of Eq. 5; 0 compares the batch alone
    biased: bool = False  # variances divided by n, as Eq. 4 prints
    reg: str = 'paper'  # Eq. 6, or what the code did: released_v1, released_v2
    def __post_init__(self) -> None: ...
    def start(self, c) -> None:
        """From the second round on: the statistics as received."""
    def loss(self, c, b, out):
        """λ Σ_l w_l L_l; a frozen block gives nothing out, and the others keep their weights."""

REGULARISERS: dict
FDSE: Method
