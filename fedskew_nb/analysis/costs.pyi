# Made from costs.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.core.method import Method
from torch import nn
__all__ = ['payload', 'flops']

def payload(net: nn.Module, method: Method | None=None) -> dict:
    """What one client sends in a round, the first one of client 0, beside a method's own extras.
    
    method: which names stay with the client; default: none"""
def flops(net: nn.Module, size: int, in_ch: int=3) -> int:
    """Operations for one image, by torch's counter: two for each multiply-add of a layer.
    
    size: side of the image, pixels"""
