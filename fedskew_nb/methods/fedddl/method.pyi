# Made from method.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.data.images import Data
from torch import Tensor
__all__ = ['FedDDL', 'LADDER', 'DEC', 'DEB']

def object_boxes(d: Data) -> Tensor: ...

@dataclass
class DEC(Mechanism):
    """Counterfactuals: every object before backgrounds of all classes (FedDDL, Sec. 4.2)."""
    eta: int = 3  # blends of a class, Eq. 5; 0: every background by itself
    cut: str = 'box'  # the object is its box; mask: its outline
    size: str = 'random'  # resized to 3/7, 4/7 or 5/7 of the side, each way; own: as it is
    pool: str = 'all'  # backgrounds of all classes; others: not the own; own: the control
    hole_aware: bool = True  # no holes in blends; released and Eq. 6: a plain mean
    ce: bool = True  # cross-entropy on counterfactuals, Eq. 7; released: no
    least: int = 1  # pixels; a smaller box is the whole image
    rotate: float = 0.0  # degrees; objects are turned by up to so many either way
    def __post_init__(self) -> None: ...
    @property
    def wants(self): ...
    def start(self, c) -> None:
        """Boxes and blends, Eq. 6."""
    def batch(self, c, b):
        """Adds I_C, drawn anew at every step, unless nobody reads it in this round."""
    def loss(self, c, b, out):
        """The second term of Eq. 7."""


@dataclass
class DEB(Mechanism):
    """Causal prototypes: features are pulled to the mean feature of objects alone (FedDDL, Sec. 4.3)."""
    lam: float = 1.0  # λ, Eq. 13
    tau: float = 0.07  # τ, Eq. 12; released: .5
    first: int = 1  # round of the first pull, counted from 0; released: 2
    local: bool = True  # pull the features of images: L of Table 3
    counter: bool = True  # and of counterfactuals: C
    cosine: bool = True  # similarity; Eq. 12 prints a dot product
    turned: int = 0  # control: to the prototype of a class so many places on
    def __post_init__(self) -> None: ...
    def finish(self, c):
        """U_L, Eq. 10: sums in float64, so that no order of the images shows."""
    def extras(self, srv, ups):
        """U_G, Eq. 11."""
    def batch(self, c, b):
        """Says whether this round reads counterfactuals."""
    def loss(self, c, b, out):
        """λ L_CR, Eq. 12, over the features of both views; none before the first prototypes are there."""

CLASSES_BEHIND: dict
CUTS: dict
PLACINGS: dict
FedDDL: Method
LADDER: dict
