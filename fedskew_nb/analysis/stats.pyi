# Made from stats.py by tests/tools/stubs.py: `make export` writes it anew.
import pandas as pd
__all__ = ['t_interval', 'effect_shown', 'seeds_for', 'resolved', 'verdict', 'p_value', 'holm', 'judge', 'verdict_points']

def t_interval(x, level: float=0.95) -> dict:
    """Mean of a few seeds with its standard error and Student's t-interval.
    
    x: one number per seed
    level: how many such intervals in 100 shall hold the true mean"""
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
def resolved(i: dict) -> bool:
    """Does the interval leave 0 out?"""
def verdict(i: dict) -> str:
    """`resolved`, or in plain words that it is not."""
def p_value(i: dict, needed: float=0.0) -> float:
    """Two-sided p of the paired t-test.
    
    i: of t_interval
    needed: a mean below 0 counts only by what lies below −needed"""
def holm(p) -> list:
    """Each p of a family as Holm adjusts it."""
def word_for(lo: float, hi: float, margin: float | None=None, needed: float | None=None) -> str: ...
def judge(values, margin: float | None=None, needed: float | None=None) -> dict:
    """Verdict of one comparison.
    
    values: one number per seed; positive speaks for the claim
    margin: of an equivalence
    needed: the smallest effect that counts"""
def difference_text(n: int, mean: float, lo: float, hi: float, showable: float, verdict: str, **other) -> str: ...
def verdict_points(d: pd.DataFrame):
    """Mean difference in units of half its interval, cut at ±5; filled: the first suite."""
SMALLER: str
BELOW: str
LOOK: dict
