# Made from tables.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.analysis.printed import Field
from typing import Any as _Any

def rounds(n: int, file: str) -> Field: ...
def prox(mu: float, file: str) -> Field: ...
def validated(part: float, file: str) -> Field: ...
CODE: str
BEFORE: str
LOOP: tuple
NO_SHIFT: dict
AS_FEDBN: str
LARGE: tuple
ALEX: dict
PHOTOS: dict
FROM_LISTS: dict
SIX: _Any
SMALLEST: str
OF_SIX: tuple
TABLES: list
NET: str
ON_DIGITS: str
DIGITS: tuple
