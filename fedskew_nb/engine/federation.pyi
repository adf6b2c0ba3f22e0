# Made from federation.py by tests/tools/stubs.py: `make export` writes it anew.
import torch
from fedskew_nb.core.method import Method
from fedskew_nb.core.net import Net
from fedskew_nb.data.suite import Client
from fedskew_nb.data.suite import Suite
from fedskew_nb.engine.client import Worker
from fedskew_nb.engine.history import History
from fedskew_nb.engine.history import Result
from fedskew_nb.engine.history import State
from fedskew_nb.engine.lanes import Lanes
from fedskew_nb.engine.setting import Setting
from torch import Tensor
from typing import Any as _Any
__all__ = ['Federation']


class Federation:
    """A method, a model and a suite; `fit()` runs rounds."""
    by_id: dict
    caches: _Any
    clients: list
    device: torch.device
    down: dict
    fields: dict
    groups: list
    height: _Any
    history: History
    house: str | None
    kept: _Any
    lanes: Lanes
    made_of: dict
    members: dict
    memory: dict
    method: Method
    net: _Any
    out: _Any
    own: dict
    round_no: int
    saved: int
    scored: int
    server: dict
    setting: Setting
    sites: _Any
    state: State
    states: dict
    suite: Suite
    why_lanes: str
    worker: Worker
    def __init__(self, method: Method, net: Net, suite: Suite, house: str | None=None, device='auto', out=None, lanes: int | None=None, sites=..., **setting) -> None:
        """net: the first model: copied
        suite: clients and test sets
        house: protocol: 'f2dc', 'fedbn', 'fdse'
        device: or 'cpu', 'cuda', 'mps'
        out: file of the checkpoint
        lanes: clients at once; default: a core each
        sites: who holds the images
        setting: of `Setting`"""
    def participants(self) -> list:
        """The clients of this round, in the order of their numbers."""
    def state_of(self, id: int) -> dict:
        """The state of client `id`'s model."""
    def order(self, k: int) -> dict:
        """What client `k` is sent for the next round."""
    def work(self, order: dict, mine: dict | None=None) -> tuple:
        """Local training by an order; nothing of the federation changes.
        
        mine: what stayed with the client; None: it never took part"""
    def train_client(self, client: Client, states: dict | None=None) -> Result:
        """Local training of one client from its own model.
        
        states: what mechanisms remember of it; default: the federation's own"""
    def stacks(self, who: list) -> list:
        """These clients as they train: those that can, side by side in one stack."""
    def train(self, who: list):
        """Local training of these clients: (answer, mine) for each, in client order."""
    def one_round(self) -> dict:
        """One round; what it cost."""
    def merge(self, ups: list) -> None:
        """The server's step alone; the uploads stay as they are."""
    def is_personal(self) -> bool:
        """Does any client have a tensor of its own, or prepare its model? Then there is no single model."""
    def score(self, piece: int | None=None) -> None:
        """Ask the models, `piece` images at a time, and add rows to the history."""
    def asked_state(self, model: int, worker: Worker | None=None) -> dict:
        """The state with which a client's model is asked; -1: the server's."""
    def fit(self, n: int | None=None, on_round=None, progress: bool | None=None) -> History:
        """Run rounds, score, save checkpoints. After an interruption it goes on where it was.
        
        n: rounds to advance; default: all that are left
        on_round: called with the federation after each round
        progress: a bar; default: where somebody looks"""
    def plan(self) -> dict:
        """How a round will be computed."""
    def model(self, view: str='global', client: int | None=None) -> Net:
        """An ordinary module: the global model, or the model of one client."""
    def answers(self, images, client: int | None=None, aux: tuple=..., normalised: bool=False) -> dict:
        """Class probabilities by every path of the method; '' is the default.
        
        images: uint8: (N, 3, H, W), (N, H, W, 3), or one (H, W, 3); or files
        aux: further answers: 'logits', or a name in `out.aux`, as 'u'
        normalised: images are floats, normalised already"""
    def predict(self, images, client: int | None=None) -> Tensor:
        """Class probabilities by the default path."""
    def save(self, path) -> None:
        """Write a checkpoint, whole or not at all."""
    def load(self, path) -> Federation:
        """Go on from a checkpoint of the same method, suite and setting."""
