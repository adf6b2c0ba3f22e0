# Made from probes.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.core.net import Net
from fedskew_nb.core.net import Out
from fedskew_nb.data.images import Data
from fedskew_nb.engine.federation import Federation
from torch import Tensor
__all__ = ['answers', 'spectrum', 'effective_rank', 'models_of', 'own_models', 'silhouette', 'linear_probe', 'inside', 'saliency_inside', 'adabn', 'measure']

def answers(net: Net, data: Data, batch: int=64) -> Out:
    """Logits and features of `net` for all images of `data`.
    
    data: raw uint8 images
    batch: images at a time"""
def spectrum(feat: Tensor) -> Tensor:
    """How much the features vary along each principal direction (F2DC, Fig. 1).
    
    feat: (N, d): features"""
def effective_rank(feat: Tensor) -> float:
    """In how many directions do the features vary? exp of the entropy of their spectrum."""
def models_of(fed: Federation) -> dict:
    """The models that a federation has learnt."""
def own_models(fed: Federation) -> dict:
    """For each domain the model that its (first) client uses."""
def shared_model(fed: Federation) -> Net: ...
def glance(data: Data, n: int) -> Data: ...
def silhouette(feat, groups) -> float:
    """How much nearer is each point to its own group than to the next one?"""
def features_by_domain(net: Net, tests: dict, n: int) -> tuple: ...
def feature_facts(net: Net, suite, n: int=60) -> dict: ...
def linear_probe(X: Tensor, d: Tensor) -> float:
    """How often a linear probe, trained on the even rows of X (N, D), names the group of the odd ones."""
def inside(heat, masks) -> float:
    """The share of heat on the object, mean over images.
    
    heat: (B, H, W) ≥ 0
    masks: (B, 1, H, W) uint8: where the object is"""
def saliency_inside(net: Net, data: Data) -> float:
    """Share of Grad-CAM on the object, asked about the true class (F2DC, Fig. 2 as a number)."""
def adabn(net: Net, data: Data) -> Net:
    """A copy whose BatchNorm statistics are re-estimated on these images; its weights are untouched (AdaBN).
    
    net, data: a model; images of the client that uses it"""
def right_share(net: Net, data: Data) -> float: ...
def own_adabn(fed: Federation) -> dict: ...
def foreign_saliency(fed: Federation, nets: dict, n: int=24) -> dict: ...
def measure(fed: Federation, *more) -> dict:
    """Every number of this page; the mean over the clients' models where there are several.
    
    fed: trained
    more: further questions, (net, suite) → {name: number}"""
