# Made from together.py by tests/tools/stubs.py: `make export` writes it anew.
import torch
from contextlib import contextmanager
from fedskew_nb.core.context import Context
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.engine.client import Worker
from torch import Tensor
from torch import nn
from typing import Any as _Any


class _Remembered(dict):
    """What mechanisms remember of a client, to be read only."""
    def setdefault(self, who, _): ...


class _AnyClient(Context):
    """One client of a stack, whichever it is, in a step."""
    caches: _Remembered
    net: _Any
    received: _Any
    states: _Remembered
    def __init__(self, net, received, states, caches, facts) -> None: ...
    def params(self) -> dict: ...


class _EachDraws(torch.autograd.Function):
    """Uniform numbers for one client of a stack; under `vmap`, from every client's own generator."""
    @staticmethod
    def forward(who, shape, gens): ...
    @staticmethod
    def setup_context(ctx, inputs, output) -> None: ...
    @staticmethod
    def vmap(info, dims, who, shape, gens): ...


class _EachNorms(torch.autograd.Function):
    """BatchNorm for one client of a stack; under `vmap`, all clients' channels side by side in one call."""
    @staticmethod
    def forward(x, *more): ...
    @staticmethod
    def setup_context(ctx, inputs, output) -> None: ...
    @staticmethod
    def vmap(info, dims, x, *more): ...

@contextmanager
def side_by_side(net: nn.Module, wanted: bool=True): ...
def tensors_in(o) -> list: ...
def with_tensors(o, new): ...
def form_of(o) -> str: ...

class Terms(nn.Module):
    """The loss terms of one client, as a module."""
    facts: dict
    net: _Any
    noisy: dict
    received: _Any
    worker: Worker
    def __init__(self, worker: Worker) -> None: ...
    def forward(self, b: dict, memory: dict, who: Tensor, gens: dict) -> dict: ...
    def learn(self, c, each: set) -> None: ...

def hooks_in_steps(m: Mechanism) -> list: ...
def memory_of(c, method: Method, each: set) -> dict: ...

class Batches:
    """The batches of some clients, step by step."""
    begin: _Any
    cs: list
    cuts: list
    data: _Any
    plain: bool
    worker: Worker
    def __init__(self, worker: Worker, cs: list) -> None: ...
    def alike(self, t: int) -> list: ...
    def of(self, ks: list, t: int) -> dict: ...

def clip_each(params: list, most: float) -> None: ...
IN_STEPS: tuple
