"""Recorded sweeps and the way back in threads: chunks of one level, same numbers bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import njit, prange

from fieldfit.errors import InvalidInputError
from fieldfit.kernels.factor_messages import update_slots
from fieldfit.kernels.pair_messages import update_pairs
from fieldfit.kernels.recorded_sweeps import (
    restore_pairs,
    restore_slots,
    reverse_refresh,
    save_pairs,
    save_slots,
)
from fieldfit.kernels.reverse_factors import reverse_slots
from fieldfit.kernels.reverse_pairs import reverse_pairs
from fieldfit.kernels.sweeps import refresh
from fieldfit.kernels.threads import SMALLEST_CHUNK, chunk_bound, slot_chunk_bound


@njit(cache=True, nogil=True, error_model="numpy", parallel=True)
def record_in_threads(
    labels: Any,
    structure: Any,
    plan: Any,
    model: Any,
    state: Any,
    changes: Any,
    damping: float,
    tape: Any,
    n_threads: int,
) -> int:
    """`recorded_sweeps.record_sweep` with ``n_threads`` chunks for each large level."""
    # nanoseconds of a message, as in `threads`
    cost = 10 + 5 * len(labels) + len(labels) ** 2 // 2
    chunk_flags = np.zeros(n_threads, dtype=np.int64)
    for level in range(len(plan.variable_offsets) - 1):
        first_pair, last_pair = plan.pair_offsets[level], plan.pair_offsets[level + 1]
        first_slot, last_slot = plan.slot_offsets[level], plan.slot_offsets[level + 1]
        first, last = plan.variable_offsets[level], plan.variable_offsets[level + 1]
        n_messages = last_pair - first_pair + last_slot - first_slot
        n_chunks = n_threads if n_messages * cost >= SMALLEST_CHUNK * n_threads else 1
        # slots of one factor are in one chunk, so nothing is overwritten before it is saved
        for chunk in prange(n_chunks):
            begin = chunk_bound(first_pair, last_pair, chunk, n_chunks)
            end = chunk_bound(first_pair, last_pair, chunk + 1, n_chunks)
            save_pairs(labels, plan, begin, end, state, tape)
            chunk_flags[chunk] |= update_pairs(
                labels, structure, plan, begin, end, model, state, changes.pair, damping, np.inf
            )
            begin = slot_chunk_bound(structure, plan.slots, first_slot, last_slot, chunk, n_chunks)
            end = slot_chunk_bound(
                structure, plan.slots, first_slot, last_slot, chunk + 1, n_chunks
            )
            save_slots(structure, plan, begin, end, state, tape)
            chunk_flags[chunk] |= update_slots(
                structure, plan, begin, end, model, state, changes.slot, damping, np.inf
            )
        for chunk in prange(n_chunks):
            chunk_flags[chunk] |= refresh(
                labels,
                structure,
                plan.variables,
                chunk_bound(first, last, chunk, n_chunks),
                chunk_bound(first, last, chunk + 1, n_chunks),
                model,
                state,
            )
    flags = 0
    for chunk in range(n_threads):
        flags |= chunk_flags[chunk]
    return flags


@njit(cache=True, nogil=True, error_model="numpy", parallel=True)
def reverse_in_threads(
    labels: Any,
    structure: Any,
    plan: Any,
    model: Any,
    state: Any,
    adjoint: Any,
    damping: float,
    entropy: bool,
    tape: Any,
    n_threads: int,
) -> None:
    """`recorded_sweeps.reverse_sweep` likewise."""
    cost = 10 + 5 * len(labels) + len(labels) ** 2 // 2
    for level in range(len(plan.variable_offsets) - 2, -1, -1):
        first_pair, last_pair = plan.pair_offsets[level], plan.pair_offsets[level + 1]
        first_slot, last_slot = plan.slot_offsets[level], plan.slot_offsets[level + 1]
        first, last = plan.variable_offsets[level], plan.variable_offsets[level + 1]
        n_messages = last_pair - first_pair + last_slot - first_slot
        n_chunks = n_threads if n_messages * cost >= SMALLEST_CHUNK * n_threads else 1
        for chunk in prange(n_chunks):
            begin = chunk_bound(first, last, chunk, n_chunks)
            end = chunk_bound(first, last, chunk + 1, n_chunks)
            reverse_refresh(
                labels, structure, plan.variables, begin, end, model, state, adjoint, entropy
            )
        for chunk in prange(n_chunks):
            begin = chunk_bound(first_pair, last_pair, chunk, n_chunks)
            end = chunk_bound(first_pair, last_pair, chunk + 1, n_chunks)
            restore_pairs(labels, plan, begin, end, state, tape, adjoint, damping, entropy)
            begin = slot_chunk_bound(structure, plan.slots, first_slot, last_slot, chunk, n_chunks)
            end = slot_chunk_bound(
                structure, plan.slots, first_slot, last_slot, chunk + 1, n_chunks
            )
            restore_slots(structure, plan, begin, end, state, tape, adjoint, damping, entropy)
        for chunk in prange(n_chunks):
            begin = chunk_bound(first, last, chunk, n_chunks)
            end = chunk_bound(first, last, chunk + 1, n_chunks)
            refresh(labels, structure, plan.variables, begin, end, model, state)
        for chunk in prange(n_chunks):
            begin = chunk_bound(first_pair, last_pair, chunk, n_chunks)
            end = chunk_bound(first_pair, last_pair, chunk + 1, n_chunks)
            reverse_pairs(
                labels, structure, plan, begin, end, model, state, adjoint, damping, entropy
            )
            begin = slot_chunk_bound(structure, plan.slots, first_slot, last_slot, chunk, n_chunks)
            end = slot_chunk_bound(
                structure, plan.slots, first_slot, last_slot, chunk + 1, n_chunks
            )
            reverse_slots(structure, plan, begin, end, model, state, adjoint, damping, entropy)


def threaded_kernels(n_jobs: int) -> tuple[Callable[..., int], Callable[..., None]]:
    """Functions like `record_sweep` and `reverse_sweep` with ``n_jobs`` threads (-1: all cores)."""
    available = int(numba.config.NUMBA_NUM_THREADS)
    if n_jobs == 0 or n_jobs < -1:
        raise InvalidInputError(f"n_jobs must be positive, -1 or None, got {n_jobs}")
    n_threads = available if n_jobs == -1 else min(n_jobs, available)

    def in_threads(kernel: Callable[..., Any], *arguments: Any) -> Any:
        before = numba.get_num_threads()
        numba.set_num_threads(n_threads)
        try:
            return kernel(*arguments, n_threads)
        finally:
            numba.set_num_threads(before)

    def record(*arguments: Any) -> int:
        return int(in_threads(record_in_threads, *arguments))

    def reverse(*arguments: Any) -> None:
        in_threads(reverse_in_threads, *arguments)

    return record, reverse
