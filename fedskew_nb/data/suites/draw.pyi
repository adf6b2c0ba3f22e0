# Made from draw.py by tests/tools/stubs.py: `make export` writes it anew.
from torch import Generator
from torch import Tensor
from typing import Any as _Any
__all__ = ['PHOTOS', 'ARTISTS', 'photo', 'photos', 'to_uint8', 'glyphs', 'face_ids', 'sprite_names', 'sprites', 'hsv_to_rgb', 'tint', 'crops', 'pose', 'warp', 'blur', 'fractal']

def asset(name: str): ...
def arrays(name: str) -> dict: ...
def photo(name: str) -> Tensor:
    """One of the embedded photographs."""
def photos(*names) -> Tensor:
    """Photographs as a stack to cut from."""
def to_uint8(x: Tensor) -> Tensor:
    """0…1 to 0…255, rounded."""
def glyphs() -> Tensor:
    """Masks of the ten digits in 31 type faces, (31, 10, 64, 64), 0 or 1."""
def face_ids(names: str, inside=True) -> Tensor:
    """Row numbers in `glyphs()` of the faces named (or of all the others)."""
def sprite_names(artist: str) -> list:
    """(class, name) of every drawing of this artist."""
def sprites(artist: str) -> Tensor:
    """All drawings of one artist, (n, 4, 64, 64): red, green, blue, opacity."""
def between(g: Generator, lo: float, hi: float, *shape) -> Tensor: ...
def coin(g: Generator, p: float, n: int) -> Tensor: ...
def normal(g: Generator, *shape) -> Tensor: ...
def hsv_to_rgb(h: Tensor, s: Tensor, v: Tensor) -> Tensor:
    """Hue, saturation, value to red, green, blue."""
def tint(g: Generator, n: int, s=..., v=..., h=...) -> Tensor:
    """Random colours with hue, saturation and value from these ranges."""
def crops(bank: Tensor, n: int, size: int, g: Generator, zoom=...) -> Tensor:
    """Random windows, half mirrored.
    
    bank: (P, 3, H, W) photographs
    n, size: how many, how wide
    zoom: side of a window, a part of the photograph's"""
def pose(n: int, g: Generator, turn=0.0, scale=..., shift=0.0, shear=0.0, aspect=...) -> tuple[Tensor, Tensor]:
    """Random poses `(M, t)`.
    
    turn: degrees, at most, to either side
    scale: size of the object
    shift: at most; 1 is half the image"""
def warp(x: Tensor, M: Tensor, t: Tensor, size: int) -> Tensor:
    """Each drawing in its pose; nothing (0) outside of it."""
def over(top: Tensor, mask: Tensor, bottom: Tensor) -> Tensor: ...
def boundary(m: Tensor) -> Tensor: ...
def blur(x: Tensor, sigma: Tensor) -> Tensor:
    """Gaussian blur, seven taps, one `sigma` per image."""
def fractal(n: int, size: int, g: Generator, beta: float) -> Tensor:
    """Cloudy noise whose amplitude falls with frequency `f` as `f**-beta`."""
def turn_hue(x: Tensor, angle: Tensor) -> Tensor: ...
def kuwahara(x: Tensor, r: int=2) -> Tensor: ...
PHOTOS: _Any
ARTISTS: tuple
LUMA: _Any
TURN: _Any
