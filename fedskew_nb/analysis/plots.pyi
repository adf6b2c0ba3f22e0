# Made from plots.py by tests/tools/stubs.py: `make export` writes it anew.
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from typing import Any as _Any
__all__ = ['plot_curves', 'seed_points', 'skew_cost_bars', 'client_domain_heatmap', 'radar', 'domain_grid', 'partition_bars']

def by_name(histories) -> dict: ...
def spread(y, gap: float) -> np.ndarray: ...
def name_lines(ax, gap=0.075) -> None: ...
def plot_curves(histories, metric: str='AVG', where='global', ax: Axes | None=None) -> Axes:
    """One thick line per method, its mean; every seed a thin one.
    
    histories: a History or several; runs of one name are seeds
    metric: AVG, STD, ALL, worst, or a domain
    where: a view, or a Where"""
def seed_points(values, unit: str='', bars: bool=False, ax: Axes | None=None) -> Axes:
    """One row per name: every seed a point, the mean a line, the 95 % interval through it.
    
    values: {name: one value per seed}, or a DataFrame with a column per name
    unit: written on the axis
    bars: a bar from 0 to the mean"""
def finals(histories, metric='AVG', where='global') -> pd.DataFrame: ...
def skew_cost_bars(scores, ax: Axes | None=None) -> Axes:
    """Points of accuracy that a method loses to itself on the IID deal, paired by seed.
    
    scores: Histories, or a DataFrame: AVG in %, a column per name, a row per seed"""
def client_domain_heatmap(acc, own=None, lo=None, hi=None, ax: Axes | None=None) -> Axes:
    """Accuracy of each client's model on each domain.
    
    acc: DataFrame in percent: a row per client (or method), a column per domain
    own: {row: its own domain}, framed
    lo, hi: ends of the colour scale; default: of the data"""
def radar(scores, low: float=0, ax: Axes | None=None) -> Axes:
    """One polygon per method, one spoke per domain.
    
    scores: {method: {domain: accuracy in percent}}
    low: accuracy in the middle
    ax: polar"""
def mosaic(rows, gap: int=2) -> np.ndarray: ...
def image_grid(ax, rows, columns, names, gap=2) -> Axes: ...
def domain_grid(suite, n: int=6, ax: Axes | None=None) -> Axes:
    """One picture per domain (row) and class (column), the first of each in the test set.
    
    suite: with `classes` and `tests`: {domain: data with .x and .y}
    n: columns: the first n classes
    ax: drawn here, or in a figure of its own"""
def partition_bars(suite, ax: Axes | None=None) -> Axes:
    """One bar per client, in the colour of its domain, cut into classes.
    
    suite: a Suite, or its `partition()`: client, domain, then one column of counts per class"""
SHADE: _Any
