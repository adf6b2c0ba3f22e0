# Made from evidence.py by tests/tools/stubs.py: `make export` writes it anew.
from torch import Tensor
__all__ = ['evidence', 'vacuity', 'beliefs', 'exact', 'dirichlet_kl', 'evidential_loss']

def evidence(z: Tensor) -> Tensor:
    """e = softplus(z), Eq. 4.
    
    z: (…, K) logits, K of 2 or more"""
def vacuity(e: Tensor) -> Tensor:
    """u = K/S, Eq. 6: the share of belief that nothing speaks for.
    
    e: (…, K) evidence"""
def beliefs(e: Tensor) -> tuple:
    """Belief masses b = e/S and the vacuity u; together they sum to 1 (Eq. 6).
    
    e: (…, K) evidence"""
def exact(v: Tensor) -> Tensor:
    """In float64, where the device has it."""
def dirichlet_kl(alpha: Tensor) -> Tensor:
    """KL(Dir(α) ‖ Dir(1)), Eq. 11 with the product of Γ that belongs there.
    
    alpha: (…, K), 1 or more"""
def evidential_loss(e: Tensor, y: Tensor, lam: float=0.0) -> Tensor:
    """ψ(S) − ψ(α_y) + λ KL(Dir(α̃) ‖ Dir(1)), Eqs. 9–12.
    
    e: (B, K) evidence
    y: (B,) classes
    lam: λ_u, the weight of the KL divergence, Eq. 12"""
