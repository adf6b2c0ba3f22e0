# Made from method.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from torch import Tensor
__all__ = ['DFL', 'Separate', 'Anchor', 'Transfer']


@dataclass(kw_only=True)
class Critic(Mechanism):
    """Base: a client's own critic says how much two features share, and a term moves that."""
    critic_steps: int = 5  # of Adam, at each step of the model
    critic_lr: float = 0.001  # of Adam
    hidden: int = 128  # width of the critic; Deep InfoMax: 512
    floor: float = 1.0  # of the standardised features
    detach: bool = False  # no gradient through their moments
    def __post_init__(self) -> None: ...
    def start(self, c) -> None: ...
    def finish(self, c): ...
    def inner(self, c, b, out) -> None: ...
    def loss(self, c, b, out): ...

def both_pairs(p: dict, a: Tensor, b: Tensor, gen) -> Tensor: ...

@dataclass
class Separate(Critic):
    """I_s: the specific branch is to say what the invariant one does not (DFL, Eq. 5)."""
    mu_s: float = 1.0  # weight of +I_s
    I_s_in_step2: bool = False  # it moves E_c, too, in step 2: the argmin of Alg. 1


@dataclass
class Anchor(Critic):
    """I_c: the invariant branch is to say what the received one said (DFL, Eq. 5)."""
    mu_c: float = 1.0  # weight of −I_c
    E_G_by_batch: bool = False  # E_G's BatchNorms use the batch, as E_c's do


@dataclass
class Transfer(Mechanism):
    """Diversity: the label must follow from E_c and a foreign E_s, too (DFL, Eqs. 7 and 8)."""
    lam: float = 1.0  # λ
    n_transfer: int | None = 3  # foreign E_s of a client and round; None: all
    peer_bn: str = 'theirs'  # a foreign E_s comes with its BatchNorms; own: is run with one's own
    source: str = 'peers'  # own: the control, one's own E_s in their place
    def __post_init__(self) -> None: ...
    def finish(self, c):
        """Send E_s."""
    def extras(self, srv, ups):
        """Whose E_s each client gets: drawn every round, never its own."""
    def loss(self, c, b, out):
        """λ times the mean cross-entropy over the foreign E_s, whose images and labels are one's own."""

DFL: Method
