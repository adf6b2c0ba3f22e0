# Made from boxes.py by tests/tools/stubs.py: `make export` writes it anew.
from pathlib import Path
__all__ = ['find_boxes']

def boxes_so_far(root: Path, out) -> tuple: ...
def ask_finder(root: Path, find, todo, boxes: list, store) -> list: ...
def find_boxes(root, find, out='boxes.csv', progress=None) -> list:
    """Ask a finder about every image of a folder; all boxes, by their paths.
    
    root: folder of images, <domain>/<class>/<image>
    find: (upright RGB image, class name) → (left, top, right, bottom, score), or None
    out: in the folder; what it names is not asked about again
    progress: a bar; default: where somebody looks"""
def closing_words(boxes: list, old: int, file: Path) -> str: ...
def boxes_command(data: str | None=None, out: str='boxes.csv', model: str=..., threshold: float=0.3, device: str='auto') -> None: ...
