# Made from method.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.net import Out
from torch import nn
from typing import Any as _Any
__all__ = ['Contradiction', 'Method']


class Contradiction(ValueError):
    """Two mechanisms that cannot both have their way."""

def values_of(m: Mechanism) -> dict: ...
def distinct(ms) -> list: ...
def comes_after(m: Mechanism, o: Mechanism) -> bool: ...
def ordered(ms) -> tuple: ...
def check_parts(name, mechanisms) -> None: ...
def other_names(aliases) -> dict: ...

class Method:
    """A name and the mechanisms that make a federated method."""
    aliases: dict
    base: _Any
    ink: str
    mechanisms: tuple
    name: str
    page: str
    presets: _Any
    run: _Any
    says: str
    def __init__(self, name: str, *mechanisms: Mechanism, presets: dict | None=None, page: str='', ink: str='', says: str='', base: str='', aliases=...) -> None:
        """name: as the paper spells it
        presets: {'released': {field: value}}
        page: its notebook: '2_methods/f2dc/04_method'
        ink: its colour: 'vermillion'
        says: its idea, in twelve words
        base: its name before a change
        aliases: other names, or {name: who says so}"""
    def one(self, hook: str, c, *args):
        """The answer of the one mechanism that fills an exclusive hook, or None: then the default holds."""
    def everyone(self, hook: str, c, *args) -> None:
        """Run a hook of all mechanisms, in canonical order."""
    def union(self, hook: str, c, *args, start=...) -> dict:
        """The answers of all mechanisms in one dict; a name given twice is refused."""
    def terms(self, c, b: dict, out: Out) -> dict:
        """All loss terms of one step: `task`, by default the cross-entropy, and every mechanism's own."""
    def make_batch(self, c, b: dict) -> dict:
        """The batch after every mechanism's `batch` hook."""
    def run_forward(self, c, b: dict) -> Out:
        """What the model answers to a batch: by the one `forward`, else the net on `x` and on each `x_…`."""
    def __eq__(self, o):
        """Equal name, equal mechanisms."""
    def __hash__(self): ...
    @property
    def about(self) -> dict:
        """What is said of it beside its mechanisms; copies hand it on."""
    def __repr__(self):
        """As one would write it."""
    def refuse(self, who, reason: str, todo: str) -> None:
        """Raise a contradiction that names the method and the mechanisms."""
    def each(self, hook: str) -> list:
        """The mechanisms that fill `hook`, in canonical order."""
    def __add__(self, other: Method) -> Method:
        """Both lists of mechanisms as one method."""
    def named(self, name: str) -> Method:
        """The same mechanisms under another name."""
    def hyper(self) -> dict:
        """Every hyper-parameter as {spelling: (mechanism, field name)}; shared names carry their owner."""
    def __call__(self, preset: str | None=None, **hp) -> Method:
        """A changed copy: `F2DC(sigma=.3, preset='released')`."""
    def filled(self) -> dict:
        """{hook: what fills it}, with the defaults of the three hooks that always have an answer."""
    def spec(self) -> list:
        """What a stored run says about its method: JSON-able."""
    def adapt(self, net: nn.Module, seed: int=0) -> nn.Module:
        """A changed copy of `net`; the mechanisms' own modules start from `seed`."""
    def rule_for(self, name: str, claims: list, is_counter: bool) -> tuple:
        """(mechanism or None, Rule): keep beats all, counters take the largest, the others must agree."""
    def rules(self, net: nn.Module) -> dict:
        """{name: (mechanism or None, Rule)} for every entry of `net.state_dict()` that is not frozen."""
    def kept(self, net: nn.Module) -> set:
        """Names that never leave a client."""

def kinds_of(need) -> list: ...
def advice(name: str, names) -> str: ...
def stored_values(m: Mechanism) -> dict: ...
