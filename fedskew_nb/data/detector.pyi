# Made from detector.py by tests/tools/stubs.py: `make export` writes it anew.
from torch import Tensor
from typing import Any as _Any
__all__ = ['GroundingDINO']

def best_box(logits: Tensor, boxes: Tensor, threshold: float, text_threshold: float) -> tuple | None: ...
def in_pixels(corners, size: tuple) -> tuple | None: ...
def pretrained(kind, model: str, **more): ...
def check_threshold(**thresholds) -> None: ...
def read_detector(model: str, device) -> tuple: ...

class GroundingDINO:
    """A finder: `GroundingDINO()(image, 'dog')`; needs the extra `boxes`."""
    least: tuple
    net: _Any
    reader: _Any
    def __init__(self, model: str=..., threshold: float=0.3, text_threshold: float=0.3, device='cpu') -> None:
        """model: a folder, or a name in Hugging Face's cache
        threshold: a box must score above
        text_threshold: and one of its words"""
    def __call__(self, image, name: str) -> tuple | None: ...

DINO: str
