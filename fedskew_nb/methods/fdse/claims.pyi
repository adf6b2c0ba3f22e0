# Made from claims.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.analysis.claims import gain
from fedskew_nb.engine.history import History
from torch import nn
from typing import Any as _Any

def domains_won(a: History, others: list) -> float: ...
def wider(a: History, others: list) -> float: ...
def first_score(a: History, b: History) -> float: ...
def least_cosine(a: History, b: History) -> float: ...
def over_both(a: History, others: list) -> float: ...
def over_restated(a: History, b: History) -> float: ...
def paper_operations(net: nn.Module, size: int=256, batch: int=50) -> int: ...
PAPER: str
EVIDENCE: str
BOTH: tuple
EMOJI: tuple
LETTER: str
FDSE_DC: str
UNSEEN: tuple
SPLIT: str
NO_A: str
NO_B: str
RECEIVED: gain
TRAINED: gain
GATE: dict
AT_GATE: list
CLAIMS: _Any
TAU: tuple
BETA: tuple
NEW: dict
NEWCOMER: list
LONG: dict
COUNTED: tuple
MEASURE: _Any
AT: dict
DIGITS: tuple
THREE: list
AS_CURRENT: list
GATED: dict
GRID: list
