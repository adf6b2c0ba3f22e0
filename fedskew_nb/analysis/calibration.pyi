# Made from calibration.py by tests/tools/stubs.py: `make export` writes it anew.
import pandas as pd
from torch import Tensor
__all__ = ['ece', 'reliability', 'reliability_diagram', 'at_temperature', 'temperature']

def ece(probs: Tensor, y: Tensor, bins: int=15) -> float:
    """Expected calibration error, by torchmetrics.
    
    probs: (N, n_classes): probabilities
    y: (N,): true classes
    bins: equal bins of confidence"""
def reliability(probs: Tensor, y: Tensor, bins: int=15) -> pd.DataFrame:
    """How often the most confident class is right, bin by bin."""
def reliability_diagram(bins: dict, ax=None):
    """How often a method is right against how sure it is; points are sized by their share of images.
    
    bins: {name: frame of conf, acc, share}"""
def at_temperature(p: Tensor, T: float) -> Tensor:
    """The probabilities, with their logits divided by T."""
def temperature(p: Tensor, y: Tensor) -> float:
    """The T at which the true classes of these images are most likely.
    
    p: (N, K) probabilities of validation images
    y: (N,) their classes"""
