# Made from average.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.core.method import Method
__all__ = ['FedAvg']

FedAvg: Method
FAMILY: str
