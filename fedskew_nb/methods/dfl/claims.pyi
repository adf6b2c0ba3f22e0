# Made from claims.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.analysis.claims import Claim
from fedskew_nb.analysis.claims import gain
from fedskew_nb.core.names import Recipe
from fedskew_nb.data.suite import Suite
from fedskew_nb.engine.federation import Federation
from fedskew_nb.engine.history import History
from typing import Any as _Any

def more_with_few(a: History, b: History) -> float: ...
def own_curve(h: History) -> dict: ...
def arrives(h: History, goal: float) -> int: ...
def fewer_rounds(a: History, b: History) -> float: ...
def diverged(h: History) -> bool: ...
def diverges_more(a: History, b: History) -> float: ...
def above(id: str, says: str, other: str, one='DFL', read=..., suites=...) -> Claim: ...
def dfl_measures(fed: Federation) -> dict: ...
def few(lr: float, **row) -> dict: ...
def two_a_hue(alpha: float, data_seed: int) -> Suite: ...
PAPER: str
EVIDENCE: str
OWN_HUE: gain
EVERY_HUE: gain
FEW: int
FEW_DIGITS: Recipe
EQUAL: str
SHARED: str
LENT: str
NO_MI: str
ONE_STAGE: str
OWN: str
STABLE: str
HERE: dict
HEADLINE: _Any
BOTH: tuple
HEADLINES: list
AVERAGED: _Any
AVERAGED_ONE: _Any
CONTROLS: list
FURTHER: list
CLAIMS: _Any
WHOLE: tuple
LONGER: list
TUNED: str
STEPS: dict
AT: _Any
GRID: list
OTHERS: list
BY_BATCH: str
TURNS: list
EVEN: _Any
MIXED: _Any
