# Made from counterfactual.py by tests/tools/stubs.py: `make export` writes it anew.
from torch import Generator
from torch import Tensor
__all__ = ['random_places', 'same_size_places', 'any_class', 'other_classes', 'own_class', 'draw_backgrounds']

def random_places(n: int, size: tuple, g: Generator, fractions=...) -> Tensor:
    """Random boxes of a few sizes, anywhere inside the image.
    
    size: (H, W) of the images
    fractions: of the side, drawn for the width and for the height"""
def same_size_places(box: Tensor, size: tuple, g: Generator) -> Tensor:
    """The same boxes, each anywhere inside the image.
    
    box: (n, 4), none empty: see usable
    size: (H, W)"""
def any_class(y, of) -> Tensor:
    """Every background may stand behind every object."""
def other_classes(y, of) -> Tensor:
    """Only backgrounds of other classes may."""
def own_class(y, of) -> Tensor:
    """Only backgrounds of the same class may."""
def draw_backgrounds(y: Tensor, of: Tensor, g: Generator, allowed=...) -> Tensor:
    """A background for each object, uniform over those allowed.
    
    y: (N,) classes of the objects
    of: (P,) classes of the backgrounds
    allowed: (y, of) → (N, P) bool"""
