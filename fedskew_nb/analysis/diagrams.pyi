# Made from diagrams.py by tests/tools/stubs.py: `make export` writes it anew.
from matplotlib.axes import Axes
from pathlib import Path
from typing import Any as _Any
__all__ = ['round_picture', 'net_picture', 'flow_drawing', 'floors', 'room_picture']

def box(ax, x, y, w, h, color=..., dashed=False, fill=0.0) -> None: ...
def arrow(ax, start, end, color=..., bend=0.0) -> None: ...
def model(ax, x, y, params, color=..., pitch=0.42, **kw): ...
def seven(ax, x, y, k, s=1.8) -> None: ...
def round_picture(ax: Axes | None=None, shaded=..., ink='blue') -> Axes:
    """The four steps of a round as a strip of four pictures.
    
    ax: where to draw
    shaded: steps that a method changes: download, train, upload, aggregate
    ink: their colour, a name of the palette"""
def net_picture(ax: Axes | None=None) -> Axes:
    """body → neck → pool → head, and the shapes between them."""
def named_box(ax, x, y, w, h, text, color=..., size=None, **kw) -> None: ...
def flow_drawing(places: dict, ways, words=None, today=..., ax: Axes | None=None, figure=..., size=...) -> Axes:
    """Boxes, arrows between them, words beside; today's boxes are filled.
    
    places: {name: (column, row, colour)}
    ways: pairs of names
    words: {text: (column, row)}
    today: names to fill
    figure: inches
    size: of a box; columns are 4 apart, rows 3.2"""
def taken_from(path: Path, room: str) -> set: ...
def floors(room: str) -> list:
    """The modules of a room: each stands one floor above the highest that it imports.
    
    room: core, data, engine, analysis, run, …"""
def row_of(ax, names, y, filled) -> None: ...
def room_picture(room: str, ax: Axes | None=None) -> Axes:
    """The floors of a room; filled modules are imported by other rooms."""
W0: tuple
MOVES: tuple
ROUND_STEPS: tuple
PAINTS: tuple
FLOWS: tuple
PITCH: _Any
