# Made from sites.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from typing import Any as _Any


@dataclass(frozen=True)
class Here:
    """Images lie in this process: lanes train on them."""
    def train(self, fed, who: list): ...
    def score(self, fed, piece: int | None) -> list: ...


class Overheard:
    """Images lie where `sites` has them; what passes is kept."""
    rounds: list
    score: _Any
    sites: _Any
    def __init__(self, sites=...) -> None: ...
    def train(self, fed, who: list): ...

HERE: Here
