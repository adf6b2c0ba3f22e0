# Made from batch.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from torch import Generator
from torch import Tensor
__all__ = ['Moves', 'draw_moves', 'move', 'boxes_of']


@dataclass(eq=False)
class Moves:
    """What happens to each image of a batch."""
    pad: int
    down: Tensor  # (B,) 0 … 2·pad, first row of the window in the framed image
    right: Tensor  # (B,) first column
    flip: Tensor  # (B,) bool
    turn: Tensor | None = None  # (B,) degrees, last of all; None: nothing is turned

def draw_moves(n: int, g: Generator, pad: int=0, flip: bool=False, turn: float=0.0) -> Moves:
    """Moves for `n` images; nothing is drawn for what is not asked."""
def turned(x: Tensor, degrees: Tensor) -> Tensor: ...
def move(x: Tensor, m: Moves) -> Tensor:
    """Images or masks, moved."""
def boxes_of(masks: Tensor) -> Tensor:
    """The tight box of each mask, that is of its bytes above 127; an empty mask gives 0, 0, 0, 0.
    
    masks: (B, 1, H, W) uint8"""
def turned_boxes(boxes: Tensor, degrees: Tensor, size: tuple) -> Tensor: ...
def move_boxes(boxes: Tensor, m: Moves, size: tuple) -> Tensor: ...
