# Made from tables.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.analysis.printed import Protocol

def table_1(data: str, suite: str, participation: float, printed: str) -> Protocol: ...
SAID: tuple
LONG: dict
TABLES: list
