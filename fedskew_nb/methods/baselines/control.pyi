# Made from control.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
__all__ = ['SCAFFOLD', 'FedDC', 'ControlVariates', 'ServerStep']


@dataclass
class ControlVariates(Mechanism):
    """Every gradient is shifted by c − c_k: all clients' mean gradient for the own one (SCAFFOLD, Eqs. 3–5)."""
    def start(self, c) -> None: ...
    def loss(self, c, b, out): ...
    def finish(self, c):
        """Option II (Eq. 4), for every parameter that was trained."""
    def extras(self, srv, ups):
        """c, the mean of all clients' variates."""


@dataclass
class ServerStep(Mechanism):
    """The server goes η_g times as far as the clients' mean: x + η_g·Σ p_k (y_k − x) (SCAFFOLD, Eq. 5)."""
    eta_g: float = 1.0  # 1 is the mean
    def __post_init__(self) -> None: ...
    def rules(self, net): ...

SCAFFOLD: Method
FAMILY: str
FedDC: Method
