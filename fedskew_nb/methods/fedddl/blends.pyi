# Made from blends.py by tests/tools/stubs.py: `make export` writes it anew.
from torch import Generator
from torch import Tensor
__all__ = ['groups', 'blends']

def groups(y: Tensor, has: Tensor, eta: int | None, g: Generator) -> tuple:
    """Eq. 5: the backgrounds of each class shuffled and dealt into η groups of nearly equal size.
    
    y: (N,) classes
    has: (N,) bool: is there a background to show?
    eta: groups per class; 0 or None: every background by itself"""
def blends(x: Tensor, hole: Tensor, y: Tensor, eta: int | None, g: Generator, hole_aware: bool=True) -> tuple:
    """The mean backgrounds of each class, Eq. 6; who has no object or no background is left out.
    
    x: (N, C, H, W) uint8, a client's images
    hole: (N, 1, H, W) bool, the object's pixels; none: nobody found it
    y: (N,) classes
    eta: blends per class; 0 or None: every background by itself
    hole_aware: divide by how often a pixel is visible; as printed: no"""
