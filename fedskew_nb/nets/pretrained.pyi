# Made from pretrained.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.core.net import Net
from torch import nn
from typing import Any as _Any
__all__ = ['torchvision_net', 'timm_net']

def colours(mean, std, otherwise: dict | None) -> dict | None: ...
def freeze(net: Net, names: str) -> Net: ...
def behind(net: Net, channels: int, size: int, seed: int) -> Net: ...
def channels_of(body: nn.Module, size: int) -> int: ...
def group_norms(net: nn.Module, groups: int=8) -> nn.Module: ...
def finished(net: Net, name: str, frozen: str, norm: str, expects, adapter: int, seed: int) -> Net: ...
def downloaded(make, *args, **kwargs) -> nn.Module: ...
def norm_of(entry) -> dict: ...
def of_torchvision(name: str, weights: str, seed: int) -> tuple: ...
def torchvision_net(n_classes: int, name: str='resnet18', weights: str='', frozen: str='', norm: str='', size: int=64, seed: int=0, adapter: int=0, mean: tuple | None=None, std: tuple | None=None) -> Net:
    """A classifier of torchvision, with a head for our classes.
    
    name: one of torchvision's classifiers
    weights: 'DEFAULT', … (downloaded), or a file
    frozen: what does not learn: 'body', 'prefix', parts
    norm: 'group': GroupNorm for BatchNorm
    size: pixels
    adapter: channels of a fresh layer behind the body
    mean, std: of the weights"""

class AsMap(nn.Module):
    """What a timm model makes of images, as a map (B, C, h, w)."""
    trunk: nn.Module
    def __init__(self, trunk: nn.Module) -> None: ...
    def forward(self, x): ...

def timm_trunk(timm, name: str, size: int, pretrained: bool) -> nn.Module: ...
def cut_after(trunk: nn.Module, last: str) -> nn.Module: ...
def of_timm(name: str, weights: str, size: int, upto: str, adapter: int) -> tuple: ...
def timm_net(n_classes: int, name: str='resnet18', weights: str='', frozen: str='', norm: str='', size: int=64, seed: int=0, adapter: int=0, upto: str='', mean: tuple | None=None, std: tuple | None=None) -> Net:
    """A model of timm as a Net, with a head for our classes.
    
    name: one of timm's models
    weights: 'DEFAULT', a tag, 'a1_in1k', or a file
    frozen: 'body', 'prefix', parts: 'body.trunk.layer1'
    norm: 'group': GroupNorm for BatchNorm
    size: of images, pixels
    adapter: channels of a fresh layer behind the body
    upto: last part of the body, 'layer3'
    mean, std: of the weights"""
SWAPS: dict
NETS: _Any
