# Made from client.py by tests/tools/stubs.py: `make export` writes it anew.
import torch
from fedskew_nb.core.context import ClientContext
from fedskew_nb.core.method import Method
from fedskew_nb.core.net import Net
from fedskew_nb.core.net import Out
from fedskew_nb.data.images import Data
from fedskew_nb.data.suite import Suite
from fedskew_nb.engine.history import Result
from fedskew_nb.engine.history import Task
from fedskew_nb.engine.setting import Setting
from torch import Tensor
from typing import Any as _Any
__all__ = ['Worker', 'above']


class Worker:
    """One resident model on one device."""
    device: torch.device
    dtype: _Any
    format: torch.memory_format
    kept: _Any
    met: dict
    method: Method
    net: _Any
    scale: list
    setting: Setting
    sgds: dict
    stop: _Any
    suite: Suite
    terms: _Any
    def __init__(self, method: Method, net: Net, suite: Suite, setting: Setting, device: torch.device) -> None:
        """method, net: the model as the method adapted it"""
    def load(self, state: dict) -> None:
        """Become the model with this state."""
    def state(self) -> dict:
        """A copy of the model's state."""
    def copy(self, state: dict) -> Net:
        """An independent model with this state, in eval."""
    def twin(self) -> Worker:
        """Another worker of the same kind, for another lane."""
    def images(self, x: Tensor) -> Tensor:
        """Raw uint8 images as the model wants them; floats are taken to be so already."""
    def precise(self):
        """The context of a forward pass."""
    def answering(self, state: dict | None=None) -> Net:
        """The net as it answers at test: in eval.
        
        state: default: what the worker holds"""
    def meet(self, d: Data, mirrored: bool=False) -> None:
        """A frozen prefix looks at all images of a set, once."""
    def probabilities(self, x: Tensor, batch: int=64, net: Net | None=None, aux: tuple=...) -> dict:
        """What the model says of raw images.
        
        x: (N, 3, H, W) uint8, or normalised floats
        net: `answering`, if it is at hand
        aux: also 'logits', or names in `out.aux`"""
    def raw_batch(self, c: ClientContext, i: Tensor) -> dict:
        """Images of a client, through every `batch` hook, and augmented.
        
        i: indices of its training images"""
    def ready_batch(self, b: dict) -> dict:
        """The same batch with its images as the model wants them."""
    def descend(self, opt: torch.optim.Optimizer, loss: Tensor) -> None:
        """One step down a loss; gradients are clipped if the setting says so."""
    def step(self, c: ClientContext, i: Tensor, opt: torch.optim.Optimizer) -> dict:
        """One step on images `i`; the loss terms, detached."""
    def learner(self, params, lr: float):
        """An optimiser as the setting says, for a model that a mechanism trains beside the worker's."""
    def context(self, t: Task) -> ClientContext:
        """The worker as this client, with the state that it gets."""
    def train(self, t: Task) -> Result:
        """Local training of one client."""
    def prepared(self, t: Task) -> dict:
        """The state with which a client's model is asked, after every `prepare`."""
    def right(self, x: Tensor, y: Tensor, net: Net | None=None) -> dict:
        """Which of these raw images each path gets right; the device is waited for once."""

def widened(o): ...
def check_numbers(method: Method, net: Net, answers: dict, out: Out) -> None: ...
def is_image(name: str, v) -> bool: ...
def augmented(b: dict, moves) -> dict: ...
def batch_of(d: Data, i: Tensor, device) -> dict: ...
def above(names) -> set:
    """The modules that hold these parameters."""
