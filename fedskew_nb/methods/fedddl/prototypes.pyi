# Made from prototypes.py by tests/tools/stubs.py: `make export` writes it anew.
from torch import Tensor
__all__ = ['object_crops', 'pull']

def object_crops(x: Tensor, box: Tensor, chunk: int=256) -> Tensor:
    """Every object, resized to the whole canvas.
    
    x: (N, C, H, W) uint8
    box: (N, 4); a row of zeros: the whole image
    chunk: images at a time, for little memory"""
def pull(f: Tensor, U: Tensor, y: Tensor, tau: float=0.07, had: Tensor | None=None, cosine: bool=True) -> Tensor:
    """L_CR of Eq. 12, the mean over the features whose class has a prototype; 0 if none has.
    
    f: (B, d) features
    U: (C, d) global prototypes
    y: (B,) classes
    tau: released: .5
    had: (C,) bool: classes someone has sent; None: all
    cosine: printed: a dot product"""
