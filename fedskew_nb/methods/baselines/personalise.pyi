# Made from personalise.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from torch import Tensor
__all__ = ['LG_FedAvg', 'FedRep', 'Ditto', 'PartialFed', 'PartialFed_Adaptive', 'KeepPlaces', 'HeadFirst', 'OwnModel', 'unloaded', 'layers_of', 'LoadPartly', 'LearnToLoad']


@dataclass
class KeepPlaces(Mechanism):
    """Every client keeps these places of the net; the others are averaged (LG-FedAvg, Alg. 1; FedRep, Alg. 1)."""
    places: tuple = ...  # LG-FedAvg: all but the head; FedRep: ('head',)
    def __post_init__(self) -> None: ...
    def rules(self, net): ...


@dataclass
class HeadFirst(Mechanism):
    """First the head learns while the rest is frozen, then the rest while the head is frozen (FedRep, Alg. 1)."""
    head: int = 10  # share of a round's steps for the head; the paper: ten epochs
    body: int = 5  # share for the rest; the paper: five epochs, on CIFAR-10 one
    def __post_init__(self) -> None: ...
    def phases(self, c): ...


@dataclass
class OwnModel(Mechanism):
    """A client trains a second model, of its own: F_k(v) + λ/2·‖v − w^t‖² (Ditto, Alg. 1)."""
    lam: float = 1.0  # strength of the tie; paper: 0.1 to 2
    def __post_init__(self) -> None: ...
    def start(self, c) -> None: ...
    def inner(self, c, b, out) -> None: ...
    def loss(self, c, b, out): ...
    def finish(self, c): ...
    def prepare(self, c) -> None: ...

def unloaded(V: Tensor, g: Tensor, w: Tensor, srv) -> Tensor:
    """Every client goes on with its own row; all rows were sent, and the server keeps their mean."""
def layers_of(net) -> list:
    """Names of the layers that hold tensors, from the image to the head."""

@dataclass
class LoadPartly(Mechanism):
    """From abstract and summaries (no code was public): all is averaged, a part is loaded (PartialFed-Fix)."""
    way: str = 'bottom-up'  # loads the first layers; 'top-down': the last; 'skip-BN': all but BatchNorms
    skipped: int = 1  # layers that are not loaded, for the first two ways; our choice
    def __post_init__(self) -> None: ...
    def rules(self, net): ...


@dataclass
class LearnToLoad(Mechanism):
    """EXPERIMENTAL, from abstract and summaries (no code was public): learnt loading (PartialFed-Adaptive)."""
    tau: float = 1.0  # temperature
    eta: float = 0.5  # step size of the gates
    batches: int = 5  # of 32 images, to learn the gates; 0: FedAvg
    def __post_init__(self) -> None: ...
    def start(self, c) -> None: ...
    def finish(self, c): ...
    def prepare(self, c) -> None: ...

LG_FedAvg: Method
FAMILY: str
FedRep: Method
Ditto: Method
PartialFed: Method
PartialFed_Adaptive: Method
