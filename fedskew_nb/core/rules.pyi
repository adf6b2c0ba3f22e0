# Made from rules.py by tests/tools/stubs.py: `make export` writes it anew.
from collections.abc import Callable
from dataclasses import dataclass
from torch import Tensor
__all__ = ['mean', 'keep', 'by_tensor', 'by_layer', 'by_all', 'Rule', 'largest']

def mean(V: Tensor, g: Tensor, w: Tensor, srv) -> Tensor:
    """Σ p_k V_k in client order: (K, P) → (P,). The default rule (McMahan et al. 2017, Alg. 1)."""
def keep(V: Tensor, g: Tensor, w: Tensor, srv) -> Tensor:
    """Every client keeps its own row, and nothing is sent: (K, P) → (K, P)."""
def by_tensor(name: str) -> str:
    """Every tensor is a group."""
def by_layer(name: str) -> str:
    """All tensors of a layer are a group."""
def by_all(name: str) -> str:
    """All that is claimed is one group."""

@dataclass(frozen=True)
class Rule:
    """Which names, what to do with them, and what counts as one group."""
    claims: Callable  # name of a state_dict entry → bool
    fn: Callable  # (V, g, w, srv) → (P,) or (K, P)
    by: Callable = ...  # name → group
    travels: Callable | None = None  # (group, client, round, seed) → does it travel then? default: always
    of_mean: bool = False  # fn reads of V and g only mean(V, g, w, srv) and g[0]
    def __post_init__(self) -> None: ...
    @property
    def added(self):
        """What is made of the rows as they come; None: the rule needs all at once."""

def rule_groups(rules: dict) -> list: ...
def resting(groups: list, client: int, round: int, seed: int) -> set: ...
def largest(V: Tensor, g: Tensor, w: Tensor, srv) -> Tensor:
    """The rule of integer counters, such as the number of batches a BatchNorm has seen."""
