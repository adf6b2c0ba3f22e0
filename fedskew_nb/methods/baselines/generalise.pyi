# Made from generalise.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.core.seeding import Random
from torch import Tensor
from typing import Any as _Any
__all__ = ['MixStyle', 'DSU', 'FedDG', 'FedSR', 'FedPLVM', 'OtherStyles', 'FourierViews', 'SimpleFeature', 'TwoLevels']

def noisy(own: tuple, g) -> tuple: ...
def mixed(own: tuple, g, alpha: float) -> tuple: ...

class OtherStyle(Random):
    """Gives its maps other statistics, in training."""
    idle: _Any
    alpha: _Any
    other: _Any
    p: float
    def __init__(self, p: float, *alpha) -> None: ...
    def forward(self, x): ...


@dataclass
class OtherStyles(Mechanism):
    """Other statistics after stages of the body, noisy (DSU) or mixed (MixStyle; their authors' codes)."""
    p: float = 0.5  # probability of a batch to be changed at a stage; released: .5; 0: FedAvg
    alpha: float = 0.0  # of MixStyle's Beta distribution; paper, from memory: .1; 0: DSU's noise
    def __post_init__(self) -> None: ...
    def adapt(self, net): ...

def spectrum(x: Tensor) -> Tensor: ...
def lowest(S: Tensor, r: int) -> Tensor: ...
def image_of(S: Tensor) -> Tensor: ...
def exchanged(x: Tensor, theirs: Tensor, lam: Tensor) -> Tensor: ...

@dataclass
class FourierViews(Mechanism):
    """A view of every image with another client's low-frequency amplitudes (FedDG; its authors' code)."""
    window: float = 0.2  # 2r as a share of a side; the paper, from memory: .02 of 384 pixels, so r = 3
    share: float = 0.125  # of the images whose amplitudes are sent; released: an eighth; 0: FedAvg
    drawn: bool = True  # λ: for each image from 0 to 1, as the paper, from memory; False: 1, as its code
    def __post_init__(self) -> None: ...
    def loss(self, c, b, out): ...
    def batch(self, c, b):
        """The views, once there is a pool."""
    def finish(self, c):
        """Amplitudes of some images, the same in every round."""
    def extras(self, srv, ups):
        """To each client the amplitudes of all others, also of those that sit out."""

def cmi(mu: Tensor, sigma: Tensor, y: Tensor, r: dict) -> Tensor: ...

class DrawnFeature(Random):
    """A pool whose feature is a normal distribution; in eval it gives the mean."""
    both: _Any
    pool: _Any
    def __init__(self, pool, d: int) -> None: ...
    def forward(self, fmap): ...


@dataclass
class SimpleFeature(Mechanism):
    """Drawn features, short and near their class's distribution (FedSR; its authors' code)."""
    l2r: float = 0.01  # α; released for PACS: .01
    cmi: float = 0.001  # β; released for PACS: .001; with 0 nothing is drawn, as in the authors' FedL2R
    def __post_init__(self) -> None: ...
    def adapt(self, net): ...
    def loss(self, c, b, out): ...
    def start(self, c) -> None: ...
    def inner(self, c, b, out) -> None: ...

def clusters(f: Tensor, y: Tensor, n_classes: int) -> tuple: ...
def sparse_contrast(f: Tensor, y: Tensor, P: Tensor, of: Tensor, alpha: float=0.25, tau: float=0.07) -> Tensor: ...
def correction(f: Tensor, y: Tensor, U: Tensor, had: Tensor) -> Tensor: ...

@dataclass
class TwoLevels(Mechanism):
    """Features lean on clusters of the clients' clusters (FedPLVM; its authors' code)."""
    lam: float = 1.0  # λ; released: 100; 0: FedAvg
    alpha: float = 0.25  # α of the contrast; released: .25
    tau: float = 0.07  # τ; released: .07
    def __post_init__(self) -> None: ...
    def finish(self, c): ...
    def extras(self, srv, ups):
        """The clusters of what all participants sent."""
    def loss(self, c, b, out):
        """Nothing before the first clusters are there."""

MixStyle: Method
DSU: Method
FedDG: Method
FedSR: Method
FedPLVM: Method
FAMILY: str
