# Made from disentangle.py by tests/tools/stubs.py: `make export` writes it anew.
from torch import Tensor
__all__ = ['REDUCTIONS', 'disentangling_loss']

def disentangling_loss(F_L: Tensor, F_G: Tensor, reduction: str='batchmean', one_way: bool=False) -> Tensor:
    """L_Dis = exp(−KL), Eqs. 2 and 3.
    
    F_L, F_G: (B, d) hidden features of the local and of the global head
    reduction: a mean over images; mean: divided by d, too, as released
    one_way: KL(P(F_L) ‖ Q(F_G)) alone, as printed"""
REDUCTIONS: tuple
