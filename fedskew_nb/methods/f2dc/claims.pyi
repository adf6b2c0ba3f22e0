# Made from claims.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.analysis.claims import gain
from fedskew_nb.engine.history import History
from typing import Any as _Any

def letter(changes): ...
def sooner(a: History, b: History) -> float: ...
def whole_over_parts(a: History, b: History) -> float: ...
def of_letter(c): ...
def plugged(k, m, says, source): ...
def stressed(c, name='', **changes): ...
def averaged(c): ...
PAPER: str
EVIDENCE: str
LETTER: str
DC_LETTER: str
EMOJI: tuple
UNEVEN_EMOJI: tuple
AVG: gain
STD: gain
LOST: gain
GATE: dict
ACCURATE: list
PROBED: list
OF_LETTER: list
BOTH: tuple
UNEVEN: tuple
FEDPROX_DC: _Any
FEDAVG_DC: _Any
MODULES: list
OTHERS: tuple
PLUGGED: list
AGGREGATION: list
MUCH_1: _Any
MUCH_2: _Any
SWEEPS: list
SEEN: list
STRESS: _Any
BACKBONE: list
SHARED: dict
RUN_SHARED: list
UNDER_STRESS: list
CLAIMS: list
MEASURE: _Any
QUICK: dict
BUDGET: dict
AT: _Any
TUNED: str
GRID: list
ONE_OFF: list
FEW: list
MORE: _Any
SIZES: list
OFF: list
WITHOUT: tuple
AVERAGED: list
BASE: list
DEALT: list
PLUGS: list
