# Made from server.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.core.context import ServerContext
from fedskew_nb.core.context import Upload
from fedskew_nb.core.method import Method
from fedskew_nb.engine.history import State
from torch import Tensor
from typing import Any as _Any
__all__ = ['Server']

def staying(fed, k: int, round: int) -> set: ...
def size_of(nest) -> int: ...
def floats_in(nest) -> list: ...
def weights_of(method: Method, srv: ServerContext, ups: list, uniform: bool=False) -> Tensor: ...
def summed_early(method: Method, groups: list, state: dict) -> list: ...

class Server:
    """The server during one round."""
    early: _Any
    fed: _Any
    memory: _Any
    model: _Any
    own: dict
    state: _Any
    sums: dict
    ups: list
    w: _Any
    def __init__(self, fed, who: list=...) -> None:
        """fed: a Federation
        who: the participants, if their uploads may be summed as they come"""
    def context(self, ups: list, **more) -> ServerContext:
        """The server as mechanisms see it."""
    def weights(self, ups: list) -> Tensor:
        """(K,) p_k of these uploads."""
    def sound(self, k: int, answer: dict, finite: bool=True) -> Upload:
        """What client `k` was asked for; anything else is refused by name, and nothing has changed.
        
        finite: look at every number; who trains in this process has done so"""
    def receive(self, up: Upload) -> None:
        """The next upload, in client order; nothing is left in it of what is only summed."""
    def aggregate(self) -> State:
        """The next state: every group of names through its rule, then the extras for the next round."""
    def traffic(self) -> dict:
        """Bytes that this round moves."""

def form_of(v) -> str: ...
def alike(a, b) -> bool: ...
def unlikely_scores(rows: list, k: int, done: int) -> str: ...
def unasked(answer, k: int, wanted: dict, done: int) -> str: ...
ANSWER: dict
