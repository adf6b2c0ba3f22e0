# Made from stats.py by tests/tools/stubs.py: `make export` writes it anew.
import pandas as pd
from dataclasses import dataclass
__all__ = ['span', 'Interval', 't_interval', 'effect_shown', 'seeds_for', 'verdict', 'p_value', 'holm', 'judge', 'verdict_points']

def span(lo: float, hi: float, digits: int=1) -> str:
    """`-4.1 to 13.7`, or nothing for nan."""

@dataclass(frozen=True)
class Interval:
    """The mean of a few seeds, and how far it is known."""
    values: tuple  # one number per seed
    mean: float  # of them
    se: float  # its standard error; nan for a single seed, as lo and hi are
    lo: float  # lower end
    hi: float  # upper end
    @property
    def n(self) -> int: ...
    @property
    def alike(self) -> bool: ...
    def as_dict(self) -> dict:
        """For a file, without the seeds' values."""
    def __format__(self, how: str) -> str:
        """`2.8 (1.1 to 4.6)`; how: + for a sign, .2 for digits, then words behind the mean."""
    def __str__(self) -> str: ...
    def __getitem__(self, name: str):
        """As of the dict that it was in 0.1; until 0.3."""
    def sign(self, p: float | None=None) -> int:
        """On which side of 0 the mean is.
        
        p: by Holm's rule; default: the interval alone decides"""

def t_interval(x, level: float=0.95, floor: float=0.0) -> Interval:
    """Mean of a few seeds with its standard error and Student's t-interval.
    
    x: one number per seed
    level: how many such intervals in 100 shall hold the true mean
    floor: no smaller standard error: what the test images leave, where that is known"""
def power_of(effect: float, n: int, alpha: float=0.05) -> float: ...
def effect_shown(sd: float, n: int, power: float=0.8, alpha: float=0.05) -> float:
    """The true effect that n paired seeds show with this power.
    
    sd: standard deviation of the paired differences
    n: seeds
    power: in this share of cases
    alpha: 1 − level of the interval"""
def seeds_for(sd: float, needed: float, most: int=20, power: float=0.8, alpha: float=0.05) -> int | None:
    """How many seeds show an effect of `needed` with this power.
    
    sd: standard deviation of the paired differences, from pilot seeds
    needed: the smallest effect that counts
    most: seeds that can be paid
    alpha: 1 − level of the interval"""
def verdict(i: Interval, p: float | None=None) -> str:
    """`resolved`, or in plain words that it is not.
    
    p: after Holm"""
def p_value(i: Interval, needed: float=0.0) -> float:
    """Two-sided p of the paired t-test.
    
    needed: a mean below 0 counts only by what lies below −needed"""
def holm(p) -> list:
    """Each p of a family as Holm adjusts it."""
def word_for(lo: float, hi: float, margin: float | None=None, needed: float | None=None) -> str: ...
def judge(values, margin: float | None=None, needed: float | None=None) -> dict:
    """Verdict of one comparison.
    
    values: one number per seed; positive speaks for the claim
    margin: of an equivalence
    needed: the smallest effect that counts"""
def adjusted(intervals) -> list: ...
def difference_text(n: int, values: list, showable: float, verdict: str, **other) -> str: ...
def verdict_points(d: pd.DataFrame):
    """Mean difference in units of half its interval, cut at ±5; filled: the first suite."""
SMALLER: str
BELOW: str
LOOK: dict
