# Made from sites.py by tests/tools/stubs.py: `make export` writes it anew.
import pandas as pd
from dataclasses import dataclass
from fedskew_nb.analysis.table import Table
from fedskew_nb.engine.federation import Federation
from torch import Tensor
__all__ = ['site_scores']

def confusion(p: Tensor, y: Tensor) -> Tensor: ...
def one_against_rest(p: Tensor, y: Tensor) -> float: ...
def scores_from(p: Tensor, y: Tensor) -> dict: ...
def asked_sites(fed: Federation) -> list: ...

@dataclass(repr=False)
class SiteScores:
    """Scores of a federation's models, site by site."""
    method: str
    numbers: pd.DataFrame  # sites × (images, scores in percent)
    confusion: dict  # {site: DataFrame of counts, true × said}
    def table(self) -> Table: ...
    def __repr__(self): ...
    def plot(self, site: str, ax=None): ...

def site_scores(fed: Federation) -> SiteScores:
    """Accuracy, balanced accuracy, macro F1, AUROC and confusion matrix of every site."""
