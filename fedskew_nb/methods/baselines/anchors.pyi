# Made from anchors.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.methods.baselines.prototypes import SendsPrototypes
from torch import Tensor
from torch import nn
__all__ = ['FedTGP', 'FedSA', 'FedFA_anchors', 'nearest_gaps', 'margin_loss', 'class_table', 'TGP', 'drawn_anchors', 'names_anchors', 'own_margin', 'SemanticAnchors', 'unit_anchors', 'balanced_distance', 'FeatureAnchors']

def nearest_gaps(U: Tensor) -> Tensor:
    """How far the nearest other row lies; infinity for a row alone."""
def margin_loss(p: Tensor, y: Tensor, A: Tensor, gap) -> Tensor:
    """Cross-entropy of minus the distances to A, the own one longer by `gap`; its slope at distance 0 is 0."""
def class_table(n: int, d: int) -> nn.Module:
    """A vector per class, and the network behind it."""

@dataclass
class TGP(SendsPrototypes):
    """A server trains a vector per class on what clients sent (FedTGP, Zhang et al., AAAI 2024)."""
    lam: float = 10.0  # λ of the clients; the authors' script: 10
    epochs: int = 100  # of the server; the authors' script: 100
    lr: float = 0.01  # of the server; released: the clients'
    size: int = 10  # prototypes in a step; released: as many as images in a client's
    cap: float = 100.0  # the largest margin
    def __post_init__(self) -> None: ...
    def loss(self, c, b, out): ...
    def extras(self, srv, ups):
        """The trained vectors; the table goes on from round to round."""

def drawn_anchors(seed: int, n: int, like: Tensor) -> Tensor:
    """FedSA's anchors before the first round: normal numbers through a ReLU."""
def names_anchors(head, A: Tensor) -> Tensor:
    """Cross-entropy of a head that should name every anchor."""
def own_margin(U: Tensor) -> Tensor:
    """The mean distance to the nearest other row; 0 for less than two rows."""

@dataclass
class SemanticAnchors(SendsPrototypes):
    """FedSA (Zhou et al., AAAI 2025), built from its abstract and its authors' code; the paper was not read."""
    lam: float = 1.0  # λ, of the distance; released: 1
    mu: float = 1.0  # μ, of the contrast; released: 1
    gamma: float = 1.0  # γ, of the head; released: 1
    alpha: float = 0.9999  # α, how much of an anchor stays in a round; released: .9999
    def __post_init__(self) -> None: ...
    def start(self, c) -> None: ...
    def extras(self, srv, ups):
        """The anchors, moved by the prototypes that came; these; and to each client its own prototypes' margin."""
    def loss(self, c, b, out):
        """Its three terms, as far as they have a weight (FedSA)."""

def unit_anchors(seed: int, n: int, like: Tensor) -> Tensor:
    """FedFA's first anchors: n of the d axes, or random directions where there are more classes than axes."""
def balanced_distance(f: Tensor, y: Tensor, A: Tensor) -> Tensor:
    """The mean over all C classes of the mean square distance of a class's features to its anchor."""

@dataclass
class FeatureAnchors(Mechanism):
    """Features lean on an anchor per class, and the head must name the anchors (FedFA, Zhou et al., TMC 2023)."""
    lam: float = 0.1  # λ, of the distance; released: .1
    momentum: float = 0.5  # m, how much of an anchor stays in an epoch; released: .5
    calibrate: float = 0.001  # Adam's step; 0: none; released: 1e-3
    def __post_init__(self) -> None: ...
    def start(self, c) -> None: ...
    def loss(self, c, b, out): ...
    def inner(self, c, b, out) -> None:
        """Add up the features of an epoch by class."""
    def batch(self, c, b):
        """The batch as it is; before it the head's step that belongs to the batch before."""
    def finish(self, c):
        """The head's last step, and the client's copy of the anchors."""
    def extras(self, srv, ups):
        """The mean of the participants' copies, weighted by their images."""

FedTGP: Method
FAMILY: str
FedSA: Method
FedFA_anchors: Method
