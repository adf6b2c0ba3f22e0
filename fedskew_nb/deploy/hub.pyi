# Made from hub.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.method import Method
from fedskew_nb.data.suite import Suite
from fedskew_nb.deploy.surface import Job
from fedskew_nb.engine.federation import Federation
from fedskew_nb.engine.setting import Setting
from typing import Any as _Any
from typing import ClassVar as _ClassVar


@dataclass(eq=False)
class Roster(Suite):
    """What the server knows in place of images."""
    pixels: int = 32
    facts: tuple = ...  # of each node
    image_size: _ClassVar[_Any]
    chance: _ClassVar[_Any]
    def __post_init__(self) -> None: ...
    def fingerprint(self) -> str: ...

def roster_of(facts: list, pixels: int) -> Roster: ...
def check_alike(facts: list) -> None: ...
def agreed(facts: list) -> list: ...

class Hub(Federation):
    """Its clients are elsewhere."""
    at_once: int
    came: dict
    clients: _Any
    device: _Any
    height: int
    house: _Any
    job: Job
    least: _Any
    lost: _Any
    method: Method
    names: list
    out: _Any
    post: _Any
    setting: Setting
    state: _Any
    why_lanes: str
    def __init__(self, job: Job, facts: list, post, out=None, least=0, lost='') -> None: ...
    def letter(self, k: int, kind: str) -> bytes: ...
    def enough(self, away: list, n: int) -> None: ...
    def asked(self, kind: str, who: list): ...
    def participants(self) -> list: ...
    def train(self, who: list): ...
    def one_round(self) -> dict: ...
    def unlikely(self, k: int, answer) -> str: ...
    def sound_scores(self, k: int, answer) -> list: ...
    def score(self, piece=None) -> None: ...

def spot(row: dict) -> tuple: ...
def added(rows: list) -> list: ...
FACTS: dict
ALIKE: dict
