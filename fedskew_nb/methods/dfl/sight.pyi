# Made from sight.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.core.net import Net
from fedskew_nb.data.images import Data
from fedskew_nb.data.suite import Client
from fedskew_nb.data.suite import Suite
from fedskew_nb.engine.federation import Federation
from torch import Tensor
__all__ = ['branch_probes']

def crowd(suite: Suite, n: int) -> tuple: ...
def features_by_branch(net: Net, d: Data) -> dict: ...
def named(X: Tensor, groups: Tensor) -> float: ...
def facts_of(fed: Federation, client: Client, images: Data, domain: Tensor, n: int) -> dict: ...
def branch_probes(fed: Federation, n: int=100, clients: int=3) -> dict:
    """What a linear probe reads off E_c and off E_s of one client's model, and their norms; mean over models.
    
    n: test images of a domain, at most
    clients: how many clients' models are asked, the first ones"""
PROBED: int
