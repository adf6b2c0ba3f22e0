# Made from surgery.py by tests/tools/stubs.py: `make export` writes it anew.
from collections.abc import Callable
from torch import nn
from torch.overrides import TorchFunctionMode
from typing import NamedTuple
from typing import Any as _Any
__all__ = ['keeps_statistics', 'decompose', 'erased_blocks', 'part_of', 'is_eraser', 'by_block']

def tensors_in(o, within: tuple=...) -> list: ...

class CountReaders(TorchFunctionMode):
    """While it is on, counts how often the numbers of each named tensor are read."""
    values: set
    counts: _Any
    names: dict
    def __init__(self, names: dict) -> None: ...
    def __torch_function__(self, f, types, args=..., kwargs=None): ...
    def count(self, read: list) -> None: ...


class Use(NamedTuple):
    """One call of a layer."""
    dims: int  # dimensions of its input
    norm: str | None  # the norm that reads its output directly


class _Tracer:
    """The hooks of one forward pass."""
    made: dict
    names: dict
    uses: dict
    def __init__(self, net: nn.Module) -> None: ...
    def after_layer(self, name, m, args, kwargs, out) -> None: ...
    def before_norm(self, name, m, args, kwargs) -> None: ...

def trace_layers(net: nn.Module, size: int | None=None) -> tuple: ...
def keeps_statistics(m: nn.Module) -> bool:
    """Is it a BatchNorm with a running mean and variance?"""
def why_whole(m: nn.Module, name: str, uses: dict, readers: dict, net: nn.Module, G: int) -> str: ...
def decompose(net: nn.Module, G: int=2, ghost: bool=True, ghost_fc: bool=False, relu: bool=True, whole: bool=False, size: int | None=None) -> nn.Module:
    """Every convolution and hidden linear layer of body and pool as an `Erased` block (FDSE, Sec. 4.1).
    
    net: a Net; it is changed
    G: divides the channels
    ghost: convolutions keep their t channels beside the copies
    ghost_fc: hidden linear layers too
    relu: after BN_DSE
    whole: leave whole what cannot be decomposed, instead of refusing
    size: side of the images, pixels; default: what the net was made for"""
def erased_blocks(net: nn.Module) -> dict:
    """The blocks of a decomposed net, in the order of the forward pass."""
def part_of(net: nn.Module, *parts: str) -> Callable:
    """Predicate over names: do they belong to these parts of a block, e.g. `part_of(net, 'bn_dfe')`?"""
def is_eraser(net: nn.Module) -> Callable:
    """Predicate over names: the trained numbers of the erasers."""
def by_block(net: nn.Module) -> Callable:
    """name → group: a whole block is one layer; any other module is one of its own."""
