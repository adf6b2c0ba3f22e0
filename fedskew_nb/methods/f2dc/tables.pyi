# Made from tables.py by tests/tools/stubs.py: `make export` writes it anew.

def eight_of_ten(n: int) -> int: ...
def dealt_to(size: int, **clients) -> tuple: ...
IMAGENET: dict
MADE: str
RUN: str
FIRST: str
TRAINED: tuple
BY_SIZE: str
BY_EQS: str
METHODS: dict
TRAINER: str
OF_F2DC: tuple
ROWS: tuple
SHARE: str
DRAWN: tuple
PICTURES: tuple
CALTECH: dict
STYLES: dict
RESNET: dict
TENTHS: dict
IN_PACS: dict
OF_PACS: dict
IN_OFFICE: dict
IN_DIGITS: dict
TABLES: list
