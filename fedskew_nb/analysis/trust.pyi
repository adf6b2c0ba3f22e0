# Made from trust.py by tests/tools/stubs.py: `make export` writes it anew.
import pandas as pd
from fedskew_nb.data.suite import Suite
from fedskew_nb.engine.federation import Federation
from torch import Tensor
__all__ = ['noisy', 'strangers', 'uncertainty', 'answers_of_client', 'together', 'auroc', 'risk_coverage', 'risk_curves', 'density', 'density_plot']

def noisy(x: Tensor, suite: Suite, sigma: float=1.5, seed=0) -> Tensor:
    """x + N(0, σ²) on the normalised images.
    
    x: (N, 3, H, W) uint8
    suite: whose mean and std normalise
    sigma: of the noise, in units of a normalised image"""
def strangers(suite: Suite, n: int=200) -> Tensor | None:
    """Images of classes that a suite does not know; None where every embedded suite has one of its classes.
    
    n: images"""
def uncertainty(p: Tensor, logits: Tensor | None=None, u: Tensor | None=None) -> dict:
    """Every uncertainty that can be read off these answers.
    
    p: (N, K) probabilities
    logits: (N, K), for the energy
    u: (N,) vacuity, where the model gives one"""
def answers_of_client(fed: Federation, client: int, images: Tensor) -> dict:
    """What a client's model says of images, on the CPU, as `uncertainty` takes it.
    
    images: uint8, or normalised floats"""
def together(parts: list) -> dict:
    """The answers of several models, one below the other."""
def auroc(score: Tensor, positive: Tensor) -> float:
    """In which share of the pairs is the positive one less sure?
    
    score: (N,) how unsure
    positive: (N,) bool: wrong, or foreign"""
def risk_coverage(score: Tensor, wrong: Tensor) -> pd.DataFrame:
    """The share of wrong answers among the surest 1, 2, …, N; the mean of `risk` is the AURC.
    
    score: (N,) how unsure
    wrong: (N,) bool"""
def risk_curves(curves: dict, ax=None):
    """Wrong answers in percent against the share of images that are answered.
    
    curves: {method: frame of coverage and risk}"""
def density(score: Tensor, bins: int=25) -> list:
    """How often each value occurs, as a histogram over 0 … 1.
    
    score: (N,) in 0 … 1"""
def density_plot(heights: dict, name: str='u', ax=None):
    """Densities of an uncertainty on several sets of images.
    
    heights: {set: heights}
    name: of the uncertainty"""
