# Made from choose.py by tests/tools/stubs.py: `make export` writes it anew.
from collections.abc import Callable
from dataclasses import dataclass
from fedskew_nb.analysis.claims import Claim
from fedskew_nb.analysis.comparison import Comparison
from fedskew_nb.analysis.table import Table
from fedskew_nb.core.method import Method
from fedskew_nb.data.suite import Suite
from fedskew_nb.engine.federation import Federation
__all__ = ['RESULTS', 'choose']

def tiny_world() -> Suite: ...
def tried(method: Method) -> Federation: ...
def sent_beside(fed: Federation) -> list: ...

@dataclass(frozen=True)
class Facts:
    """What a method showed when it was tried."""
    one: bool  # one model for all clients at the end
    unseen: bool  # was that model asked about the domain that nobody has?
    sent: tuple  # what a client sends beside its model
    bytes: float  # up and down, in those of FedAvg
    asks: str  # what it asks of model and images
    plain: bool  # does it do without masks and boxes?
    any_net: bool  # does it do without a place in the model or a kind of layer?
    unsure: bool  # does it give a vacuity beside its probabilities?

def bytes_of(fed: Federation) -> int: ...
def bytes_of_fedavg() -> int: ...
def facts_of(name: str) -> Facts: ...
def results() -> Comparison: ...
def above(name: str, other: str) -> dict: ...
def of_unseen(c: Claim, name: str) -> bool: ...

@dataclass(frozen=True)
class Found:
    """A verdict, and the page that it stands on."""
    text: str
    page: str

def on_unseen(name: str) -> Found | None: ...

@dataclass(frozen=True)
class Candidate:
    """A method with everything that is known of it."""
    name: str
    facts: Facts
    fedavg: dict  # {suite: (interval, p, family)} above FedAvg
    local: dict  # the same above Local
    unseen: Found | None
    def known(self) -> bool: ...
    def rank(self) -> float: ...

def candidates() -> tuple: ...

@dataclass(frozen=True)
class Need:
    """Something that a user may ask of a method."""
    says: str
    met: Callable  # Candidate → bool

def pays(c: Candidate) -> bool: ...
def who(*needs: str) -> tuple: ...
def choice(c: Candidate) -> dict: ...
def choose(*needs: str) -> Table:
    """The methods that meet every need, with what was measured of them.
    
    needs: names in USER_NEEDS: global, unseen, weights, bytes, plain, anynet, doubt, few"""
def list_command(for_=..., json: bool=False): ...
RESULTS: str
USER_NEEDS: dict
UNMEASURED: str
