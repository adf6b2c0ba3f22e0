# Made from backgrounds.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.data.images import Data
from fedskew_nb.data.suite import Suite
from torch import Generator
from torch import Tensor
from typing import Any as _Any
__all__ = ['VEHICLES', 'ANIMALS', 'SEEN', 'context_vehicles', 'context_vehicles_95', 'context_animals', 'empty_contexts']

def usual_context(y: Tensor, k: int) -> Tensor: ...
def deal_contexts(k: int, n: int, n_classes: int=9, rho: float=1.0, data_seed: int=0, part: str='train') -> tuple[Tensor, Tensor]: ...
def objects(y: Tensor, classes: list, px: int, pose: str, g: Generator) -> tuple[Tensor, Tensor]: ...
def lens(x: Tensor, g: Generator) -> Tensor: ...
def draw_contexts(y: Tensor, c: Tensor, classes: list, px: int, pose: str, *key, empty: bool=False) -> Data: ...
def own_images(name: str, s: dict, k: int, part: str, n: int, rho: float, data_seed: int) -> Data: ...
def all_classes(name: str, s: dict, c: int, each: int, data_seed: int) -> Data: ...
def context_suite(name: str, size: str, data_seed: int, rho: float) -> Suite: ...
def context_vehicles(size: str='quick', data_seed: int=0, rho: float=1.0) -> Suite:
    """Nine vehicles; in each client every class has a background of its own; see `CONTEXT_SIZES`."""
def context_vehicles_95(size: str='quick', data_seed: int=0) -> Suite:
    """Nine vehicles, one image in twenty before another background; see `context_vehicles`."""
def context_animals(size: str='quick', data_seed: int=0, rho: float=1.0) -> Suite:
    """Ten animals in harder poses; in each client a class has one background; see `CONTEXT_SIZES`."""
def empty_contexts(k: int, n: int, px: int=32, data_seed: int=0, n_classes: int=9) -> Data:
    """The contexts of client `k` without objects.
    
    k, n: client, and how many images
    px: side of an image
    n_classes: 10 for the animals"""
VEHICLES: _Any
ANIMALS: _Any
SEEN: int
HANDS: tuple
POSES: dict
CONTEXT_KINDS: dict
CONTEXT_SIZES: dict
ABOUT_CONTEXTS: dict
