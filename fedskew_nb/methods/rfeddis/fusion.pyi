# Made from fusion.py by tests/tools/stubs.py: `make export` writes it anew.
from torch import Tensor
__all__ = ['conflict', 'fuse', 'average', 'cumulative', 'conflict_aware']

def conflict(a: Tensor, b: Tensor) -> Tensor:
    """C = Σ b_i b_j over i ≠ j: belief that the two give to different classes (Eq. 8).
    
    a: (…, K) evidence of one
    b: (…, K) evidence of the other"""
def fuse(*es: Tensor) -> Tensor:
    """Dempster's reduced rule as evidence: 1 + e/K = Π (1 + e_v/K).
    
    es: (…, K) evidence, of as many opinions as there are"""
def average(*es: Tensor) -> Tensor:
    """The mean of the evidence: more opinions of one kind make nobody surer.
    
    es: (…, K) evidence"""
def cumulative(*es: Tensor) -> Tensor:
    """The sum of the evidence: counts of separate observations, put together.
    
    es: (…, K) evidence"""
def conflict_aware(a: Tensor, b: Tensor) -> Tensor:
    """Dempster's rule without the division: conflict becomes uncertainty, u = u_a u_b + C.
    
    a: (…, K) evidence of one
    b: (…, K) evidence of the other"""
