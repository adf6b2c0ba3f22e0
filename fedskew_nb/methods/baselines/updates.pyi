# Made from updates.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from torch import Tensor
__all__ = ['FedAvgM', 'FedAdam', 'FedYogi', 'FedNova', 'AFL', 'GroupDRO', 'q_FFL', 'FedDG_GA', 'FedPer', 'SiloBN', 'ServerMomentum', 'ServerAdaptive', 'NormaliseSteps', 'StartLoss', 'WorstDomains', 'FairShares', 'AdjustGaps']


@dataclass
class ServerMomentum(Mechanism):
    """The server steps along a memory of all moves: m ← β·m + Δ, x ← x + η·m (FedAvgM)."""
    beta: float = 0.9  # how much of the memory stays
    eta: float = 1.0  # step of the server
    nesterov: bool = False  # along Δ + β·m instead of m
    def __post_init__(self) -> None: ...
    def rules(self, net): ...


@dataclass
class ServerAdaptive(Mechanism):
    """Each parameter's step is scaled by the size of its moves so far (FedAdam, FedYogi, Alg. 2)."""
    eta: float = 0.03
    beta1: float = 0.9  # of the moves
    beta2: float = 0.99  # of their squares
    tau: float = 0.001  # a large one adapts less
    yogi: bool = False
    def __post_init__(self) -> None: ...
    def rules(self, net): ...

def work(steps: int, rho: float=0.0) -> float: ...

@dataclass
class NormaliseSteps(Mechanism):
    """Moves are divided by the local work, and their mean goes as far as the mean work (FedNova)."""
    rho: float = 0.9  # momentum of the local steps, demanded
    def __post_init__(self) -> None: ...
    def finish(self, c): ...
    def weights(self, srv, ups): ...
    def rules(self, net): ...

def to_simplex(v: Tensor, s: float=1.0) -> Tensor: ...

@dataclass
class StartLoss(Mechanism):
    """A client sends how well the received model fits its training images."""
    def start(self, c) -> None: ...
    def finish(self, c): ...


@dataclass
class WorstDomains(Mechanism):
    """Domains with a large loss gain weight: AFL adds the losses and projects, GroupDRO multiplies."""
    eta: float = 0.1  # step of the weights; 0: domains count alike
    multiply: bool = False  # λ·exp(η·F)
    def __post_init__(self) -> None: ...
    def weights(self, srv, ups):
        """λ of the domain, shared among its clients; FedAvg's weights where all who are there have λ = 0."""


@dataclass
class FairShares(Mechanism):
    """Clients count by F^q; the step shrinks where F^{q+1} is curved (q-FedAvg)."""
    q: float = 1.0  # 0: FedAvg
    def __post_init__(self) -> None: ...
    def finish(self, c): ...
    def weights(self, srv, ups): ...
    def rules(self, net): ...


@dataclass
class AdjustGaps(Mechanism):
    """Clients for whom averaging costs most gain weight (FedDG-GA, CVPR 2023; from its code)."""
    step: float = 0.2  # d, of the first round; 0: FedAvg
    def __post_init__(self) -> None: ...
    def start(self, c) -> None: ...
    def finish(self, c): ...
    def weights(self, srv, ups):
        """a_k, after the gaps that came with these uploads; FedAvg's where all who are there have 0."""

FedAvgM: Method
FedAdam: Method
FedYogi: Method
FAMILY: str
FedNova: Method
AFL: Method
GroupDRO: Method
q_FFL: Method
FedDG_GA: Method
FedPer: Method
SiloBN: Method
