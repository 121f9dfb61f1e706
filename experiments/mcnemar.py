"""McNemar's test: whether two classifiers err equally often on the same cases.

Only the cases count that one of the two gets right and the other wrong.  If both are equally good,
each of these is a fair coin; the p-value is that of the exact binomial test, both tails.
Reference: McNemar, "Note on the sampling error of the difference between correlated proportions or
percentages", Psychometrika 12 (1947).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["McNemar", "mcnemar"]


@dataclass(frozen=True)
class McNemar:
    """How many cases only the first (only the second) gets right, and the p-value."""

    only_first: int
    only_second: int
    p_value: float


def mcnemar(first: ArrayLike, second: ArrayLike) -> McNemar:
    """Compare two classifiers by whether each case is right.

    >>> mcnemar([True] * 6, [True] + [False] * 5)
    McNemar(only_first=5, only_second=0, p_value=0.0625)
    """
    from scipy.special import bdtr

    one, two = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    only_first, only_second = int((one & ~two).sum()), int((two & ~one).sum())
    total = only_first + only_second
    tail = float(bdtr(min(only_first, only_second), total, 0.5)) if total else 1.0
    return McNemar(only_first, only_second, min(1.0, 2.0 * tail))
