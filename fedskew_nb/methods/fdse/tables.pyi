# Made from tables.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.analysis.printed import Field
from fedskew_nb.analysis.printed import Protocol
from fedskew_nb.core.method import Method
from typing import Any as _Any

def fdse(lam: float, beta: float, tau: float) -> str: ...
def of_files(folder: str, methods: dict, lr: float, rates: dict) -> tuple: ...
def epochs(paper: int, code: int, file: str) -> Field: ...
def table_1(data: str, suite: str, printed: str, fields: tuple, ours: dict=..., rates=None, **more) -> Protocol: ...
def table_2(data: str, suite: str, columns: dict, printed: str, fields: tuple, ours: str, **more) -> Protocol: ...
def counts_4(method: Method) -> dict: ...
OWN: tuple
WHOLE: dict
HOME: str
FLGO: str
ALEXNET: tuple
CONFIG: str
LOOP: tuple
SCORES: tuple
AS_RUN: str
ROWS: tuple
GIVEN: dict
OFFICE: _Any
PACS: _Any
RATES: dict
FILES: _Any
IN_OFFICE: tuple
IN_PACS: tuple
IN_DOMAINNET: tuple
TABLES: list
ADAPTED: dict
TO_NEW: tuple
OBJECTS: dict
PICTURES: dict
