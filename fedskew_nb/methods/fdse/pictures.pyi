# Made from pictures.py by tests/tools/stubs.py: `make export` writes it anew.
from matplotlib.axes import Axes
__all__ = ['fdse_picture', 'attention_picture']

def fdse_picture(piece: str='', ax: Axes | None=None) -> Axes:
    """One block of FDSE in one client, the head, and what the server does with each part.
    
    piece: lights one: erase, consensus, peers or consistency; default: all"""
def attention_picture(panels: dict, names: list):
    """Attention matrices side by side, in percent.
    
    panels: {title: (K, K) weights, rows sum to 1}
    names: of the clients"""
def hull_picture(angles, ax=None): ...
OWNER: dict
PIECES: dict
CLIENT_ROW: tuple
SERVER_ROW: tuple
STATISTICS_ROW: tuple
FDSE_WORDS: dict
