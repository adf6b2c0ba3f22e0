# Made from net.py by tests/tools/stubs.py: `make export` writes it anew.
from contextlib import contextmanager
from dataclasses import dataclass
from torch import Tensor
from torch import nn
from typing import Callable
from typing import Any as _Any
__all__ = ['Out', 'Net', 'normalise', 'is_norm', 'is_batchnorm', 'is_conv', 'everything', 'is_learnt', 'is_statistic', 'under', 'either', 'evaluating', 'probe', 'at_least_float32', 'check_net']


@dataclass
class Out:
    """What a `Net` answers."""
    logits: Tensor  # (B, n_classes)
    feat: Tensor  # (B, d)
    fmap: Tensor | None = None  # (B, C, H, W)
    aux: dict = ...  # what a part gave out beside its result
    views: dict = ...  # the answers to the batch's `x_*` entries


class Tray(dict):
    """Where layers deep inside a net lay what they give out: {key: {number of the layer: what}}."""
    def put(self, key, number, value) -> None: ...
    def take(self) -> dict: ...
    def __deepcopy__(self, memo): ...


class Net(nn.Module):
    """body → neck → pool → head: the four places that a mechanism may change."""
    frozen: frozenset
    mean: _Any
    std: _Any
    expects: _Any
    body: nn.Module
    head: nn.Module
    neck: _Any
    pool: nn.Module
    tray: Tray
    def __init__(self, body: nn.Module, pool: nn.Module, head: nn.Module, neck: nn.Module | None=None) -> None:
        """body: image (B, 3, H, W) → feature map (B, C, H, W)
        pool: feature map → feature (B, d)
        head: feature → logits (B, n_classes)
        neck: feature map → the same shape; or nothing"""
    def forward(self, x: Tensor) -> Out: ...
    def answer(self, fmap: Tensor, aux: dict | None=None) -> Out:
        """What pool and head make of a feature map."""
    def normalised(self, x: Tensor) -> Tensor:
        """Raw images, (B, 3, H, W) uint8, as this net wants them."""
    def see(self, x: Tensor) -> Out:
        """What it answers to raw images, (B, 3, H, W) uint8."""
    def __deepcopy__(self, memo: dict) -> Net:
        """As usual, but for empty tables of hooks, which are made anew."""

def normalise(x: Tensor, mean=..., std=..., dtype=...) -> Tensor:
    """Bytes as floats around 0.
    
    x: (B, 3, H, W) uint8
    mean, std: per channel, for images in [0, 1]"""
def of_type(net: nn.Module, types) -> Callable: ...
def is_norm(net: nn.Module) -> Callable:
    """Predicate: an entry of a normalisation layer."""
def is_batchnorm(net: nn.Module) -> Callable:
    """Predicate: an entry of a BatchNorm."""
def is_conv(net: nn.Module) -> Callable:
    """Predicate: an entry of a convolution."""
def everything(name: str) -> bool:
    """Predicate: every entry."""
def is_learnt(net: nn.Module) -> Callable:
    """Predicate: a parameter, not a statistic."""
def is_statistic(name: str) -> bool:
    """Predicate: a running mean or variance, or a BatchNorm's counter."""
def under(*places: str) -> Callable:
    """Predicate: names inside one of these places, e.g. `under('head', 'body.0')`."""
def either(*preds: Callable) -> Callable:
    """Predicate: at least one of `preds` holds."""
@contextmanager
def evaluating(net: nn.Module):
    """Inside, `net` is in eval mode and makes no graph; afterwards every part is in the mode it was in."""
def probe(net: Net, size: int | None=None, n: int=1, in_ch: int=3):
    """What `net` answers to `n` black images, in eval mode; it leaves the net as it was.
    
    size: side of the image; default: what the net was made for, else 32
    n: how many images
    in_ch: their channels"""
def at_least_float32(v: Tensor) -> Tensor:
    """float64 as it is, all else in float32."""
def check_logits(net: Net, out) -> None: ...
def check_net(net: Net, n_classes: int, size: int) -> None:
    """Refuse a net that cannot answer `n_classes` for such images; say why.
    
    n_classes: of the suite
    size: side of the suite's images, pixels"""
NORMS: tuple
