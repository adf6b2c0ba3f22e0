# Made from proximal.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from torch import Tensor
__all__ = ['BOWLS', 'FedProx', 'bowl_steps', 'bowl_rounds', 'Prox']

def bowl_steps(w: Tensor, k: int, E: int, mu: float=0.0, eta: float=0.1) -> Tensor:
    """The path of one client's local training on its bowl.
    
    w: start, (2,)
    k: client 0 or 1
    E: gradient steps
    mu: FedProx's pull to the start
    eta: step size"""
def bowl_rounds(E: int, mu: float=0.0, rounds: int=30, start=...) -> Tensor:
    """Where the server stands after each round.
    
    E: local steps
    mu: the pull
    start: the server's first model"""
def drift_picture(E: int=40, mu: float=0.0, rounds: int=30, ax=None): ...

@dataclass
class Prox(Mechanism):
    """Stay near the received model: a further loss μ/2·‖w − w^t‖² over the parameters (FedProx, Eq. 2)."""
    mu: float = 0.01  # strength of the pull; the paper tries 0.001, 0.01, 0.1 and 1
    def __post_init__(self) -> None: ...
    def loss(self, c, b, out): ...

BOWLS: tuple
FedProx: Method
FAMILY: str
