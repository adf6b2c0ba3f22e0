# Made from suite.py by tests/tools/stubs.py: `make export` writes it anew.
import pandas as pd
from dataclasses import dataclass
from fedskew_nb.data.images import Data
from torch import Tensor
__all__ = ['Client', 'Suite', 'counts', 'class_counts']


@dataclass(eq=False)
class Client:
    """Who trains: its number, its domain, its images."""
    id: int
    domain: str
    train: Data
    val: Data
    test: Data  # of its own domain
    def __repr__(self): ...


@dataclass(eq=False)
class Suite:
    """Clients, the test sets of all domains, and where the images come from."""
    name: str
    classes: list  # their names, in the order of the labels
    clients: list  # who trains
    tests: dict  # {domain: Data}
    unseen: dict = ...  # {domain: Data} that no client has
    mean: tuple = ...  # subtracted from images in [0, 1], per channel
    std: tuple = ...  # and divided by
    source: str = ''  # where the images come from
    licence: str = ''
    shows: str = ''  # what a result on it can show
    cannot: str = ''  # and what not
    size: str = ''  # tiny, quick, standard, full
    data_seed: int = 0
    base: str = ''  # the suite that it is a variant of; default: itself
    deal: str = 'skew'  # or iid, pooled: how the images were dealt
    spare: dict = ...  # {domain: Data}: what clients that were left out have
    copies: dict = ...  # how often a picture was there twice; {}: nobody looked
    def __post_init__(self) -> None: ...
    @classmethod
    def from_datasets(cls, domains: dict, classes=None, clients: int | dict=1, n: int | None=None, val: float=0.1, size: int | None=None, unseen=..., data_seed: int=0, name: str='mine', copies: str='once', **about) -> Suite:
        """A suite from one's own data.
        
        domains: {domain: (train, test)} or (train, val, test): datasets, (x, y), Data
        classes: names in the order of the labels; default: the datasets' own
        clients: per domain, or {domain: number}
        n: training images per client; default: all there are
        val: part of each client's images kept for validation
        size: pixels; needed when images differ in size
        unseen: domains that nobody trains on
        copies: or 'keep': count them only
        about: further fields: mean, std, source, licence, …"""
    @classmethod
    def from_rows(cls, rows, size: int | None=None, test: float=0.2, data_seed: int=0, name: str='mine', columns: dict | None=None, copies: str='once', **more) -> Suite:
        """A suite from rows of any dataset.
        
        rows: each (image, label, site[, patient[, split]]), or a dict
        size: pixels, where images differ in size
        test: part of every class
        columns: their names, as {'site': 'hospital'}
        copies: or 'keep': count them only
        more: clients, n, val, unseen, …"""
    @property
    def n_classes(self) -> int:
        """How many classes there are."""
    @property
    def domains(self) -> list:
        """The names of the domains that have a test set."""
    @property
    def image_size(self) -> int:
        """The side of its images, pixels."""
    def partition(self) -> pd.DataFrame:
        """One row per client: its domain, and how many training images of each class it has."""
    @property
    def chance(self) -> float:
        """AVG in % of the best single class, named for every test image."""
    @property
    def title(self) -> str:
        """A name to add to: the suite's, and its deal if it is not the usual one."""
    def iid(self, seed: int=0) -> Suite:
        """The control: the same images dealt at random to clients of the same sizes; the same test sets."""
    def pooled(self) -> Suite:
        """No federation at all: one client that has everything."""
    def fingerprint(self) -> str:
        """Sixteen letters that depend on every byte which training or a test sees, and on who has it."""
    @property
    def nbytes(self) -> int:
        """Bytes of its images, labels, masks and boxes, without those of `spare`."""
    def to(self, device='cpu', budget: int=...) -> Suite:
        """The suite with its images on `device`.
        
        device: where to keep the images
        budget: bytes; a larger suite stays where it is"""

def embedded(name: str): ...
def counts(y: Tensor, n_classes: int) -> list:
    """How many of each class."""
def class_counts(client: Client, n_classes: int) -> Tensor:
    """Training images per class."""
def dealt(s, part: str, seed: int) -> list: ...
def flat(datas: list) -> dict: ...
def data_at(tensors: dict, i: int) -> Data: ...
def pack(suite: Suite) -> tuple[dict, dict]: ...
def unpack(tensors: dict, meta: dict) -> Suite: ...
FACTS: list
