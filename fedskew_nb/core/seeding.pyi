# Made from seeding.py by tests/tools/stubs.py: `make export` writes it anew.
import torch
from contextlib import contextmanager
from torch import Tensor
from torch import nn
from typing import Any as _Any
__all__ = ['generator', 'Random', 'Dropout', 'seeded']

def generator(*key) -> torch.Generator:
    """A CPU generator that depends on `key` alone, e.g. `generator(seed, round, client, 'order')`."""

class Random(nn.Module):
    """Base of modules that draw noise; the engine sets `generator` before each client's training."""
    generator: torch.Generator | None = None
    stacks: bool
    draw: _Any
    def rand(self, shape, like: Tensor) -> Tensor:
        """Uniform [0, 1) numbers of this shape, drawn on the CPU so that every device gets the same."""


class Dropout(Random):
    """As `nn.Dropout`, with a generator of its own."""
    p: float
    def __init__(self, p: float=0.5) -> None: ...
    def forward(self, x): ...

@contextmanager
def seeded(seed: int):
    """Inside, PyTorch's CPU generator starts at `seed`; afterwards it is where it was."""
