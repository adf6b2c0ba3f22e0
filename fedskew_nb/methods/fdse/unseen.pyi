# Made from unseen.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.core.net import Net
from fedskew_nb.data.suite import Suite
from fedskew_nb.engine.federation import Federation
from torch import Tensor
__all__ = ['adapt_unseen', 'unseen_facts']

def adapt_unseen(fed: Federation, x_unlabelled: Tensor, epochs: int=5, lr: float | None=None, batch: int=64, transductive: bool=False) -> Net:
    """A model for a domain that no client had; without erasers it is AdaBN.
    
    x_unlabelled: (N, 3, H, W) uint8 images of the new domain
    epochs: passes over them; 0: statistics only
    lr: default: the federation's
    batch: images
    transductive: they may be the test set's"""
def the_one(suite: Suite) -> tuple: ...
def unseen_facts(fed: Federation) -> dict:
    """Accuracy on the held-out domain: as trained; AdaBN; for FDSE BN_DSE alone re-estimated, erasers adapted."""
def fdse_measures(fed: Federation) -> dict: ...
