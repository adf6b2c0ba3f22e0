# Made from augment.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.core.seeding import Random
from torch import Tensor
__all__ = ['FedFA_aug', 'statistics', 'restyled', 'fusion', 'FeatureAugment']

def statistics(x: Tensor, eps: float=1e-06) -> tuple:
    """The style of maps or images (B, C, H, W)."""
def restyled(x: Tensor, own: tuple, new: tuple) -> Tensor:
    """The same content with other means and standard deviations."""
def fusion(spread: Tensor, eps: float=1e-06) -> Tensor:
    """γ: how much more a channel moves because the clients differ in it.
    
    spread: (C,) variance of a running statistic over the clients"""

class FFA(Random):
    """Draws the channel statistics of its input anew, and remembers their running means."""
    momentum: float
    p: float
    def __init__(self, channels: int, p: float, momentum: float) -> None: ...
    def idle(self, x) -> bool: ...
    def drawn(self, s: Tensor, spread: Tensor) -> Tensor: ...
    def remember(self, *own: Tensor) -> None: ...
    def forward(self, x: Tensor) -> Tensor: ...

def spread_by_channel(V, g, w, srv): ...
def spread_of_all(V, g, w, srv): ...
def stage_channels(net) -> dict: ...

@dataclass
class FeatureAugment(Mechanism):
    """Noise on the channel statistics after every stage of the body (FedFA, ICLR 2023; its authors' code)."""
    p: float = 0.5  # probability of a batch to be changed at a stage; the paper: 0.5
    momentum: float = 0.99  # of the running means; the paper: 0.99
    across: str = 'channel'  # variance over the clients: 'channel', as the paper; 'all', as the code
    def __post_init__(self) -> None: ...
    def adapt(self, net):
        """A layer at the end of each stage."""
    def rules(self, net): ...

SPREADS: dict
FedFA_aug: Method
FAMILY: str
