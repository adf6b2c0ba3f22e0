# Made from style.py by tests/tools/stubs.py: `make export` writes it anew.
from contextlib import contextmanager
from matplotlib.axes import Axes
from typing import Any as _Any
__all__ = ['INK', 'GREY', 'PALETTE', 'shades', 'ink', 'colour', 'style', 'subplots', 'canvas', 'bare']

def shades(n: int) -> list:
    """The first `n` colours of the palette, for domains and clients; they repeat after twelve."""
def read_ink(text: str) -> tuple: ...
def method_inks() -> dict: ...
def ink(name: str) -> tuple:
    """Colour and dash of a method; an unknown name gets its own by a checksum of its letters.
    
    name: a method, with or without values: 'FedProx', 'FedProx(mu=.1)', 'FedBN/iid'"""
def colour(name: str) -> str:
    """The colour of a method, the same on every page."""
@contextmanager
def style():
    """The style of our figures, as `with style(): …` or as the decorator `@style()`."""

class StyledAxes(Axes):
    """Axes that apply the style to what is drawn on them later."""

def subplots(rows: int=1, cols: int=1, size=..., subplot_kw=None, **kw):
    """`plt.subplots` in our style; nothing global changes.
    
    rows: rows of axes
    cols: columns of axes
    size: inches, of the whole figure
    subplot_kw: as in `plt.subplots`: a projection, say
    kw: passed to `plt.subplots`"""
def canvas(ax, size=..., **kw) -> Axes:
    """`ax`, or the axes of a new figure."""
def bare(ax) -> Axes:
    """Axes without frame, ticks and grid."""
INK: str
GREY: str
PALETTE: _Any
DASHES: _Any
CONTROLS: _Any
STYLE: _Any
