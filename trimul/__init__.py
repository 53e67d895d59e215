"""TriMul, from five nested loops to the fastest implementation known: the library of the course."""

from trimul.claims import claim, predict, reveal
from trimul.exercises import attempt
from trimul.source import diff, show

__version__ = "0.1.0"
__all__ = ["attempt", "claim", "diff", "predict", "reveal", "show"]
