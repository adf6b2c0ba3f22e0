# Made from context.py by tests/tools/stubs.py: `make export` writes it anew.
import torch
from dataclasses import dataclass
from torch import Tensor
from typing import Any as _Any
__all__ = ['ClientContext', 'Upload', 'ServerContext', 'Each', 'received_by']


class Window:
    """A client or a server as one mechanism sees it."""
    def __init__(self, ctx, m) -> None: ...
    def __getattr__(self, name): ...
    @property
    def state(self) -> dict: ...
    @property
    def cache(self) -> dict: ...
    def gen(self, purpose, **how) -> torch.Generator: ...


class Context:
    """What client and server contexts share: a window per mechanism."""
    def window(self, m) -> Window: ...


class ClientContext(Context):
    """One client during one round."""
    caches: dict
    data: _Any
    device: _Any
    down: dict
    id: int
    images: _Any
    kept: _Any
    learnt: set
    lr: float
    n_classes: _Any
    net: _Any
    phase: str
    round: int
    rounds: int
    seed: int
    states: dict
    steps: int
    steps_of: dict
    def __init__(self, id: int, net, data, states: dict, caches: dict, down: dict, seed: int, round: int, rounds: int, device, lr: float, receive=None, images=None, n_classes=0, kept=...) -> None:
        """id, net, data: number, model, images
        states, caches: {mechanism: dict}
        down: came beside the weights
        receive, images: make what it received, images"""
    def params(self) -> dict:
        """The parameters of the net in training."""
    def gen(self, purpose, lasting=False) -> torch.Generator:
        """The random stream of this seed, round, client, phase and purpose.
        
        lasting: a stream that does not turn with the round, always from its beginning"""
    @property
    def received(self):
        """The model as the client got it: frozen, in eval, made on first use."""


@dataclass(frozen=True)
class Member:
    """What the server knows of a client from the beginning."""
    id: int
    domain: str
    n: int  # its training images


@dataclass
class Upload:
    """What one participant sends after its training."""
    id: int  # the client
    n: int  # its training images
    domain: str
    state: dict  # name → tensor: its model; an entry is dropped when it has been merged
    extra: dict = ...  # the union of `finish`


class ServerContext(Context):
    """The server during one round."""
    caches: dict
    domains: dict
    ids: list
    n_classes: int
    names: list
    round: int
    rounds: int
    seed: int
    shapes: list
    sizes: dict
    states: dict
    uniform: bool
    def __init__(self, states: dict, ids: list, sizes: dict, domains: dict, round: int, rounds: int, seed: int=0, names=..., shapes=..., uniform: bool=False, n_classes: int=0) -> None:
        """states: {mechanism: its memory}
        ids: participants, in row order
        sizes, domains: training images and domain of all clients
        names, shapes: the parameters of this group
        uniform: do all clients count alike?"""
    def gen(self, purpose) -> torch.Generator: ...
    def split(self, V: Tensor) -> dict:
        """Rows (..., P) as {name: (..., *shape)}."""
    def share(self, client: int) -> float:
        """What a client counts among all, also those that sit out: n_k / Σ n, or 1/N where all count alike."""


class Each(dict):
    """{client: value}, an entry of `extras` that differs from client to client."""

def received_by(down: dict, client: int) -> dict:
    """What of `down` goes to one client."""
