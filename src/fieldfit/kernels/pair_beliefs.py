"""Beliefs of pairwise factors with a common number of labels ``K`` (see `arrays` and `beliefs`).

    tau_a(x, y) = e(x) E_a(x, y) f(y) / Z,    e = exp(lam_ax / c_a), f likewise,
    E_a = exp(th_a / c_a)

with ``e``, ``f`` and ``E_a`` scaled to maximum 1.  The tables ``E_a`` are those of the messages, so
a factor costs ``2 K`` exponentials instead of ``K^2``, and learning needs beliefs at every step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit
from numpy.typing import NDArray

from fieldfit.kernels.arrays import NO_WEIGHT, TINY
from fieldfit.kernels.pair_messages import largest_of
from fieldfit.kernels.simd import SAFE_FASTMATH, fast_exp, fast_log, load, stack_scratch, store

FloatArray = NDArray[np.float64]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=SAFE_FASTMATH)
def pair_beliefs(
    labels: Any,
    structure: Any,
    model: Any,
    state: Any,
    beliefs: FloatArray,
    log_normalizer: FloatArray,
) -> None:
    """Beliefs and ``log Z_a`` of the pairs; of all other factors ``log_normalizer`` becomes NaN.

    So does it where the sum is too small to be right in the linear domain.
    """
    n_labels = len(labels)
    inner = carray(stack_scratch(labels, 2), (2 * n_labels,))
    for factor in range(len(structure.scope_offsets) - 1):
        first = load(structure.scope_offsets, factor)
        store(log_normalizer, factor, np.nan)
        if load(structure.scope_offsets, factor + 1) - first != 2:
            continue
        is_common = True
        for side in range(2):
            variable = load(structure.slot_variables, first + side)
            is_common &= load(structure.cardinalities, variable) == n_labels
        if not is_common:
            continue
        weight = load(model.factor_weight, factor)
        inverse = 1.0 if weight == 1.0 else 1.0 / weight
        shift = 0.0
        possible = True
        for side in range(2):
            variable = load(structure.slot_variables, first + side)
            source = load(structure.unary_offsets, variable)
            offset = load(structure.message_offsets, first + side)
            row = side * n_labels
            for y in range(n_labels):
                old = load(state.message, offset + y)
                value = weight * load(state.log_belief, source + y) - old
                store(inner, row + y, value * inverse if old > NO_WEIGHT else NO_WEIGHT)
            top = largest_of(labels, inner, row)
            possible &= top > NO_WEIGHT
            shift += top
            for y in range(n_labels):
                store(inner, row + y, fast_exp(load(inner, row + y) - top))
        if not possible:
            continue
        table = load(structure.table_offsets, factor)
        top = load(model.log_table, table)
        for z in range(1, n_labels * n_labels):
            top = max(top, load(model.log_table, table + z))
        total = 0.0
        for x in range(n_labels):
            scale = load(inner, x)
            start = table + x * n_labels
            for y in range(n_labels):
                value = scale * load(model.exp_table, start + y) * load(inner, n_labels + y)
                store(beliefs, start + y, value)
                total += value
        if not total > TINY:
            continue
        normalizer = 1.0 / total
        for z in range(n_labels * n_labels):
            store(beliefs, table + z, load(beliefs, table + z) * normalizer)
        store(log_normalizer, factor, fast_log(total) + shift + top * inverse)
