# Made from history.py by tests/tools/stubs.py: `make export` writes it anew.
import pandas as pd
from dataclasses import dataclass
from fedskew_nb.core.context import Upload
from fedskew_nb.data.suite import Client
from fedskew_nb.engine.reading import Where
__all__ = ['History', 'State']

def modern(setting: dict) -> dict: ...

@dataclass(eq=False, repr=False)
class History:
    """Setting, scores and costs of one run."""
    setting: dict = ...  # all that is needed to run it again
    rows: list = ...  # one dict per score, with `COLUMNS`
    rounds: list = ...  # of each round: loss terms, participants, bytes
    timing: list = ...  # seconds of each round
    measures: dict = ...  # further numbers of the trained models
    measured_by: str = ''  # digest of their function
    def __post_init__(self) -> None: ...
    def grown(self, rounds=..., rows=...) -> History:
        """A longer history; this one stays."""
    def as_dict(self) -> dict:
        """Its fields, for a file."""
    @property
    def df(self) -> pd.DataFrame:
        """The scores as a tidy frame, with an accuracy in percent."""
    def __eq__(self, o): ...
    @property
    def label(self) -> str:
        """What pictures and claims call the run: its method, and the deal of the data if it is not the usual one."""
    def __repr__(self) -> str:
        """Its method, rounds and scores in a line."""
    def save(self, path) -> None:
        """Write it as JSON, whole or not at all."""
    @classmethod
    def load(cls, path) -> History:
        """A stored run."""
    def views(self) -> list:
        """What was scored in this run, the headline first."""
    def headline(self, where='global') -> Where:
        """The answer that a table shows unless another is named: '' where there is one model, else `client`."""
    def counts(self, where='global') -> pd.DataFrame:
        """Test images and right answers; clients of one domain are added up.
        
        where: a view, or a Where"""
    def curve(self, where='global', last: int=0) -> pd.DataFrame:
        """Accuracy per domain and the four numbers, after each evaluated round.
        
        where: a view, or a Where
        last: only so many evaluated rounds; 0: all"""
    def summary(self, where='global', last: int=0) -> dict:
        """The score of record: AVG, STD, ALL and worst in percent, or the mean of the `last` evaluated rounds."""
    @property
    def checks(self) -> int:
        """Of how many last checks its score of record is the mean."""
    def table(self, where=None, last: int=0) -> pd.DataFrame:
        """The score of record: domains, AVG, STD, ALL, worst.
        
        where: a view, or a Where
        last: the mean of so many evaluated rounds; 0: those of record"""
    def cost(self) -> dict:
        """Per round: bytes up and down, seconds of training and of evaluation. None: not measured."""
    def at(self, round: int) -> History:
        """The run as if it had ended after this round; what was measured on the last models is left out."""

def history_of(d: dict) -> History: ...
def impossible(d: dict) -> str: ...
def read_history(path) -> History: ...
def score_rows(right: dict, n: int, round: int, moment: str, view: str, domain: str, client: int=-1, default: str='') -> list: ...
def versions() -> dict: ...
def made_of(method, net, suite) -> dict: ...
def steps_of(fed) -> list: ...
def describe(fed) -> dict: ...

@dataclass(frozen=True)
class State:
    """A federation between two rounds."""
    server: dict  # {name: tensor}: one for all
    own: dict  # {client: {name: tensor}}: what each has for itself
    states: dict  # {client: {mechanism: dict}}: what mechanisms remember of a client
    memory: dict = ...  # {mechanism: dict}: what they remember at the server
    down: dict = ...  # what goes to the clients beside the model
    history: History = ...
    round: int = 0  # how many rounds have happened
    scored: int = 0  # after which one the models were last scored
    def of(self, client: int) -> dict:
        """The state of a client's model: the server's, overwritten by its own."""
    def sent_to(self, client: int) -> dict:
        """What the server's mechanisms send a client beside the model."""


@dataclass(frozen=True)
class Task:
    """One client, one round."""
    client: Client
    start: dict  # {name: tensor}: what it gets
    states: dict = ...  # {mechanism: dict}: memories, to be written
    caches: dict = ...  # likewise, of this process
    down: dict = ...  # what came beside the model
    round: int = 0


@dataclass(frozen=True)
class Result:
    """What local training gives, and what a round keeps of one client."""
    upload: Upload  # what the client sends
    terms: dict  # {loss term: its mean over all steps}
    rows: list = ...  # scores of the trained model, in the last round
    states: dict = ...  # what mechanisms remember of the client from now on
    kept: dict = ...  # {name: tensor}: what it keeps of its model
    def parted(self, kept, stays) -> tuple: ...

def mean_terms(terms: list) -> dict: ...
def after_round(state: State, local: list, traffic: dict) -> State: ...
def state_field(name: str): ...
ROW_COLUMNS: list
WORDS: dict
DEALT: tuple
STORED: dict
