# Made from layouts.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from typing import Any as _Any


@dataclass(frozen=True)
class Layout:
    """A published data set of domains and classes."""
    says: str  # one line
    counts: dict  # {domain: images}, as its authors count; None: they do not say
    classes: tuple = ...  # by name; (): every folder of a domain is one
    other: dict = ...  # {another name: ours}, of domains and classes
    home: str = ''  # where its authors offer it
    cite: str = ''
    total: int = 0  # images, where only that is known
    inside: str = ''  # folder of <class>/<context>, where each class has contexts of its own
    last: bool = False  # the last seven contexts are the clients', not the first

def nico(inside: str, classes: tuple, total: int, sizes: tuple, last: bool=False) -> Layout: ...
def known_as(layout: Layout, names) -> dict: ...
def place_in(layout: Layout, path: str) -> tuple | None: ...
def context_in(layout: Layout, path: str) -> tuple | None: ...
def numbered(layout: Layout, sources: list) -> dict: ...
def placer(layout: Layout, sources: list): ...
TEN: _Any
LAYOUTS: dict
FEDBN_TEN: _Any
ANIMALS: tuple
VEHICLES: tuple
CONTEXTS: list
CLIENTS: int
