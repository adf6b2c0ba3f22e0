# Made from personal.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
__all__ = ['Local', 'FedBN', 'KeepAll', 'KeepBatchNorm', 'AdaBN']

def domain_histograms(acts: dict, by: str='nothing', mean: float=0.0, var: float=1.0, ax=None): ...

@dataclass
class KeepAll(Mechanism):
    """Every client keeps its whole model: no federation at all (Local, SingleSet)."""
    def rules(self, net): ...


@dataclass
class KeepBatchNorm(Mechanism):
    """Every client keeps its BatchNorm layers, found by type and never by name (FedBN, Alg. 1)."""
    statistics: bool = True  # running means, variances and counters; FedBN: yes
    affine: bool = True  # scale and shift; FedBN: yes, SiloBN (Andreux et al. 2020): no
    def rules(self, net): ...


@dataclass
class AdaBN(Mechanism):
    """A client's model is asked with BatchNorm statistics re-estimated on its own training images (AdaBN)."""
    size: int = 64  # images of a batch
    def __post_init__(self) -> None: ...
    def rules(self, net): ...
    def prepare(self, c) -> None: ...

Local: Method
FAMILY: str
NO_BATCHNORM: str
ALL_FROZEN: str
FedBN: Method
