# Made from probes.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.names import Recipe
from fedskew_nb.data.images import Data
from fedskew_nb.data.suite import Suite
from fedskew_nb.engine.federation import Federation
from torch import Tensor
from typing import Any as _Any
__all__ = ['fedddl_picture', 'alone_facts', 'background_alone', 'closeness', 'prototype_facts', 'looks_inside', 'ddl_measures', 'Doubled', 'badly_boxed', 'worse_boxes']

def fedddl_picture(today=..., ax=None):
    """FedDDL inside one client, from an image to its losses, with today's piece filled.
    
    today: names of the places to fill: 'I_O', 'blends', 'U_G', …"""
def toy_client(k: int, n: int=60, size: int=48, seed: int=0) -> Data: ...
def alone_facts(p: Tensor, y: Tensor) -> tuple:
    """What probabilities (N, C) say of backgrounds that go with classes y."""
def background_alone(fed: Federation) -> dict:
    """What local models say of empty backgrounds and of holes, and the global one of empty ones."""
def client_alone(fed, c) -> dict: ...
def facts_of_state(fed, state, d) -> tuple: ...
def closeness(U: Tensor) -> float:
    """Mean cosine between different rows of (C, d), the prototypes of classes."""
def prototype_facts(fed: Federation) -> dict:
    """How close the classes' mean features lie, of objects and of whole images; mean over the clients."""
def looks_inside(fed: Federation, n: int=40) -> dict:
    """Share of Grad-CAM inside the box, on images of unseen contexts that the global model gets right."""
def client_agreement(fed, n=40) -> dict: ...
def ddl_measures(fed: Federation) -> dict:
    """Every number of this page; for methods with a global model."""

@dataclass
class Doubled(Mechanism):
    """A control: every step learns from a second batch of the client's own images."""
    def batch(self, c, b): ...
    def loss(self, c, b, out): ...

def badly_boxed(by: float, miss: float, size: str, name: str, data_seed: int) -> Suite:
    """`context-vehicles` with boxes that are moved and lost."""
def worse_boxes(by: float=0.0, miss: float=0.0, size: str='quick') -> Recipe:
    """`context-vehicles` with boxes that are moved and lost, for `compare`.
    
    by: how far a side moves at most, in sides of its box
    miss: share of the images whose box is lost"""
FEDDDL_BOXES: dict
FEDDDL_ARROWS: list
FEDDDL_WORDS: dict
TOY_VEHICLES: _Any
SCENES: _Any
