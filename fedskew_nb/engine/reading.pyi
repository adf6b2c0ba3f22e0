# Made from reading.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.engine.history import History
from typing import NamedTuple
from typing import Any as _Any
__all__ = ['VIEWS', 'MOMENTS', 'summary', 'Where', 'where_of', 'diff']

def summary(acc, n=None) -> dict:
    """What a table prints of one model on several domains; STD has ddof=1, and is nan for a single domain.
    
    acc: accuracy per domain, percent: a dict or a Series
    n: test images per domain, in the same order, for ALL; default: equally many"""

class Where(NamedTuple):
    """Which scores of a run: of whose model, when, by which answer."""
    view: str = 'global'
    moment: str = 'post_agg'
    path: str = ''  # of a method with several answers; '' is its headline

def where_of(o) -> Where:
    """A view, or all three, as a Where."""
def diff(one: History, other: History) -> dict:
    """What differs between two runs; empty frames where nothing does."""
SCORES: dict
TABLED: list
VIEWS: _Any
MOMENTS: _Any
