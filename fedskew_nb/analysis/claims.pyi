# Made from claims.py by tests/tools/stubs.py: `make export` writes it anew.
import pandas as pd
from dataclasses import dataclass
from fedskew_nb.analysis.comparison import Comparison
from fedskew_nb.analysis.table import Table
from fedskew_nb.engine.history import History
from fedskew_nb.engine.reading import Where
from typing import Callable
from typing import Any as _Any
__all__ = ['Claim', 'accuracy', 'gain', 'measured', 'within', 'runs_of', 'verdicts', 'deciding', 'of_methods', 'budget_of', 'claims_table', 'seeds_table', 'claims_of', 'stored_claims']


@dataclass(frozen=True)
class Claim:
    """One comparison that can support or contradict a sentence of a paper."""
    id: str  # 'F2DC-09a'
    says: str
    source: str  # where
    one: str = ''  # a method, or FedAvg/iid
    other: str | tuple = ''  # one or several others, or the same again
    read: Callable | None = None  # (run of one, of other) → number; positive: it holds
    margin: float | None = None  # of "makes no difference"
    needed: float | None = None  # least effect
    headline: bool = False  # named beforehand
    suites: tuple = ...  # a tuple in it: their mean
    path: str = ''  # of a method with several answers
    rounds: int | None = None  # of its runs; default: the shortest
    pending: str = ''  # needs this first
    instead: str = ''  # of a verdict: 'not tested'
    @property
    def methods(self) -> tuple:
        """The methods that it speaks of."""
    def variant(self, name: str, **changes) -> Claim:
        """The same sentence of a variant of the method, or at another budget; no headline."""

def accuracy(h: History, column: str='AVG', where='global') -> float:
    """AVG, STD, ALL or worst of the last round, percent; 0 for a run that stopped."""

@dataclass(frozen=True)
class gain:
    """one − other in a score; `sign=-1` where less is better."""
    column: str = 'AVG'
    sign: int = 1
    where: str | Where = 'global'
    def __call__(self, a, b): ...


@dataclass(frozen=True)
class measured:
    """one − other in a stored measure; `sign=-1` where less is better."""
    name: str
    sign: int = 1
    def __call__(self, a, b): ...


@dataclass(frozen=True)
class within:
    """One measure less another, of the same run."""
    more: str
    less: str
    def __call__(self, a, b): ...

def on_path(h: History, path: str) -> History: ...
def runs_of(cmp: Comparison, method: str, suite: str, deal: str='skew', rounds: int | None=None) -> dict:
    """The runs of one method on one suite.
    
    method: as `history.setting['method']` has it, or FedAvg/iid
    rounds: where there are runs of several lengths; default: the shortest"""
def on_suite(c: Claim, cmp: Comparison, suite: str) -> dict: ...
def seed_values(c: Claim, cmp: Comparison, suite) -> list: ...
def chance(c: Claim, cmp: Comparison) -> float: ...
def family_p(family: list, cmp: Comparison) -> dict: ...
def judged(c: Claim, suite, values: list, together: dict) -> dict: ...
def why_none(c: Claim) -> str: ...
def group_name(s) -> str: ...
def verdicts(claims: list, cmp: Comparison | None, family: list | None=None) -> pd.DataFrame:
    """Every verdict that these runs can give.
    
    cmp: their runs
    family: claims under Holm's rule; default: these"""
def rate_of(settings: list) -> str: ...
def deciding(claims: list, cmp: Comparison) -> Comparison:
    """The runs as long as these claims want them; all where one of them does not say, or none is."""
def of_methods(claims: list, cmp: Comparison) -> Comparison:
    """The runs of the methods that these claims name."""
def budget_of(cmp: Comparison) -> str:
    """Rounds × local epochs and net of most runs, clients per domain, and how the rate was chosen."""
def by_chance(d: pd.DataFrame) -> str: ...
def verdict_cells(r) -> dict: ...
def in_one_cell(cells: pd.Series) -> str: ...
def verdict_text(c: Claim, cmp: Comparison, suite='', family=None) -> str: ...
def claims_table(claims: list, cmp: Comparison | None, title: str='Claims', family: list | None=None) -> Table:
    """The verdicts as a table, positive where the paper says so.
    
    family: as in verdicts"""
def seeds_table(claims: list, pilots: Comparison, most: int=20) -> Table:
    """How many seeds each claim needs for 80 % power, by its spread on the pilot seeds.
    
    claims: with `needed`
    pilots: their runs on pilot seeds
    most: seeds we can pay"""
def claims_of(which: str='') -> dict:
    """The claims of all papers, or some of them.
    
    which: the beginning of an id, F2DC or FDSE-07; * stands for anything, F2DC*shared"""
def stored_claims(paper: str) -> Comparison | None:
    """The shipped runs that decide a paper's claims, `assets/runs/claims-PAPER.json.xz`; None without."""
VERDICT_COLUMNS: _Any
NEEDED: str
STARRED: str
