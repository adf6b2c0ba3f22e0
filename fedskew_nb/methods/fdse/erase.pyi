# Made from erase.py by tests/tools/stubs.py: `make export` writes it anew.
from torch import Tensor
from torch import nn
from typing import Any as _Any
__all__ = ['first_filters', 'cheap_copies', 'Erased']

def domain_share(maps: dict) -> Tensor: ...
def first_filters(layer: nn.Module, t: int) -> nn.Module:
    """The same layer with its first `t` filters: the shared extractor (DFE)."""
def cheap_copies(t: int, copies: int, flat: bool) -> nn.Module | None:
    """One small filter per copy of a channel: 3 × 3, or a single factor for a linear layer (flat)."""

class Erased(nn.Module):
    """A layer as extractor (DFE) and eraser (DSE), Eqs. 2 and 3, without the last ReLU."""
    personal: tuple
    depth: int
    tray: _Any
    T: _Any
    bias: _Any
    bn_dfe: _Any
    bn_dse: _Any
    dfe: nn.Module
    dse: nn.Module | None
    flat: _Any
    ghost: _Any
    relu: bool
    def __init__(self, layer: nn.Module, bn=None, G: int=2, ghost: bool=True, relu: bool=True) -> None: ...
    def copies(self, z: Tensor) -> Tensor:
        """z with its cheap copies: (B, t, …) → (B, T, …)."""
    def before(self, x: Tensor) -> Tensor:
        """What BN_DFE gets: the erased features, whose statistics should not tell the domain."""
    def forward(self, x: Tensor) -> Tensor:
        """The layer's output after BatchNorm."""
