# Made from claims.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.analysis.claims import Claim
from fedskew_nb.analysis.claims import gain
from fedskew_nb.core.names import Recipe
from fedskew_nb.engine.history import History
from typing import Any as _Any

def finds(h: History, score: str, measure: str) -> float: ...

@dataclass(frozen=True)
class finds_more:
    """What `one` finds in the first run less what `other` finds in the second, in points of AUROC."""
    what: str  # 'noise', 'wrong', 'unknown classes'
    one: str = 'u'
    other: str = ...
    spare: float = 0.0  # points by which it may be worse
    def __call__(self, a, b): ...


@dataclass(frozen=True)
class finds_at_all:
    """Points of AUROC above chance."""
    what: str
    score: str = 'u'
    def __call__(self, a, b): ...

def above(id: str, says: str, other: str, one='RFedDis', read=...) -> Claim: ...
def few(lr: float, **row) -> dict: ...
PAPER: str
EVIDENCE: str
OWN_DOMAIN: gain
TRAINED: gain
SOFTMAX: str
SCALED: str
SUM: str
TWO: str
HERE: dict
HEADLINE: _Any
HEADLINES: list
KEPT: str
SECOND: str
ALONE: str
AVERAGE: str
CUMULATIVE: str
AS_RELEASED: str
CONTROLS: list
FURTHER: list
CLAIMS: _Any
TUNED: str
MEASURE: _Any
AT: dict
GRID: list
STEPS: dict
MANY: Recipe
