# Made from lanes.py by tests/tools/stubs.py: `make export` writes it anew.
import threading
from typing import Any as _Any


class LaneStopped(Exception):
    """Another lane failed, or somebody pressed Ctrl-C: what this lane was doing is not wanted any more."""

def in_order(f, lanes: list, jobs, threads: int=1, stop: threading.Event | None=None): ...

class _Crew:
    """The lanes of one call of `in_order`."""
    f: _Any
    free: _Any
    size: _Any
    stop: _Any
    def __init__(self, f, lanes, stop) -> None: ...
    def do(self, job): ...
    def call_off(self, waiting) -> None: ...

def stream_for(device, new=None): ...

class Lanes:
    """Workers."""
    device: _Any
    most: int
    threads: int
    workers: list
    def __init__(self, worker, most: int=1, threads: int=1, device='cpu') -> None: ...
    def each(self, f, jobs): ...
