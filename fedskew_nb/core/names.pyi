# Made from names.py by tests/tools/stubs.py: `make export` writes it anew.
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any as _Any
__all__ = ['nearest', 'one_of', 'whole', 'at_least', 'not_negative', 'extra', 'registry', 'Recipe']

def folded(name) -> str: ...
def nearest(name: str, names) -> str:
    """The sentence part that helps after a misspelt name."""
def one_of(name, options, noun: str):
    """`name` if it is among the options, or a refusal with the nearest."""
def spelt(name: str, names, noun: str, aliases: dict | None=None) -> str: ...
def whole(seed, noun: str='data_seed') -> int:
    """`seed` as an int, or a clear refusal."""
def at_least(**values) -> None:
    """Refuse what is below its limit: `at_least(size=(value, least, why))`."""
def not_negative(who: str='', **values) -> None:
    """Refuse weights and rates below 0, infinite or not a number."""
def plain_number(v): ...
def kinds_of(of, name: str) -> tuple: ...
def typed(of, name: str, v): ...
def plain(o): ...
def live() -> bool: ...
def message(e: BaseException) -> str: ...
def portable(e: Exception) -> Exception: ...
def deprecated(old: str, new: str, since: str, until: str, up: int=1) -> None: ...
def extra(module: str, package: str, group: str='viz'):
    """Import a module that only some pages need, or say how to get it."""

class lazy:
    """A library that is imported when it is first asked for something."""
    def __init__(self, library: str) -> None: ...
    def __getattr__(self, name): ...

def modules_of(room: str) -> list: ...
def registry(kind: type, modules=None) -> dict:
    """Methods or mechanisms by their names.
    
    kind: Method or Mechanism
    modules: where; default: in the whole package"""
def papers() -> dict: ...

@dataclass(frozen=True)
class Recipe:
    """How to make a method, a suite of a seed, or a model of so many classes."""
    name: str  # in tables and files
    make: Callable  # anything that can be pickled
    text: str = ''  # what can be typed to get it again; '' for an object of one's own
    base: str = ''  # what it is a variant of; default: itself
    files: tuple = ...  # Python files that it runs
    def __post_init__(self) -> None: ...
    def __call__(self, *args, **kwargs):
        """The thing, made anew."""
    def __reduce__(self): ...
    @cached_property
    def made(self):
        """The thing, made once: for what needs no argument."""
    def holding(self, thing) -> Recipe:
        """The same recipe, with the thing at hand."""

KINDS: _Any
