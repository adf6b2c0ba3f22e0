# Made from statistics.py by tests/tools/stubs.py: `make export` writes it anew.
from torch import Tensor
__all__ = ['batch_moments', 'moving_moments', 'statistics_gap', 'layer_weights']

def batch_moments(o: Tensor, biased: bool=False) -> tuple:
    """Mean and variance of each channel of a batch, Eq. 4.
    
    o: (B, C) or (B, C, H, W)
    biased: divide by n instead of n−1 (a BatchNorm's running variance has n−1)"""
def moving_moments(before: tuple, batch: tuple, gamma: float=0.9) -> tuple:
    """Running statistics after one more batch, Eq. 5.
    
    before: (means, variances) so far; constants
    batch: of this batch, with gradient
    gamma: γ of Eq. 5; torch's momentum is 1 − γ"""
def statistics_gap(mu: Tensor, var: Tensor, mu_g: Tensor, var_g: Tensor) -> Tensor:
    """How far a layer's statistics are from the global ones, Eq. 6."""
def layer_weights(L: int, beta: float=0.001) -> Tensor:
    """softmax(βl): the larger β, the later the erasing, Eq. 7."""
