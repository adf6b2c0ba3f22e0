# Made from claims.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.analysis.claims import gain
from fedskew_nb.engine.history import History
from typing import Any as _Any

def local_unseen(h: History) -> list: ...
def closer(a: History, b: History) -> float: ...
def higher_local(a: History, b: History) -> float: ...
PAPER: str
EVIDENCE: str
UNSEEN: gain
HERE: dict
HEADLINE: _Any
HEADLINES: list
OWN: str
TURNED: str
MASK: str
CONTROLS: list
OURS: list
FURTHER: list
CLAIMS: _Any
TUNED: str
MEASURE: _Any
AT: dict
LONG: _Any
SHORT: _Any
JUDGED: list
BESIDE: list
GRID: list
TURNS: list
BOXES: list
STEPS: list
FEW: _Any
