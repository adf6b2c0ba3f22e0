# Made from server.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.core.net import Net
from fedskew_nb.core.net import Out
from torch import nn
from typing import Any as _Any
__all__ = ['FedHEAL', 'Fed_ensemble', 'Heal', 'turn', 'TwinNet', 'fresh', 'Twins']


@dataclass
class Heal(Mechanism):
    """Updates against a client's own past are dropped, and far clients get more weight (FedHEAL, CVPR 2024)."""
    tau: float | None = 0.3  # least consistency, in [0, 1); the authors' .3; None: every update counts
    beta: float = 0.4  # how fast the weights follow the distances, in [0, 1]; the authors' .4; 0: never
    def __post_init__(self) -> None: ...
    def weights(self, srv, ups): ...
    def rules(self, net): ...

def turn(seed, round: int, client: int, K: int) -> int:
    """Which of K models a client trains in a round: a new order in every age of K rounds."""

class TwinNet(Net):
    """K nets of one kind; the answer is the mean of their probabilities."""
    image_size: _Any
    members: _Any
    name: _Any
    def __init__(self, members: list) -> None: ...
    def forward(self, x) -> Out: ...

def fresh(net: nn.Module) -> nn.Module:
    """A copy that starts from other weights, drawn now; frozen parts stay."""

@dataclass
class Twins(Mechanism):
    """K models, one for each client in a round (Fed-ensemble, 2021: from its abstract and two codes)."""
    K: int = 5  # models; the authors' code has 5
    def __post_init__(self) -> None: ...
    def adapt(self, net): ...
    def forward(self, c, b): ...
    def predict(self, net, out): ...
    def rules(self, net):
        """Every member for itself."""

FedHEAL: Method
FAMILY: str
Fed_ensemble: Method
