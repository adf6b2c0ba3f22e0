"Comparisons that the package ships, each read once in a process: for tests that change nothing in them."
from functools import cache
from fedskew_nb.analysis.comparison import stored_results

stored = cache(stored_results)
