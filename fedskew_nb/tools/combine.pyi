# Made from combine.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.analysis.table import Table
__all__ = ['refusal']

def tiny_net(): ...
def refusal(one, other, net=None) -> str:
    """Why two methods do not combine, in one sentence; nothing is trained.
    
    one, other: methods, or their names
    net: default: a small net of three convolutions"""
def combines(method, others=..., net=None) -> Table: ...
def stored_pairs() -> dict: ...
PAIRS: str
PAIRS_SHAPE: dict
