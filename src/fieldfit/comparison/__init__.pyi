"""Written by make stubs from fieldfit._registry."""

from fieldfit.comparison.compare_methods import compare as compare
from fieldfit.comparison.comparison_result import Comparison as Comparison
from fieldfit.comparison.held_out_scores import HeldOutScores as HeldOutScores
from fieldfit.comparison.method_search import MethodRow as MethodRow

__all__ = [
    "Comparison",
    "HeldOutScores",
    "MethodRow",
    "compare",
]
