# Made from probes.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.core.net import Net
from fedskew_nb.data.images import Data
from fedskew_nb.data.suite import Suite
from fedskew_nb.engine.federation import Federation
from torch import Tensor
__all__ = ['own_features', 'own_silhouettes', 'erased_features', 'erased_means', 'domain_probe', 'agreement_facts', 'look_inside']

def home_features(nets: dict, suite: Suite, n: int) -> tuple: ...
def own_features(fed: Federation, n: int=60) -> tuple:
    """Features of `n` test images per domain, each through the model of its own client."""
def own_silhouettes(fed: Federation, n: int=60) -> dict:
    """Do raw features lie by class, and do they lie by domain? (FDSE, Fig. 4 as numbers)"""
def erased_features(net: Net, x: Tensor, fresh: bool=False) -> dict:
    """What every BN_DFE gets, which itself stays as it is; all else is in eval.
    
    x: normalised images
    fresh: BN_DSE normalises by this batch, and notes its statistics"""
def erased_means(net: Net, data: Data) -> list:
    """Channel means of what every BN_DFE gets: the erased features, pooled."""
def domain_probe(fed: Federation, n: int=100) -> dict:
    """Can the domain be read off the erased features? Each domain goes through its own model (FDSE, Sec. 4.2).
    
    n: images per domain"""
def agreement_facts(fed: Federation) -> dict:
    """From the server's notes: mean ‖u‖, the least cosines of a client with step and mean, all notes."""
def look_inside(fed: Federation) -> dict:
    """Every number of this page; `own_restated` is the AVG of the clients' models after AdaBN."""
