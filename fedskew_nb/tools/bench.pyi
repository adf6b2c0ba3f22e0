# Made from bench.py by tests/tools/stubs.py: `make export` writes it anew.
import pandas as pd
import torch
from dataclasses import dataclass
from fedskew_nb.analysis.table import Table
from fedskew_nb.data.suite import Suite
from fedskew_nb.engine.federation import Federation
from typing import Any as _Any
__all__ = ['WORKS', 'BENCH', 'Work', 'BareLoop', 'race', 'read_bench', 'run_bench', 'bench_frame', 'bench_source', 'bench_table']

def noise_suite(clients: int=10, images: int=512, tests: int=2, size: int=32, n_classes: int=10) -> Suite: ...

@dataclass(frozen=True)
class Work:
    """So many clients with so many images of 3×32×32, and who learns them how."""
    clients: int
    images: int  # of each for training, and `tests` for testing
    batch: int
    net: str  # as on the command line
    tests: int = 2
    def suite(self) -> Suite: ...
    def make(self): ...
    @property
    def steps(self) -> int: ...
    def shrunk(self):
        """Very small, to see that everything works."""
    def __str__(self): ...
    def federation(self, suite: Suite, method: str='FedAvg', **kw) -> Federation:
        """The other side, with the same clients, images and batches."""


class BareLoop:
    """Client after client trains one model, and nothing is sent."""
    batch: _Any
    gen: torch.Generator
    net: _Any
    opt: _Any
    tests: list
    train: list
    def __init__(self, work: Work, suite: Suite, device='cpu') -> None: ...
    def one_round(self) -> None: ...
    def score(self, batch: int=64) -> int:
        """How many test images it gets right."""

def foreign_seconds(stat='/proc/stat') -> float | None: ...
def foreign_cores(begun: tuple) -> float | None: ...
def seconds_of(f, clock=...) -> float: ...
def spread_of(values) -> dict: ...
def ratios_of(seconds: dict, to: str) -> dict: ...
def race(sides: dict, rounds: int=5, to: str='bare', clock=...) -> dict:
    """Let all sides run once per round, another one first each time.
    
    sides: {name: function}
    rounds: counted ones, after one as a warm-up
    to: whose time is 1"""
def processor_name() -> str: ...
def machine_facts(device='cpu') -> dict: ...
def ask_round(side): ...
def ask_scores(side): ...
def ask_both(side) -> None: ...
def bench_row(label: str, measured=None, unit: str='× bare loop', target: float | None=None, note: str='') -> dict: ...
def against_bare(name: str, pairs: int=5, device='cpu', tiny: bool=False) -> dict: ...
def read_bench(path) -> dict:
    """A stored measurement."""
def run_bench(jobs: dict, out=None, device='cpu', **facts) -> dict:
    """One item after the other, stored after each.
    
    jobs: {name of an item: function, which returns its rows and more}
    out: JSON file; an older one of the same machine is added to"""
def bench_frame(bench: dict) -> pd.DataFrame:
    """All rows of a measurement, with the item they belong to and the verdict."""
def bench_source(bench: dict, names=None) -> str:
    """Where, when and how these items were measured, and how much others did meanwhile."""
def short_number(v: float) -> str: ...
def bench_table(bench: dict, names=None, caption: str='Measured') -> Table:
    """Medians with the lowest and the highest, targets, and whether they were reached."""
WORKS: dict
BENCH_ITEMS: dict
BENCH: dict
