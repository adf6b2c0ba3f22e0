# Made from paste.py by tests/tools/stubs.py: `make export` writes it anew.
from torch import Tensor
from typing import Any as _Any
__all__ = ['usable', 'box_mask', 'check_boxes', 'pulled', 'paste']

def usable(box: Tensor, size: tuple, least: int=1) -> Tensor:
    """Boxes with something in them: an empty or too small one becomes the whole image.
    
    box: (N, 4)
    size: (H, W) of the images
    least: pixels; a box with both sides below it is too small"""
def box_mask(box: Tensor, size: tuple) -> Tensor:
    """Which pixels lie in the box, or in one of the boxes; none for a row of zeros.
    
    box: (N, 4), or (N, n, 4) for n boxes of each image
    size: (H, W)"""
def check_boxes(box: Tensor, x: Tensor) -> Tensor:
    """The boxes, or a refusal of those that do not belong to these images.
    
    box: (N, 4) or (N, n, 4)
    x: their images (N, C, H, W)"""
def pulled(x: Tensor, box: Tensor, to: Tensor, flip: Tensor | None=None) -> Tensor:
    """What is in the box, resized (bilinear) to where `to` is: exact, rounded half up.
    
    x: (N, C, H, W) uint8
    box: (N, 4) what is taken; a row of zeros: the whole image
    to: (N, 4) where it shall be
    flip: (N,) bool: mirror it from left to right"""
def paste(x: Tensor, box: Tensor, bg: Tensor, to: Tensor, alpha: Tensor | None=None, flip: Tensor | None=None, angle: Tensor | None=None) -> Tensor:
    """Every object before its background, which changes nowhere else.
    
    x: (N, C, H, W) uint8
    box: (N, 4) the object in x
    bg: (N, C, H, W) uint8
    to: (N, 4) where it goes
    alpha: (N, 1, H, W) uint8, its mask: cut by the outline
    flip: (N,) bool: mirror it, left to right
    angle: (N,) degrees: then turn it"""
ONE: _Any
