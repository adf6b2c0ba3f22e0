# Made from comparison.py by tests/tools/stubs.py: `make export` writes it anew.
import pandas as pd
from fedskew_nb.analysis.stats import Interval
from fedskew_nb.analysis.table import Table
from fedskew_nb.engine.history import History
from fedskew_nb.engine.reading import Where
__all__ = ['DEALS', 'deal_of', 'Comparison']

def deal_of(h: History) -> tuple:
    """(suite, deal) of a run."""

class Comparison:
    """Runs of several methods over several seeds, read together."""
    about: dict
    families: dict
    histories: list
    def __init__(self, histories) -> None: ...
    def __len__(self): ...
    def __repr__(self): ...
    @property
    def suites(self) -> list:
        """The names of its suites."""
    @property
    def methods(self) -> list:
        """The names of its methods."""
    @property
    def seeds(self) -> list:
        """All its seeds, in order."""
    def scores(self, where='global') -> pd.DataFrame:
        """The score of record of every run that has this view; read once.
        
        where: a view, or a Where; runs without its path give their headline"""
    def paired(self, suite: str, one: tuple, other: tuple=..., where='global', column: str='AVG') -> Interval | None:
        """one − other by seed; AVG no surer than the test images, others by seeds alone.
        
        one: (deal, method)
        where: a view, or a Where
        column: AVG, STD, ALL or worst"""
    def skew_cost(self, where='global') -> dict:
        """What the domain skew costs FedAvg, per suite that has the IID deal: {suite: interval}."""
    def differences(self, where='global', suite: str | None=None) -> pd.DataFrame:
        """Points of AVG above FedAvg on the skewed deal; an empty frame without FedAvg.
        
        suite: default: the first"""
    def statistics(self, where='global', suite: str | None=None) -> pd.DataFrame:
        """Mean and standard error over seeds, and the paired difference to FedAvg.
        
        where: a view, or a Where
        suite: one suite; default: all of them"""
    def table(self, where='global', suite: str | None=None) -> Table:
        """Mean ± standard error over seeds of AVG, STD and worst domain, with paired differences to FedAvg.
        
        where: a view, or a Where: a table never mixes them; `F2DC [client]` names the path
        suite: one suite; needed where the comparison holds several"""
    def rows(self, last: bool=False) -> pd.DataFrame:
        """Every stored score as a tidy table, run columns first; only the checks of record with `last`."""
    def domains(self, where='global', suite: str | None=None) -> Table:
        """Accuracy per domain, the score of record, mean ± standard error over seeds."""
    def csv(self, path=None) -> str:
        """Every score of every round as CSV text, and into `path` if given."""
    def save(self, path, **about) -> None:
        """All histories in one `.json.xz` file, the same bytes each time; `about` may say when they were made."""
    def overview(self, where='global') -> Table:
        """Methods × suites: AVG ± standard error (difference to FedAvg; its 95 % interval)."""
    def at(self, round: int) -> Comparison:
        """Every run as if it had ended after this round: all tables and verdicts can be asked of it."""
    def rungs(self, where='global', suite: str | None=None) -> Table:
        """Methods × rungs: AVG, difference to FedAvg, and what was still rising."""
    def story(self, suite: str | None=None) -> dict:
        """Is there a skew, does federating pay, who is ahead, what it costs, what to try next.
        
        suite: default: the first"""

def is_scored(h: History, where: Where) -> bool: ...
def one_kind(runs: list) -> None: ...
def scores_at(cmp, where: Where) -> pd.DataFrame: ...
def title_of(where: Where) -> str: ...
def sentence(suite: str, i: Interval) -> str: ...
def run_notes(cmp, suite: str, where: Where) -> list: ...
def write_whole(path, data: str | bytes) -> None: ...
DEALS: dict
TITLES: dict
WHEN: dict
