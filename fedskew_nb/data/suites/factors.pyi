# Made from factors.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.data.images import Data
from fedskew_nb.data.suite import Suite
from torch import Tensor
from typing import Callable
__all__ = ['Grid', 'dsprites_like']

def inside_heart(u: Tensor, v: Tensor) -> Tensor: ...
def draw_sprites(shape: Tensor, scale: Tensor, turn: Tensor, x: Tensor, y: Tensor, px: int=64) -> Tensor: ...

@dataclass(frozen=True)
class Grid:
    """A grid of factors: which one is the class, and how its cells are drawn."""
    name: str
    classes: tuple  # names of the class factor's values
    cells: int  # in one slice
    label: Callable  # (n,) cells -> (n,) classes
    draw: Callable  # (slice, (n,) cells, px) -> images and masks (n, 3 or 1, px, px), 0 to 1

def taking_turns(y: Tensor) -> Tensor: ...
def pick_cells(grid: Grid, part: str, n: int, *key) -> Tensor: ...
def draw_cells(grid: Grid, where, cells: Tensor, px: int) -> Data: ...
def deal_grid(grid: Grid, slices: list, s: dict, data_seed: int) -> list: ...
def sprite_scale(cells: Tensor) -> Tensor: ...
def draw_turned(turn: int, cells: Tensor, px: int) -> tuple[Tensor, Tensor]: ...
def dsprites_like(size: str='quick', data_seed: int=0) -> Suite:
    """Six scales of three shapes; each of forty clients has an orientation of its own; see `DSPRITES_SIZES`."""
SHAPES: dict
SPRITES: tuple
DSPRITES: Grid
DSPRITES_SIZES: dict
ABOUT_DSPRITES: dict
