# Made from overview.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.analysis.comparison import Comparison
__all__ = ['load_comparison', 'stored_results']

def load_comparison(path) -> Comparison:
    """Read what `Comparison.save` wrote; `.about` says when and where."""
def stored_names() -> dict: ...
def stored_results(name: str) -> Comparison:
    """A comparison that the package ships, for the pages: `fedskew_nb/assets/runs/NAME.json.xz`."""
