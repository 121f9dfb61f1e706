r"""Newton's steps on Bethe's free energy as a function of beliefs of variables (see `springs`).

A step solves ``(H + damping) z = force`` in the coordinates of the natural gradient, by conjugate
gradients, up to the first direction of negative curvature (Steihaug's rule).

Reference: Steihaug, "The conjugate gradient method and trust regions in large scale optimization",
SIAM J. Numerical Analysis 20 (1983).
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.arrays import NO_WEIGHT
from fieldfit.kernels.scaling import GENERAL, PAIR

__all__ = ["newton_targets"]

FloatArray = NDArray[np.float64]
LongArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: Log-beliefs move by at most this in one step: the quadratic model knows nothing of larger
#: changes.
LONGEST = 5.0
#: Steps of conjugate gradients for each label: rounding delays them when springs are stiff.
STEPS_PER_LABEL = 5
#: What the preconditioner takes a label without springs for.
LEAST_STIFFNESS = 1e-3
#: A direction has negative curvature if it is below this share of its length (rounding).
FLAT = 1e-14


@njit(cache=True, nogil=True, error_model="numpy")
def _pull_pair(
    springs: Any,
    factor: int,
    left: int,
    right: int,
    widths: FloatArray,
    z: FloatArray,
    pull: FloatArray,
) -> None:
    """Along ``(-sqrt q(1), sqrt q(0))``, the only direction that a binary variable has."""
    own = widths[left] * z[left + 1] - widths[left + 1] * z[left]
    other = widths[right] * z[right + 1] - widths[right + 1] * z[right]
    size, sign = abs(springs.stiff[factor]), 1.0 if springs.stiff[factor] >= 0.0 else -1.0
    stretch = size * (own - sign * other)
    own = springs.soft[factor] * own + stretch
    other = springs.soft[factor] * other - sign * stretch
    pull[left] -= widths[left + 1] * own
    pull[left + 1] += widths[left] * own
    pull[right] -= widths[right + 1] * other
    pull[right + 1] += widths[right] * other


@njit(cache=True, nogil=True, error_model="numpy")
def _pull(
    structure: Any,
    springs: Any,
    begin: int,
    end: int,
    shift: int,
    shifts: FloatArray,
    widths: FloatArray,
    z: FloatArray,
    pull: FloatArray,
    scratch: FloatArray,
) -> None:
    """``pull = (H + damping) z`` for the factors ``begin`` to ``end`` of one example.

    ``shifts`` is ``1 - d_i + damping``; unary entry ``x`` is at ``x - shift`` in all vectors.
    """
    for x in range(len(z)):
        pull[x] = shifts[x] * z[x]
    for factor in range(begin, end):
        first = structure.scope_offsets[factor]
        if springs.kinds[factor] == PAIR:
            left = structure.unary_offsets[structure.slot_variables[first]] - shift
            right = structure.unary_offsets[structure.slot_variables[first + 1]] - shift
            _pull_pair(springs, factor, left, right, widths, z, pull)
        elif springs.kinds[factor] == GENERAL:
            stop = structure.scope_offsets[factor + 1]
            base = structure.message_offsets[first]
            size = structure.message_offsets[stop] - base
            for slot in range(first, stop):
                start = structure.message_offsets[slot] - base
                source = structure.unary_offsets[structure.slot_variables[slot]] - shift
                for y in range(structure.message_offsets[slot + 1] - base - start):
                    scratch[start + y] = z[source + y]
            row = springs.offsets[factor]
            for slot in range(first, stop):
                source = structure.unary_offsets[structure.slot_variables[slot]] - shift
                for y in range(
                    structure.message_offsets[slot + 1] - structure.message_offsets[slot]
                ):
                    value = 0.0
                    for column in range(size):
                        value += springs.inverses[row + column] * scratch[column]
                    pull[source + y] += value
                    row += size


@njit(cache=True, nogil=True, error_model="numpy")
def _project(
    structure: Any,
    begin: int,
    end: int,
    shift: int,
    free: BoolArray,
    widths: FloatArray,
    values: FloatArray,
) -> None:
    """Make the values of each variable orthogonal to ``sqrt(q_i)``; 0 where it is not free."""
    for i in range(begin, end):
        product = 0.0
        for x in range(structure.unary_offsets[i] - shift, structure.unary_offsets[i + 1] - shift):
            product += widths[x] * values[x]
        for x in range(structure.unary_offsets[i] - shift, structure.unary_offsets[i + 1] - shift):
            is_moving = free[i] and widths[x] > 0.0
            values[x] = values[x] - product * widths[x] if is_moving else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_diagonal(
    structure: Any, springs: Any, begin: int, end: int, shift: int, scale: FloatArray
) -> None:
    """Add what the springs of each label come to: they differ by many orders of magnitude."""
    for factor in range(begin, end):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        base = structure.message_offsets[first]
        size = structure.message_offsets[stop] - base
        for slot in range(first, stop if stop - first > 1 else first):
            start = structure.message_offsets[slot] - base
            source = structure.unary_offsets[structure.slot_variables[slot]] - shift
            for y in range(structure.message_offsets[slot + 1] - base - start):
                if springs.kinds[factor] == PAIR:
                    scale[source + y] += abs(springs.stiff[factor])
                else:
                    place = springs.offsets[factor] + (start + y) * (size + 1)
                    scale[source + y] += max(0.0, springs.inverses[place] - 1.0)


@njit(cache=True, nogil=True, error_model="numpy")
def newton_targets(
    structure: Any,
    variable_offsets: LongArray,
    factor_offsets: LongArray,
    examples: LongArray,
    damping: FloatArray,
    accuracy: FloatArray,
    springs: Any,
    log_beliefs: FloatArray,
    beliefs: FloatArray,
    force: FloatArray,
    free: BoolArray,
    targets: FloatArray,
    slopes: FloatArray,
) -> None:
    """Where a damped Newton step would take some examples, and its slopes.

    ``damping`` and ``accuracy``, the share of the force that conjugate gradients may leave, are by
    example.
    """
    widest, longest = 0, 1
    for k in range(len(examples)):
        begin, end = variable_offsets[examples[k]], variable_offsets[examples[k] + 1]
        widest = max(widest, structure.unary_offsets[end] - structure.unary_offsets[begin])
    for factor in range(len(springs.kinds)):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        longest = max(longest, structure.message_offsets[stop] - structure.message_offsets[first])
    work, scratch = np.empty((7, widest)), np.empty(longest)
    for k in range(len(examples)):
        m = examples[k]
        begin, end = variable_offsets[m], variable_offsets[m + 1]
        shift = structure.unary_offsets[begin]
        n = structure.unary_offsets[end] - shift
        z, rest, way, pull = work[0, :n], work[1, :n], work[2, :n], work[3, :n]
        shifts, widths, scale = work[4, :n], work[5, :n], work[6, :n]
        for i in range(begin, end):
            degree = structure.variable_slot_offsets[i + 1] - structure.variable_slot_offsets[i]
            for x in range(
                structure.unary_offsets[i] - shift, structure.unary_offsets[i + 1] - shift
            ):
                widths[x] = sqrt(beliefs[shift + x])
                shifts[x] = 1.0 - degree + damping[m]
                scale[x] = LEAST_STIFFNESS + damping[m]
                z[x] = 0.0
                rest[x] = widths[x] * force[shift + x]
        _project(structure, begin, end, shift, free, widths, rest)
        _fill_diagonal(structure, springs, factor_offsets[m], factor_offsets[m + 1], shift, scale)
        start = 0.0
        for x in range(n):
            way[x] = rest[x] / scale[x]
        _project(structure, begin, end, shift, free, widths, way)
        for x in range(n):
            start += rest[x] * way[x]
        product = start
        for step in range(STEPS_PER_LABEL * n):
            _pull(
                structure, springs, factor_offsets[m], factor_offsets[m + 1], shift, shifts,
                widths, way, pull, scratch,
            )  # fmt: skip
            _project(structure, begin, end, shift, free, widths, pull)
            curvature, length = 0.0, 0.0
            for x in range(n):
                curvature += way[x] * pull[x]
                length += way[x] * way[x] * scale[x]
            if not curvature > FLAT * length:
                if step == 0:
                    z[:] = way
                break
            share = product / curvature
            for x in range(n):
                z[x] += share * way[x]
                rest[x] -= share * pull[x]
                pull[x] = rest[x] / scale[x]  # the preconditioned rest, in memory that is free
            _project(structure, begin, end, shift, free, widths, pull)
            new = 0.0
            for x in range(n):
                new += rest[x] * pull[x]
            if new <= accuracy[m] * accuracy[m] * start:
                break
            for x in range(n):
                way[x] = pull[x] + (new / product) * way[x]
            product = new
        slope = 0.0
        for x in range(n):
            move = 0.0
            if widths[x] > 0.0:
                move = min(max(z[x] / widths[x], -LONGEST), LONGEST)
            slope -= beliefs[shift + x] * force[shift + x] * move
            targets[shift + x] = NO_WEIGHT
            if log_beliefs[shift + x] > NO_WEIGHT:
                targets[shift + x] = log_beliefs[shift + x] + move
        slopes[m] = slope
