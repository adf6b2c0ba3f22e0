# Made from probes.py by tests/tools/stubs.py: `make export` writes it anew.
import numpy as np
from fedskew_nb.core.net import Net
from fedskew_nb.engine.federation import Federation
__all__ = ['mask_viewer', 'feature_answers']

def flow_picture(today=..., ax=None): ...
def mask_parts(net, x) -> dict: ...
def painted(v, shape, cmap) -> np.ndarray: ...
def mask_viewer(nets, suite, i: int=0, ax=None):
    """An image per domain, its mask, the energy of its parts; below: mean of M, energy in % of f's.
    
    nets: a Net with F2DC's neck, or {domain: Net}
    suite: its test images are shown
    i: which of each domain"""
def feature_answers(net: Net, suite, n: int=200) -> dict:
    """Accuracy of each of F2DC's features, through the main head and through m (Table 7); {} without its neck.
    
    net: a net with F2DC's neck
    n: images per domain"""
def f2dc_measures(fed: Federation) -> dict: ...
F2DC_BOXES: dict
F2DC_ARROWS: list
LABELS: tuple
MASK_PARTS: dict
