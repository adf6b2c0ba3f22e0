# Made from solvers.py by tests/tools/stubs.py: `make export` writes it anew.
import numpy as np
import torch
from collections.abc import Callable
from collections.abc import Iterator
from torch import Tensor
from typing import Any as _Any
__all__ = ['gram', 'frank_wolfe', 'rule_from']

def exact_type(V: Tensor) -> torch.dtype: ...
def updates(V: Tensor, g: Tensor | None, width: int=...) -> Iterator: ...
def home(V: Tensor) -> torch.device: ...
def gram(V: Tensor, g: Tensor | None=None, chunk: int=4096) -> np.ndarray:
    """Inner products of the rows of V−g: short sums in the type of the block, their sum in float64.
    
    V: (K, P), one row per client
    g: what is taken off: (P,) or (K, P), an expanded view too
    chunk: columns of one product"""
def combine(V: Tensor, g: Tensor | None, a: np.ndarray) -> tuple: ...
def frank_wolfe(G, steps: int=250) -> np.ndarray:
    """Walk towards the vector that objects most, as far as helps, again and again: what most code calls MGDA.
    
    G: (K, K) Gram matrix
    steps: at most; the usual number"""
def rule_from(aggregator) -> Callable:
    """A server rule from any of torchjd's aggregators: g + aggregator(V−g); it sees no weights w.
    
    aggregator: an Aggregator of torchjd, or its name ('UPGrad') if it needs no arguments"""
SHORT: _Any
WIDTH: _Any
