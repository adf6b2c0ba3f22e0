"Comparisons that the package ships, each read once in a process: for tests that change nothing in them."
from functools import cache
from fedskew_nb.analysis.overview import stored_results

stored = cache(stored_results)
