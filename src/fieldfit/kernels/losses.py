"""Losses on beliefs, one normalised vector at a time (the belief of a variable or of a factor).

With ``t`` the entry of the true label, or of the true configuration,

    LOG         -log b(t)                         derivative  -1 / b(t)  at t
    QUADRATIC   sum_y b(y)^2 - 2 b(t)                         2 b - 2 [y = t]
    SMOOTH      s(sharpness (max_{y != t} b(y) - b(t)))       s' sharpness ([y = best] - [y = t])
    HARD        [t is not the first largest entry]            none

where ``s(x) = 1 / (1 + exp(-x))``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.simd import fast_exp, fast_log

__all__ = [
    "HARD",
    "LOG",
    "QUADRATIC",
    "SMALLEST_BELIEF",
    "SMOOTH",
    "belief_losses",
    "true_configurations",
]

FloatArray = NDArray[np.float64]

LOG, QUADRATIC, SMOOTH, HARD = 0, 1, 2, 3

#: A smaller belief of a true label counts as this one: the logarithm and its slope stay finite, and
#: so does the product of the slope with anything that is itself as small as the belief.
SMALLEST_BELIEF = 1e-300


@njit(cache=True, nogil=True, error_model="numpy")
def belief_losses(
    kind: int,
    sharpness: float,
    beliefs: FloatArray,
    offsets: NDArray[np.int32],
    true_entries: NDArray[np.int64],
    values: FloatArray,
    derivative: FloatArray,
) -> None:
    """Value of each vector ``beliefs[offsets[k]:offsets[k + 1]]``, and the derivative.

    ``true_entries`` are positions in ``beliefs``, -1 where there is no truth; such a vector counts
    nothing.  ``derivative`` must hold zeros; an empty one stands for "not needed".
    """
    wanted = len(derivative) > 0
    for k in range(len(true_entries)):
        truth = true_entries[k]
        values[k] = 0.0
        if truth < 0:
            continue
        begin, end = offsets[k], offsets[k + 1]
        if kind == LOG:
            belief = max(beliefs[truth], SMALLEST_BELIEF)
            values[k] = -fast_log(belief)
            if wanted:
                derivative[truth] = -1.0 / belief
        elif kind == QUADRATIC:
            total = 0.0
            for z in range(begin, end):
                total += beliefs[z] * beliefs[z]
            values[k] = total - 2.0 * beliefs[truth]
            if wanted:
                for z in range(begin, end):
                    derivative[z] = 2.0 * beliefs[z]
                derivative[truth] -= 2.0
        else:
            best = -1
            for z in range(begin, end):
                if z != truth and (best < 0 or beliefs[z] > beliefs[best]):
                    best = z
            if best < 0:  # a single label cannot be wrong
                continue
            gap = beliefs[best] - beliefs[truth]
            if kind == HARD:
                values[k] = 1.0 if gap > 0.0 or (gap == 0.0 and best < truth) else 0.0
                continue
            # written for the sign of the gap, so that the exponential never overflows
            small = fast_exp(-abs(sharpness * gap))
            larger = 1.0 / (1.0 + small)
            values[k] = larger if gap >= 0.0 else small * larger
            if wanted:
                slope = sharpness * small * larger * larger
                derivative[best] = slope
                derivative[truth] = -slope


@njit(cache=True, nogil=True, error_model="numpy")
def true_configurations(
    structure: Any, labels: NDArray[np.int32], entries: NDArray[np.int64]
) -> None:
    """Table entry of the labels of each factor, -1 where one is missing or the arity below two."""
    for factor in range(len(entries)):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        entry = 0 if stop - first >= 2 else -1
        for slot in range(first, stop):
            variable = structure.slot_variables[slot]
            if labels[variable] < 0:
                entry = -1
            elif entry >= 0:
                entry = entry * structure.cardinalities[variable] + labels[variable]
        entries[factor] = structure.table_offsets[factor] + entry if entry >= 0 else -1
