"""The sweeps of `sweeps` in threads: chunks of one level at a time, same messages bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from fieldfit.errors import InvalidInputError
from fieldfit.kernels.arrays import ABOVE_TOLERANCE
from fieldfit.kernels.factor_messages import update_slots
from fieldfit.kernels.pair_messages import BLOCK, update_pairs
from fieldfit.kernels.sweeps import refresh

IntArray = NDArray[np.int32]

#: A level with less work than this per thread, in nanoseconds, is not worth waking one.
SMALLEST_CHUNK = 15_000


@njit(cache=True, nogil=True, error_model="numpy")
def chunk_bound(begin: int, end: int, chunk: int, n_chunks: int) -> Any:
    """Where a chunk begins: evenly spaced, whole blocks.

    A 32-bit integer, as plans hold: kernels compiled for 64-bit bounds would be other code, which
    rounds differently from the serial one.
    """
    if chunk >= n_chunks:
        return np.int32(end)
    size = (end - begin) * chunk // n_chunks
    return np.int32(min(end, begin + size // BLOCK * BLOCK))


@njit(cache=True, nogil=True, error_model="numpy")
def slot_chunk_bound(
    structure: Any, slots: IntArray, begin: int, end: int, chunk: int, n_chunks: int
) -> int:
    """`chunk_bound`, moved on so that the slots of one factor stay together."""
    bound = chunk_bound(begin, end, chunk, n_chunks)
    while (
        begin < bound < end
        and structure.slot_factors[slots[bound]] == structure.slot_factors[slots[bound - 1]]
    ):
        bound = np.int32(bound + 1)
    return bound


@njit(cache=True, nogil=True, error_model="numpy", parallel=True)
def run_sweeps_in_threads(
    labels: Any,
    structure: Any,
    plan: Any,
    model: Any,
    state: Any,
    changes: Any,
    damping: float,
    tol: float,
    max_sweeps: int,
    n_threads: int,
) -> tuple[int, int]:
    """`sweeps.run_sweeps` with ``n_threads`` chunks for each level that is large enough."""
    n_levels = len(plan.variable_offsets) - 1
    # nanoseconds of a message: index work, exponentials and logarithms, table
    cost = 10 + 5 * len(labels) + len(labels) ** 2 // 2
    chunk_flags = np.zeros(n_threads, dtype=np.int64)
    flags = ABOVE_TOLERANCE
    n_sweeps = 0
    while n_sweeps < max_sweeps and flags == ABOVE_TOLERANCE:
        flags = 0
        chunk_flags[:] = 0
        for level in range(n_levels):
            first_pair, last_pair = plan.pair_offsets[level], plan.pair_offsets[level + 1]
            first_slot, last_slot = plan.slot_offsets[level], plan.slot_offsets[level + 1]
            first, last = plan.variable_offsets[level], plan.variable_offsets[level + 1]
            n_messages = last_pair - first_pair + last_slot - first_slot
            if n_messages * cost < SMALLEST_CHUNK * n_threads:
                flags |= update_pairs(
                    labels, structure, plan, first_pair, last_pair, model, state, changes.pair,
                    damping, tol,
                )  # fmt: skip
                flags |= update_slots(
                    structure, plan, first_slot, last_slot, model, state, changes.slot, damping, tol
                )
                flags |= refresh(labels, structure, plan.variables, first, last, model, state)
                continue
            for chunk in prange(n_threads):
                chunk_flags[chunk] |= update_pairs(
                    labels,
                    structure,
                    plan,
                    chunk_bound(first_pair, last_pair, chunk, n_threads),
                    chunk_bound(first_pair, last_pair, chunk + 1, n_threads),
                    model,
                    state,
                    changes.pair,
                    damping,
                    tol,
                ) | update_slots(
                    structure,
                    plan,
                    slot_chunk_bound(
                        structure, plan.slots, first_slot, last_slot, chunk, n_threads
                    ),
                    slot_chunk_bound(
                        structure, plan.slots, first_slot, last_slot, chunk + 1, n_threads
                    ),
                    model,
                    state,
                    changes.slot,
                    damping,
                    tol,
                )
            for chunk in prange(n_threads):
                chunk_flags[chunk] |= refresh(
                    labels,
                    structure,
                    plan.variables,
                    chunk_bound(first, last, chunk, n_threads),
                    chunk_bound(first, last, chunk + 1, n_threads),
                    model,
                    state,
                )
        for chunk in range(n_threads):
            flags |= chunk_flags[chunk]
        n_sweeps += 1
    return n_sweeps, flags


def threaded_sweeps(n_jobs: int) -> Callable[..., tuple[int, int]]:
    """A function like `sweeps.run_sweeps` that uses ``n_jobs`` threads (-1: all cores)."""
    available = int(numba.config.NUMBA_NUM_THREADS)
    if n_jobs == 0 or n_jobs < -1:
        raise InvalidInputError(f"n_jobs must be positive, -1 or None, got {n_jobs}")
    n_threads = available if n_jobs == -1 else min(n_jobs, available)

    def run(*arguments: Any) -> tuple[int, int]:
        before = numba.get_num_threads()
        numba.set_num_threads(n_threads)
        try:
            n_sweeps, flags = run_sweeps_in_threads(*arguments, n_threads)
        finally:
            numba.set_num_threads(before)
        return int(n_sweeps), int(flags)

    return run
