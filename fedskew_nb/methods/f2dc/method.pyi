# Made from method.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.core.seeding import Random
from torch import Tensor
from torch import nn
from typing import Any as _Any
__all__ = ['F2DC', 'DC', 'Decoupler', 'DFD', 'DFC']


class Decoupler(Random):
    """The neck of F2DC: mask, split, and with a corrector repair a feature map."""
    A_C: _Any
    A_D: nn.Sequential
    dfd: _Any
    m: _Any
    def __init__(self, C: int, n_classes: int, dfd) -> None:
        """C: channels
        dfd: the mechanism DFD"""
    def add_corrector(self) -> None:
        """A_C moves in: the shape of A_D, weights of its own."""
    def noise(self, S, part: str):
        """Uniform numbers like S: in training the client's stream, with `test_noise` the same for every batch."""
    def mask(self, S):
        """M of Eq. 3 for the scores S."""
    def forward(self, f: Tensor):
        """f~ and everything that the losses read."""


@dataclass
class DFD(Mechanism):
    """F2DC's decoupler: a mask splits the map into domain-robust f⁺ and domain-related f⁻ (Sec. 4.1)."""
    sigma: float = 0.1  # softness of the mask, Eq. 3
    tau: float = 0.06  # temperature of the separation, Eq. 5
    lam: float = 0.8  # λ₁, Eq. 9
    warm: int = 0  # ours: λ₁ grows from 0 over so many rounds
    hidden: int | None = None  # channels inside A_D and A_C; max(8, C/8) by default
    depth: int = 2  # convolutions in A_D and A_C
    test_noise: bool = False  # noise also at test; released: yes, anew for each batch
    eps: float = 0.0  # inside the mask's logarithms; released: 1e-8
    share: bool = True  # average A_D, A_C and m too, as released; the paper's text: no
    def __post_init__(self) -> None: ...
    def adapt(self, net):
        """Put the neck in; the net says its sizes."""
    def rules(self, net):
        """Unless shared, the modules stay."""
    def loss(self, c, b, out):
        """λ₁ L_DFD = λ₁ (L_sep + L_dis), Eq. 5, as two terms."""
    def predict(self, net, out):
        """The answer without the neck, beside the default one."""


@dataclass
class DFC(Mechanism):
    """F2DC's corrector: f⁻ gets a learned residual that makes it tell the class (Sec. 4.2)."""
    lam: float = 1.0  # λ₂, Eq. 9
    def __post_init__(self) -> None: ...
    def adapt(self, net): ...
    def loss(self, c, b, out):
        """λ₂ L_DFC, Eq. 7."""

F2DC: Method
DC: Method
