# Made from correct.py by tests/tools/stubs.py: `make export` writes it anew.
from torch import Tensor
from torch import nn
__all__ = ['decouple', 'correction', 'bottleneck', 'rF', 'separation', 'wrong_label']

def decouple(f: Tensor, M: Tensor) -> tuple:
    """f⁺ = M ⊙ f and f⁻ = (1−M) ⊙ f, F2DC Eq. 4."""
def correction(minus: Tensor, M: Tensor, A_C) -> Tensor:
    """(1−M) ⊙ A_C(f⁻): f⋆ = f⁻ + this (Eq. 6), f~ = f + this.
    
    minus: f⁻
    M: the mask
    A_C: the corrector"""
def bottleneck(C: int, hidden: int | None=None, depth: int=2) -> nn.Sequential:
    """3×3 convolutions through a bottleneck, BatchNorm and ReLU between them: the map keeps its shape.
    
    C: channels in and out
    hidden: channels between; max(8, C/8) by default
    depth: convolutions; the paper has two"""
def rF(f: Tensor) -> Tensor:
    """The paper's r^F: global average, (B, C, H, W) → (B, C); in float32 at least."""
def separation(l_plus: Tensor, l_minus: Tensor, tau: float=0.06) -> Tensor:
    """L_sep = mean cos(l⁺, l⁻)/τ, the first term of Eq. 5; between ±1/τ, in float32 or better.
    
    l_plus: (B, C): pooled f⁺
    l_minus: (B, C): pooled f⁻
    tau: temperature; the paper's value"""
def wrong_label(logits: Tensor, y: Tensor) -> Tensor:
    """ŷ: the best class, or the second best where that is the truth; without a gradient.
    
    logits: (B, n_classes)
    y: (B,) true classes"""
