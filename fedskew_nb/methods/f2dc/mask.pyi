# Made from mask.py by tests/tools/stubs.py: `make export` writes it anew.
from torch import Tensor
__all__ = ['logistic', 'gumbel_mask']

def logistic(u: Tensor) -> Tensor:
    """log u − log(1−u): a standard logistic variable for each uniform one; finite at 0 and 1.
    
    u: uniform numbers in [0, 1]"""
def gumbel_mask(S: Tensor, sigma: float=0.1, u: Tensor | None=None, v: Tensor | None=None, hard: bool=False, eps: float=0.0) -> Tensor:
    """A nearly binary mask with a gradient, Eq. 3, in float32 or better.
    
    S: scores, any shape; positive: keep
    sigma: softness; the paper's
    u: uniform noise like S; None: no noise, as at test
    v: a second one: Eq. 3 as printed
    hard: 0 or 1, with the soft gradient
    eps: inside the logarithms; released: 1e-8"""
def brightness_scores(x: Tensor, factor: float=1.0) -> Tensor: ...
def mask_picture(x: Tensor, sigma: float=0.1, factor: float=1.0, seed: int=0) -> list: ...
