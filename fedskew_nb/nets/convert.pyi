# Made from convert.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.core.net import Net
from fedskew_nb.core.seeding import Random
from torch import nn
__all__ = ['FAMILIES', 'REFUSED', 'DropPath', 'own_noise', 'as_net']


class DropPath(Random):
    """Stochastic depth: leaves out a whole residual branch for some images (Huang et al. 2016)."""
    p: float
    def __init__(self, p: float) -> None: ...
    def forward(self, x): ...

def own_noise(module: nn.Module) -> nn.Module:
    """Swap every Dropout and StochasticDepth inside for one with a generator of its own."""
def child_at(module, name): ...
def parts(module, names: str) -> list: ...
def cut_apart(module, body: str, pool: str, head: str) -> tuple: ...
def same_answers(module, net, size) -> None: ...
def draws_nothing(module, size) -> None: ...
def cut_points(name: str, body, pool, head) -> tuple: ...
def fresh_head(net: Net, n_classes: int, seed: int) -> None: ...
def as_net(module: nn.Module, n_classes: int | None=None, body: str | None=None, head: str | None=None, pool: str='', size: int=64, seed: int=0) -> Net:
    """A classifier as a Net; torchvision families need no names.
    
    module: a classifier; copied, never changed
    n_classes: of a fresh head; default: keep the head
    body: children that make the map, blanks between
    head: last linear layer, or a Sequential ending in it
    pool: children that pool; default: global average
    size: side of its images, pixels
    seed: of a fresh head"""
FAMILIES: dict
IMAGENET: dict
REFUSED: dict
