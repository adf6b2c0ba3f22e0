# Made from generate.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from torch import Tensor
from torch import nn
__all__ = ['FedGen', 'FeatureGenerator', 'diversity', 'generator_loss', 'LatentGenerator']


class FeatureGenerator(nn.Module):
    """A feature for a label and noise: linear, BatchNorm, ReLU, linear (the authors' generator)."""
    mlp: nn.Sequential
    n_classes: int
    noise: int
    def __init__(self, n_classes: int, d: int, noise: int=32, hidden: int=256) -> None:
        """n_classes, d: d: size of a feature"""
    def forward(self, y: Tensor, eps: Tensor) -> Tensor: ...

def diversity(eps: Tensor, z: Tensor) -> Tensor:
    """Near 1 where different noise (B, noise) gives equal features (B, d); near 0 where it does not."""
def generator_loss(z: Tensor, y: Tensor, eps: Tensor, W: Tensor, bias: Tensor, share: Tensor, eta: float=1.0) -> Tensor:
    """What the heads say against the labels, weighted label by label, and the diversity term.
    
    z, y, eps: made features (B, d), their labels and noise
    W, bias: the clients' heads, (K, C, d) and (K, C)
    share: (K, C) of a class's images, the share of each client"""

@dataclass
class LatentGenerator(Mechanism):
    """A generator of features, trained on the server against all heads, teaches the clients (FedGen)."""
    alpha: float = 10.0  # weight of made features in a client's loss; the authors' 10
    beta: float = 10.0  # weight of what the head says of them for images of their class; the authors' 10
    eta: float = 1.0  # of the diversity term on the server; the authors' 1
    fade: float = 0.98  # both weights shrink by it per round; the authors' .98
    steps: int = 50  # of Adam on the server per round; the authors' 50
    rate: float = 0.0003  # of Adam; it fades, too
    size: int = 32  # made features of a batch
    noise: int = 32  # numbers of noise
    hidden: int = 256  # width of the generator
    def __post_init__(self) -> None: ...
    def adapt(self, net):
        """Nothing changes; the head must be linear, for the server has no net to put it into."""
    def start(self, c) -> None:
        """The generator as it came, frozen; none in the first round."""
    def loss(self, c, b, out):
        """CE on made features, and KL from what the head says of them to what the model says of the images."""
    def finish(self, c):
        """The head and the class counts; nothing where both terms are off."""
    def extras(self, srv, ups):
        """Some steps of the generator against the heads that were sent."""

FedGen: Method
FAMILY: str
