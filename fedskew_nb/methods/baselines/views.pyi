# Made from views.py by tests/tools/stubs.py: `make export` writes it anew.
import numpy as np
import torch
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from torch import Tensor
__all__ = ['FedCCRL', 'augmix', 'styles_of', 'mixstyle', 'StyleViews', 'AlignViews']

def augmix_operations() -> tuple: ...
def dice(g: torch.Generator) -> np.random.Generator: ...
def each_image(v, like: Tensor) -> Tensor: ...
def as_bytes(x: Tensor) -> Tensor: ...
def augmix(x: Tensor, rng: np.random.Generator, width: int=3, severity: int=3) -> Tensor:
    """Images mixed with distorted copies of themselves (AugMix).
    
    x: (B, 3, H, W) bytes
    width: distorted copies; torchvision: 3
    severity: strengths 0, 1/9, … below severity/9; torchvision: 3"""
def styles_of(x: Tensor) -> Tensor:
    """Mean and deviation of the channels of bytes, in [0, 1]."""
def mixstyle(x: Tensor, pool: Tensor, rng: np.random.Generator, alpha: float=0.1) -> Tensor:
    """Each image with a mixture of its own style and one from the pool.
    
    x: (B, 3, H, W) bytes
    pool: (N, 2, 3): mean and deviation of the channels of other images, in [0, 1]
    alpha: of the Beta distribution; the paper: 0.1"""
def supcon(f: Tensor, y: Tensor, t: float) -> Tensor: ...
def js(logits: list) -> Tensor: ...

@dataclass
class StyleViews(Mechanism):
    """Views of every image in styles of other clients' images, then AugMix (FedCCRL; its authors' code)."""
    views: int = 2  # views of every image; the paper: 2; 0 is FedAvg
    r: float = 0.1  # share of the images whose style is sent; the paper: 0.1
    alpha: float = 0.1  # of the Beta distribution of MixStyle; the paper: 0.1
    anew: bool = True  # other images in each round, as the authors' code; False: always the same
    def __post_init__(self) -> None: ...
    def batch(self, c, b):
        """The views, as x_style0, x_style1 …"""
    def loss(self, c, b, out):
        """The cross-entropy of the views."""
    def finish(self, c):
        """The styles of some images."""
    def extras(self, srv, ups):
        """To each client the styles of all others."""

def style_views(m, out) -> list: ...

@dataclass
class AlignViews(Mechanism):
    """Views like their originals, in feature and in prediction (FedCCRL; its authors' code)."""
    lambda1: float = 0.1  # weight λ₁ of the contrast of features; the paper: 0.1
    lambda2: float = 0.1  # weight λ₂ of the divergence of predictions; the paper: 0.1
    t: float = 0.1  # temperature t of the contrast; the paper: 0.1
    def __post_init__(self) -> None: ...
    def loss(self, c, b, out): ...

FedCCRL: Method
FAMILY: str
