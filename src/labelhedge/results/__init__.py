"""What a benchmark leaves behind: a Parquet data set of trained networks, and their traces beside it."""

from labelhedge.results.aggregate import choose
from labelhedge.results.store import ResultsStore, load, load_traces

__all__ = ["ResultsStore", "choose", "load", "load_traces"]
