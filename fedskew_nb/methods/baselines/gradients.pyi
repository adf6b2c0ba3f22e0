# Made from gradients.py by tests/tools/stubs.py: `make export` writes it anew.
import torch
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from torch import Tensor
from typing import Callable
__all__ = ['FedIIR', 'MCGDM', 'HeadAlignment', 'GradientMatching']

def trained_head(c) -> dict: ...
def head_gradient(loss: Tensor, head: dict, graph: bool=True) -> dict: ...
def pooled_head_gradient(net, batches) -> dict: ...

@dataclass
class HeadAlignment(Mechanism):
    """A batch's head gradient stays near the mean of all clients' (FedIIR, as its authors' code)."""
    gamma: float = 0.001  # γ; RotatedMNIST 0.01, VLCS 0.005, PACS 0.001, OfficeHome 0.0005
    ema: float = 0.95  # how much of the old mean stays
    def __post_init__(self) -> None: ...
    def loss(self, c, b, out):
        """γ times how far the head's gradient lies from everyone's mean (FedIIR)."""
    def finish(self, c):
        """Send the head's gradient at the received model."""
    def extras(self, srv, ups):
        """The running mean, from 0 on, as the authors'."""

def discrepancy(g: dict, h: dict) -> Tensor: ...
def strong_view(x: Tensor, g: torch.Generator) -> Tensor: ...

@dataclass
class GradientMatching(Mechanism):
    """From the abstract and the authors' training step alone: head gradients agree (MCGDM, Wei and Han)."""
    lam_intra: float = 0.7  # λ_intra; the authors' script for PACS
    lam_inter: float = 0.7  # λ_inter; ours, as λ_intra
    strong: float = 0.5  # share of the changed copy in the cross-entropy
    inter_changed: bool = False  # inter: is the own gradient that of the changed copy? released: yes
    def __post_init__(self) -> None: ...
    def batch(self, c, b):
        """Adds the changed copies."""
    def task(self, c, b, out):
        """Cross-entropy on both views."""
    def loss(self, c, b, out):
        """How little the head's gradients agree, within the client and with the others (MCGDM)."""
    def finish(self, c):
        """Send the head."""
    def extras(self, srv, ups):
        """Every client gets the others' heads, of those who sat out their last."""

def under_head(module, head: dict, feat: Tensor, ce) -> dict: ...
in_head: Callable
FedIIR: Method
FAMILY: str
MCGDM: Method
