# Made from prototypes.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from torch import Tensor
__all__ = ['FedProto', 'FPL', 'class_means', 'global_prototypes', 'ClassMeans', 'sent_means', 'to_prototypes', 'ProtoPull', 'first_neighbours', 'linked', 'means_of', 'finch', 'clusters_of', 'prototype_cosines', 'cluster_contrast', 'ClusterPull', 'ByPrototype']

def class_means(feats: Tensor, y: Tensor, n_classes: int) -> tuple:
    """The mean feature of each class, summed in float64.
    
    feats: (N, d)
    y: (N,)"""
def global_prototypes(Us: Tensor, has: Tensor, old: tuple=...) -> tuple:
    """The mean over the clients that have a class; where nobody has it, the old one.
    
    Us: (K, C, d) what K clients sent
    has: (K, C) bool: does the client have the class?
    old: U and had of the round before, if there was one"""

@dataclass
class ClassMeans(Mechanism):
    """What a client sends of its classes: the mean feature of each after its training, and which it has."""
    average: bool = True  # are models averaged too? FPL: yes; as published FedProto, FedTGP, FedSA: no
    def rules(self, net): ...
    def finish(self, c): ...

def sent_means(ups: list) -> tuple:
    """What the participants sent, side by side."""
def to_prototypes(f: Tensor, y: Tensor, U: Tensor, had: Tensor) -> Tensor:
    """Mean square distance of features to the vector of their class; 0 for those whose class has none.
    
    f: (B, d) features
    y: (B,) classes
    U: (C, d) a vector per class
    had: (C,) bool: is there one?"""

class SendsPrototypes(Mechanism):
    """Its server sends a vector per class, and a mask of those that are known."""


@dataclass
class ProtoPull(SendsPrototypes):
    """Features are pulled to the mean prototype of their class (FedProto, Tan et al., AAAI 2022)."""
    lam: float = 1.0  # λ; the code of FedTGP runs FedProto with 10
    def __post_init__(self) -> None: ...
    def extras(self, srv, ups): ...
    def loss(self, c, b, out): ...

def first_neighbours(X: Tensor) -> Tensor:
    """The other row of largest cosine."""
def linked(to: Tensor) -> Tensor:
    """The connected part, 0, 1, …, of each point, when every point i is linked with `to[i]`."""
def means_of(X: Tensor, of: Tensor) -> Tensor:
    """The mean of each cluster."""
def finch(X: Tensor) -> Tensor:
    """FINCH's coarsest partition with more than one cluster, or all rows in one where there is none."""
def clusters_of(means: Tensor, has: Tensor) -> tuple:
    """The clusters of all classes, from what K clients sent, and the class of each."""
def prototype_cosines(f: Tensor, P: Tensor) -> Tensor:
    """cos(f, P); no f counts as shorter than a thousandth of the mean prototype."""
def cluster_contrast(f: Tensor, y: Tensor, P: Tensor, of: Tensor, tau: float=0.02) -> Tensor:
    """L_CPCL, the mean over the batch; 0 for a feature whose class has no cluster.
    
    f, y: (B, d) features, (B,) classes
    P, of: (M, d) clusters, (M,) their classes"""

@dataclass
class ClusterPull(Mechanism):
    """Features lean on clusters of their class's prototypes, and on their mean (FPL, Huang et al., CVPR 2023)."""
    tau: float = 0.02  # τ of the cosines
    contrast: float = 1.0  # weight of L_CPCL, ours; FPL: 1
    unbiased: float = 1.0  # weight of L_UPCR, ours; FPL: 1
    def __post_init__(self) -> None: ...
    def extras(self, srv, ups): ...
    def loss(self, c, b, out):
        """L_CPCL and L_UPCR; none before the first clusters are there."""


@dataclass
class ByPrototype(Mechanism):
    """A model is asked for the nearest prototype, not by its head (so FedProto, FedTGP, FedSA are tested)."""
    def prepare(self, c) -> None: ...

def two_looks(spread: float=50.0) -> tuple: ...
def stars_picture(ax, means: Tensor, stars: list) -> None: ...
FAMILY: str
FedProto: Method
FPL: Method
