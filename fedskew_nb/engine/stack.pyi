# Made from stack.py by tests/tools/stubs.py: `make export` writes it anew.
import torch
from fedskew_nb.core.method import Method
from fedskew_nb.engine.client import Worker
from fedskew_nb.engine.setting import Setting
from fedskew_nb.engine.together import Batches
from torch import nn
from typing import Any as _Any
__all__ = ['operations']

def operations(net: nn.Module, size: int=32) -> int:
    """Operations of convolutions and linear layers for a black image, two for each multiply-add.
    
    size: side of the image, pixels"""
def why_not_stacked(method: Method, net: nn.Module, setting: Setting, size: int=32, device: str='cpu') -> str: ...
def stacks_of(clients: list, height: int=...) -> list: ...
def why_one_by_one(fed) -> str: ...

class _Stack:
    """Some clients in training, their tensors on top of each other."""
    batches: Batches
    buffers: _Any
    counted: _Any
    cs: list
    gens: dict
    nest: _Any
    params: _Any
    received: _Any
    tensors: list
    terms: _Any
    total: _Any
    worker: Worker
    def __init__(self, worker: Worker, cs: list, starts: list, begun: list, memories: list) -> None: ...
    def loss_terms(self, ks: list, b: dict) -> dict: ...
    def step(self, t: int, opt: torch.optim.Optimizer) -> None: ...
    def train(self) -> None: ...
    def rows(self) -> list: ...

def nobody(*clients): ...
def train_stack(worker: Worker, tasks: list, at=...) -> list: ...
HEIGHT: int
SMALL: dict
NEVER: tuple
