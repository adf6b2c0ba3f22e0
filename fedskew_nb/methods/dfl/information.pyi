# Made from information.py by tests/tools/stubs.py: `make export` writes it anew.
from torch import Generator
from torch import Tensor
__all__ = ['dfl_picture', 'jsd', 'new_critic', 'critic', 'standardised', 'shared_information']

def dfl_picture(today=..., ax=None):
    """DFL inside one client, from an image to its loss h_k, with today's piece filled.
    
    today: names of the parts to fill: 'E_s', 'T_c', 'E^j_s', …"""
def jsd(t_joint: Tensor, t_product: Tensor) -> Tensor:
    """Î, a lower bound of twice the Jensen–Shannon divergence of joint and product.
    
    t_joint: (B,) the critic on pairs (a, b) that belong together
    t_product: (B,) the critic on pairs (a, b') that do not"""
def new_critic(d_a: int, d_b: int, hidden: int, gen: Generator) -> dict:
    """The tensors of a fresh critic T: d_a+d_b → hidden → hidden → 1.
    
    d_a, d_b: features of a and of b
    hidden: width of both hidden layers
    gen: on the CPU"""
def critic(p: dict, a: Tensor, b: Tensor) -> Tensor:
    """T(a, b): above 0 where the critic takes the pair for one of the joint.
    
    p: the tensors of a critic
    a, b: (B, d_a), (B, d_b), in the dtype of p"""
def standardised(z: Tensor, floor: float=1.0, detach: bool=False, eps: float=1e-08) -> Tensor:
    """Features of mean 0, of a size that no rarely firing unit blows up.
    
    z: (B, d)
    floor: φ: this share of the mean variance is added to every variance
    detach: no gradient through means and variances
    eps: so that a batch without any variance gives 0"""
def shared_information(p: dict, a: Tensor, b: Tensor, shift: int, floor: float=1.0, detach: bool=False) -> Tensor:
    """Î(a, b): what the critic finds two standardised features of one batch to share.
    
    p: the critic's tensors
    a, b: (B, d_a), (B, d_b): row i of both comes from image i; B of 2 or more
    shift: 1 … B−1: a is paired with the b of so many rows before
    floor: see standardised
    detach: see standardised"""
DFL_BOXES: dict
DFL_ARROWS: list
DFL_SIGNS: dict
