# Made from boxes.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from pathlib import Path
from torch import Generator
from torch import Tensor
from typing import NamedTuple
__all__ = ['BOX_COLUMNS', 'Box', 'write_boxes', 'read_boxes']


class Box(NamedTuple):
    """Where the object of one image is, in pixels of its file, upright; all 0: nobody found it."""
    path: str  # below the folder: domain/class/image.jpg
    left: float
    top: float
    right: float
    bottom: float
    score: float = 1.0  # how sure its finder is
    row: int = 0  # of the CSV from which it was read

def write_boxes(file, boxes) -> None:
    """Store boxes as a CSV that `read_boxes` reads, whole or not at all."""
def check_box(b: Box, where: str, size: tuple=...) -> None: ...
def a_file(file) -> Path: ...
def csv_rows(file) -> list: ...
def read_box(file, line: int, fields: list, columns: list) -> Box: ...
def check_columns(file, line: int, columns: list) -> None: ...
def known_paths(file, boxes: list, paths) -> list: ...
def check_once(file, boxes: list) -> None: ...
def read_boxes(file, paths=None) -> list:
    """All boxes of a CSV, or what is wrong with it.
    
    file: a CSV in UTF-8 with the columns path,left,top,right,bottom[,score]
    paths: paths of images; others are refused"""
def fitted(b: Box, size: tuple, side: int, where: str='') -> list: ...
def boxes_file(root, name) -> Path: ...

@dataclass
class Boxes:
    """The best box of each image."""
    file: Path
    best: dict  # {path: Box}
    def has(self, path: Path) -> bool: ...
    def of(self, path: Path, size: tuple, side: int) -> list: ...

def best_boxes(file, paths=None) -> Boxes: ...
def shaken(boxes: Tensor, size: tuple, by: float, g: Generator) -> Tensor: ...
def jittered(boxes: Tensor, size: tuple, by: float, miss: float, g: Generator) -> Tensor: ...
BOX_COLUMNS: tuple
