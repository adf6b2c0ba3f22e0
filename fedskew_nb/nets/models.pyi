# Made from models.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.core.net import Net
from torch import nn
from typing import Any as _Any
__all__ = ['MODELS', 'NEEDS', 'seq', 'conv_bn', 'small_conv', 'signed', 'n_params', 'n_bytes', 'BasicBlock', 'gap', 'stage', 'resnet', 'resnet10', 'resnet18', 'alexnet_bn', 'has_map', 'learns_in', 'has_batchnorm', 'has_convs']

def seq(**layers) -> nn.Sequential:
    """An `nn.Sequential` whose layers have names: `seq(conv=…, bn=…)`."""
def conv_bn(ni, nf, k=3, stride=1, pad=None, bias=False, **more):
    """Convolution, BatchNorm, ReLU, and `more` after them."""
def check_sizes(n_classes, width, size, least: int, why: str) -> None: ...

class FlattenMap(nn.Flatten):
    """Flattens maps of one size, and says so when another comes."""
    side: int
    size: int
    def __init__(self, side: int, size: int) -> None: ...
    def forward(self, x): ...

def small_conv(n_classes: int, size: int=32, width: int=16, in_ch: int=3, seed: int=0) -> Net:
    """Three convolutions and a hidden layer of 128; 0.15 M parameters at width 16 and 32 pixels.
    
    n_classes: how many classes
    size: side of the square image, pixels; at least 8
    width: channels of the first convolution; then two and four times
    in_ch: channels of the image
    seed: of the weights"""
def signed(net: Net, size: int, name: str, width: int=0, usual: int=0, **more) -> Net:
    """Note on a net the image size it was made for and the call that makes it; hand it back."""
def n_params(net: nn.Module) -> int:
    """How many numbers training may change."""
def n_bytes(net: nn.Module) -> int:
    """Bytes of the whole state: parameters, BatchNorm statistics, counters."""

class BasicBlock(nn.Module):
    """Two 3×3 convolutions around a shortcut (He et al. 2016)."""
    bn1: _Any
    bn2: _Any
    conv1: _Any
    conv2: _Any
    relu: _Any
    shortcut: _Any
    def __init__(self, ni, nf, stride=1) -> None: ...
    def forward(self, x): ...

def gap() -> nn.Sequential:
    """Global average pooling: (B, C, H, W) → (B, C)."""
def stage(ni: int, nf: int, n: int, stride: int) -> nn.Sequential:
    """`n` residual blocks; the first one changes channels and size."""
def resnet(blocks: tuple, n_classes: int, width: int=64, size: int=32, in_ch: int=3, seed: int=0) -> Net:
    """A ResNet for small images: 3×3 stem, no max-pool, global average (F2DC, Sec. 5.1).
    
    blocks: residual blocks per stage: (1,1,1,1) is ResNet-10
    width: channels of the first stage; F2DC: 64
    size: side of the image, pixels; at least 8"""
def resnet10(n_classes, width=64, size=32, seed=0) -> Net:
    """ResNet-10: one residual block per stage."""
def resnet18(n_classes, width=64, size=32, seed=0) -> Net:
    """ResNet-18: two residual blocks per stage."""
def fc_bn(ni: int, nf: int) -> nn.Sequential: ...
def alexnet_body(in_ch: int, w: int, stride: int) -> nn.Sequential: ...
def alexnet_bn(n_classes: int, size: int=32, width: int=64, in_ch: int=3, seed: int=0, hidden: int | None=None) -> Net:
    """AlexNet + BatchNorm: 5 convolutions, 2 hidden layers, head (FDSE, Sec. 5.1).
    
    size: side of the image; at least 28; paper: 256
    width: of the first convolution; paper: 64
    hidden: of both hidden layers; None: 16·width"""
def has_map(net: nn.Module, size: int | None=None) -> bool:
    """Does it give a feature map (B, C, H, W)? F2DC needs one."""
def learns_in(net: nn.Module, pred) -> bool:
    """Does `pred` hold for an entry that is not frozen?"""
def has_batchnorm(net: nn.Module) -> bool:
    """Does it have BatchNorm that is not frozen, whatever its name? FedBN needs it."""
def has_convs(net: nn.Module) -> bool:
    """Does it have convolutions that are not frozen? FDSE needs them."""
MODELS: dict
NEEDS: dict
