# Made from printed.py by tests/tools/stubs.py: `make export` writes it anew.
from dataclasses import dataclass
from fedskew_nb.analysis.table import Table
from fedskew_nb.data.suite import Suite
from fedskew_nb.engine.history import History
from torch import Tensor

def a_dict(): ...

@dataclass(frozen=True)
class Printed:
    """A table of a paper."""
    name: str  # F2DC-1-PACS
    source: str  # where it is printed
    suite: str  # of `prepare`, or embedded
    columns: dict  # {heading: domain, AVG or ALL}
    printed: str  # a line per method: name, numbers
    setting: dict  # of `compare`: model, rounds, …


@dataclass(frozen=True)
class Protocol(Printed):
    """How a paper made it."""
    clients: dict = ...  # {domain: how many}
    share: float = 1.0  # of a domain's images, for each
    each: int = 0  # or how many images for each
    folder: dict = ...  # of `load_folder`
    view: str = 'global'  # whose model is scored
    before: tuple = ...  # scored before averaging
    apart: dict = ...  # {method: measure}
    measure: object = None  # see above
    seeds: int = 3
    ours: dict = ...  # {their name: ours}
    rates: dict = ...  # {their name: learning rate}
    part: object = None  # a domain's images → those for training, as they count
    smallest: bool = False  # `share` is of the smallest domain
    lists: bool = False  # may the folder have its own lists?
    fields: tuple = ...  # of Field
    notes: tuple = ...  # what is no field
    def numbers(self) -> dict: ...
    def methods(self) -> dict: ...
    def left_out(self) -> list: ...
    def has(self, f: Field): ...
    def foot(self, names=None) -> list: ...
    def facts(self) -> Table: ...
    def images_each(self, whole: dict, train: dict) -> dict: ...
    def dealt(self, suite: Suite, seed: int) -> Suite: ...
    def score_of(self, h: History, name: str, heading: str) -> float: ...
    def scores_of(self, runs: list, name: str) -> dict: ...
    def by_seed(self, runs: list) -> list: ...
    def line_of(self, name: str, runs: list) -> dict: ...
    def beside(self, runs: dict, notes=...) -> Table: ...


@dataclass(frozen=True)
class Field:
    """One setting of a table, as the paper, its code and we have it."""
    name: str  # of the setting, or words
    paper: object = None  # None: it does not say
    code: object = None  # None: not public
    ours: object = None  # None: what the protocol has
    source: str = ''  # section; repository@commit and file
    row: str = ''  # of one method alone: their name

def plain(v) -> str: ...
def label(f: Field) -> str: ...
def counts_each(have: Tensor, clients: int, n: int) -> list: ...
def sizes_of(suite: Suite, domains) -> tuple: ...
READ: str
LABELS: dict
SCORED: str
KEEP: dict
COPIES: str
