# Made from diagnose.py by tests/tools/stubs.py: `make export` writes it anew.
import pandas as pd
from fedskew_nb.analysis.comparison import Comparison
from fedskew_nb.analysis.stats import Interval
from fedskew_nb.analysis.table import Table
from fedskew_nb.core.names import Recipe
from fedskew_nb.tools.questions import Found
from functools import cached_property
from pathlib import Path
from typing import Any as _Any
__all__ = ['Diagnosis', 'diagnose']


class Diagnosis:
    """What lies in a set of images, and what training on it has told."""
    cmp: Comparison | None
    domains: _Any
    found: Found
    n: dict
    def __init__(self, found: Found, cmp: Comparison | None=None) -> None: ...
    @cached_property
    def rights(self) -> dict: ...
    @property
    def effects(self) -> dict:
        """All differences."""
    def by_domain(self, effect: str) -> dict:
        """An effect in each domain."""
    def levels(self) -> pd.DataFrame:
        """Accuracy, mean over seeds."""
    def measured(self, key: str) -> list:
        """What the runs of each seed have kept under this name."""
    def swapped(self) -> dict:
        """Labels that the models of other domains exchange."""
    def suspected(self) -> list:
        """Labels that they may exchange."""
    def rising(self) -> dict:
        """What won more than a point in the last quarter of the rounds."""
    def on_gain(self) -> str:
        """Does federating pay?"""
    def on_cost(self) -> str:
        """What does the skew cost?"""
    def on_cures(self) -> str:
        """What do BatchNorm statistics give back?"""
    def on_domains(self) -> str:
        """Who pays?"""
    def on_background(self) -> str:
        """What does the background give away?"""
    def budgets(self) -> str:
        """How long, how often, at which rate."""
    def answers(self) -> list:
        """What was found and what the runs say, in sentences."""
    def data_advice(self):
        """What to mend before any training."""
    def label_advice(self):
        """Labels of a domain that the others exchange, or seem to: a look costs nothing."""
    def more_evidence(self) -> tuple:
        """What would tell 5 points from 0."""
    def cure(self) -> tuple:
        """What instead of FedAvg?"""
    def training_advice(self):
        """From runs."""
    def advice(self) -> list:
        """What to try."""
    def effect_table(self) -> Table:
        """All differences."""
    def domain_table(self) -> Table:
        """The skew cost and the federation gain of each domain."""
    def tables(self) -> list:
        """Found; levels; differences; domains."""
    def __repr__(self) -> str: ...
    def as_dict(self) -> dict:
        """Everything that was found and told, for a file."""
    def draw(self):
        """All differences, seed by seed."""
    def figures(self) -> dict: ...
    def html(self) -> str:
        """The page."""
    def save(self, out) -> Path:
        """Write the page and everything in it; where the page lies."""

def points(i: Interval) -> str: ...
def listed(words: list, most: int=4) -> str: ...
def as_sentence(do: str, why: str, gain: Interval | None) -> str: ...
def asset(name: str) -> str: ...
def examined(recipe: Recipe, seeds: list, on_found, **how) -> Diagnosis: ...
def diagnose(suite, seeds=3, out=None, jobs=1, on_found=None, *, size='quick', executor=None, progress=None, on_run=None, rates=None, model='small_conv', house=None, device='auto', keep_models=False, **kwargs) -> Diagnosis:
    """What lies in images, what federating gains, what their skew costs, and what to try first.
    
    suite: a folder(…), a name, a Suite, a function of the seed
    seeds: or which
    out: folder for runs, diagnosis.html and diagnosis.json
    jobs: processes side by side
    on_found: called with what was found, before anything is trained
    kwargs: rounds, model, device and so on"""
EFFECTS: dict
CURES: dict
GAIN: dict
LACKING: str
SHORT: dict
NOTES: list
