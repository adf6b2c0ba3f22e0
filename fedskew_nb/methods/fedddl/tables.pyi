# Made from tables.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.analysis.printed import Field
from fedskew_nb.analysis.printed import Protocol

def table(name: str, suite: str, printed: str, **more) -> Protocol: ...
CODE: str
SAID: tuple
WANT_BOXES: tuple
NET: dict
COLOURS: dict
TABLES: list
ALONE: Field
STEP: dict
