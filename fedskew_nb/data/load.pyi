# Made from load.py by tests/tools/stubs.py: `make export` writes it anew.
from contextlib import contextmanager
from fedskew_nb.data.suite import Suite
__all__ = ['SUITES', 'SIZES', 'embedded_suites', 'load_suite']

@contextmanager
def one_thread(): ...
def embedded_suites() -> dict:
    """Every function of this room that is marked as a suite."""
def load_suite(name: str, size: str='quick', data_seed: int=0, cache: bool=True) -> Suite:
    """An embedded suite, drawn on the CPU the first time it is asked for.
    
    name: of `SUITES`
    size: tiny: tests; quick: notebooks; standard: an hour on a CPU; full: for a GPU
    data_seed: draws the images; independent of the seed of a training run
    cache: keep what was drawn in the user's cache folder"""
SUITES: dict
SIZES: tuple
