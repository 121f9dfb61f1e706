"""Sweeps over a plan: messages of a level, then the beliefs of its variables (see `arrays`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit
from numpy.typing import NDArray

from fieldfit.kernels.arrays import ABOVE_TOLERANCE, CONTRADICTION, NO_WEIGHT
from fieldfit.kernels.factor_messages import update_slots
from fieldfit.kernels.pair_messages import update_pairs
from fieldfit.kernels.simd import SAFE_FASTMATH, load, stack_scratch, store

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=SAFE_FASTMATH)
def refresh(
    labels: Any, structure: Any, variables: IntArray, begin: int, end: int, model: Any, state: Any
) -> int:
    """``log tau_i = (th_i + sum_a m_ai) / chat_i``, maximum 0, for ``variables[begin:end]``."""
    n_common = len(labels)
    total = carray(stack_scratch(labels, 1), (n_common,))
    flags = 0
    for index in range(begin, end):
        i = load(variables, index)
        offset = load(structure.unary_offsets, i)
        n_labels = load(structure.cardinalities, i)
        first = load(structure.variable_slot_offsets, i)
        stop = load(structure.variable_slot_offsets, i + 1)
        inverse = 1.0 / load(model.variable_total, i)
        if n_labels == n_common:  # the same loops with a trip count known to the compiler
            for y in range(n_common):
                store(total, y, load(model.unary, offset + y))
            for position in range(first, stop):
                source = load(structure.message_offsets, load(structure.variable_slots, position))
                for y in range(n_common):
                    store(total, y, load(total, y) + load(state.message, source + y))
            top = load(total, 0)
            for y in range(1, n_common):
                top = max(top, load(total, y))
            if top == NO_WEIGHT:
                flags = CONTRADICTION
                top = 0.0
            for y in range(n_common):
                store(state.log_belief, offset + y, (load(total, y) - top) * inverse)
        else:
            top = NO_WEIGHT
            for y in range(n_labels):
                value = model.unary[offset + y]
                for position in range(first, stop):
                    slot = structure.variable_slots[position]
                    value += state.message[structure.message_offsets[slot] + y]
                state.log_belief[offset + y] = value
                top = max(top, value)
            if top == NO_WEIGHT:
                flags = CONTRADICTION
                top = 0.0
            for y in range(n_labels):
                state.log_belief[offset + y] = (state.log_belief[offset + y] - top) * inverse
    return flags


@njit(cache=True, nogil=True, error_model="numpy")
def run_sweeps(
    labels: Any,
    structure: Any,
    plan: Any,
    model: Any,
    state: Any,
    changes: Any,
    damping: float,
    tol: float,
    max_sweeps: int,
) -> tuple[int, int]:
    """Sweep until no message changes by more than ``tol``; number of sweeps and flags."""
    n_levels = len(plan.variable_offsets) - 1
    flags = ABOVE_TOLERANCE
    n_sweeps = 0
    while n_sweeps < max_sweeps and flags == ABOVE_TOLERANCE:
        flags = 0
        for level in range(n_levels):
            begin, end = plan.pair_offsets[level], plan.pair_offsets[level + 1]
            if begin < end:
                flags |= update_pairs(
                    labels, structure, plan, begin, end, model, state, changes.pair, damping, tol
                )
            begin, end = plan.slot_offsets[level], plan.slot_offsets[level + 1]
            if begin < end:
                flags |= update_slots(
                    structure, plan, begin, end, model, state, changes.slot, damping, tol
                )
            begin, end = plan.variable_offsets[level], plan.variable_offsets[level + 1]
            flags |= refresh(labels, structure, plan.variables, begin, end, model, state)
        n_sweeps += 1
    return n_sweeps, flags
