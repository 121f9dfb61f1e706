"""Sweeps of message passing over a plan, serial and in threads.

A level of the plan is a set of messages that do not depend on each other: they are computed from
the old beliefs, then the beliefs of the variables that received them are refreshed.  The update is
stated in `fieldfit.inference.messages.message_arrays`.  Sweeps may be restricted to what can still
change, and may split a level among threads; neither changes a bit of the messages computed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import carray, prange

from fieldfit._parallel import kernel_threads, n_kernel_threads
from fieldfit._typing import BoolArray, FloatArray, Index, IntArray
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.structure import Structure
from fieldfit.inference.messages.factor_update import update_slots
from fieldfit.inference.messages.message_arrays import (
    ABOVE_TOLERANCE,
    CONTRADICTION,
    NO_WEIGHT,
    Changes,
    Model,
    Plan,
    State,
)
from fieldfit.inference.messages.pair_update import BLOCK, update_pairs
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH, load, stack_scratch, store


@kernel(fastmath=SAFE_FASTMATH)
def refresh(
    k: tuple[int, ...],
    structure: Structure,
    variables: IntArray,
    begin: Index,
    end: Index,
    model: Model,
    state: State,
) -> int:
    """``log tau_i = (th_i + sum_a m_ai) / chat_i``, maximum 0, for ``variables[begin:end]``."""
    n_common = len(k)
    total = carray(stack_scratch(k, 1), (n_common,))
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


@kernel
def run_sweeps(
    k: tuple[int, ...],
    structure: Structure,
    plan: Plan,
    model: Model,
    state: State,
    changes: Changes,
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
                    k, structure, plan, begin, end, model, state, changes.pair, damping, tol
                )
            begin, end = plan.slot_offsets[level], plan.slot_offsets[level + 1]
            if begin < end:
                flags |= update_slots(
                    structure, plan, begin, end, model, state, changes.slot, damping, tol
                )
            begin, end = plan.variable_offsets[level], plan.variable_offsets[level + 1]
            flags |= refresh(k, structure, plan.variables, begin, end, model, state)
        n_sweeps += 1
    return n_sweeps, flags


# -- Active messages: restrict a plan to what may still change ---------------------------
# A message depends on the beliefs of the other variables of its factor.  Where none of them moved
# by more than a threshold in the last sweep there is nothing to do; in a large graph, or a batch
# of many examples, most messages converge long before the last ones do.


@kernel
def pair_owner(structure: Structure, signed_factor: int) -> int:
    """Variable that receives the message of a pair slot."""
    if signed_factor >= 0:
        return load(structure.slot_variables, load(structure.scope_offsets, signed_factor) + 1)
    return load(structure.slot_variables, load(structure.scope_offsets, ~signed_factor))


@kernel
def variable_changes(structure: Structure, plan: Plan, changes: Changes) -> FloatArray:
    """Largest change of a message into each variable in the last sweep over ``plan``."""
    largest = np.zeros(len(structure.cardinalities))
    for position in range(len(plan.pair_factor)):
        owner = pair_owner(structure, load(plan.pair_factor, position))
        store(largest, owner, max(load(largest, owner), load(changes.pair, position)))
    for position in range(len(plan.slots)):
        owner = structure.slot_variables[plan.slots[position]]
        largest[owner] = max(largest[owner], changes.slot[position])
    return largest


@kernel
def neighbours_of_moved(structure: Structure, largest: FloatArray, threshold: float) -> BoolArray:
    """Mark the variables that share a factor with one that moved by more than ``threshold``."""
    active = np.zeros(len(structure.cardinalities), dtype=np.bool_)
    for j in range(len(structure.cardinalities)):
        if largest[j] > threshold:
            for position in range(
                structure.variable_slot_offsets[j], structure.variable_slot_offsets[j + 1]
            ):
                factor = structure.slot_factors[structure.variable_slots[position]]
                for slot in range(
                    structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
                ):
                    i = structure.slot_variables[slot]
                    if i != j:
                        active[i] = True
    return active


def restricted_plan(structure: Structure, plan: Plan, active: BoolArray) -> Plan:
    """The part of a plan whose messages go to active variables; levels are kept.

    A flooding plan lists the two slots of a pair one after the other, and blocks and threads rely
    on finding both together, so that neither reads what the other writes: both stay or both go.
    """
    return Plan(*_arrays_of_part(structure, plan, active))


@kernel
def _arrays_of_part(structure: Structure, plan: Plan, active: BoolArray) -> tuple[IntArray, ...]:
    n_levels = len(plan.variable_offsets) - 1
    kept = Plan(
        np.empty_like(plan.pair_target),
        np.empty_like(plan.pair_source),
        np.empty_like(plan.pair_factor),
        np.zeros(n_levels + 1, dtype=np.int32),
        np.empty_like(plan.slots),
        np.zeros(n_levels + 1, dtype=np.int32),
        np.empty_like(plan.variables),
        np.zeros(n_levels + 1, dtype=np.int32),
    )
    refreshed = active.copy()
    n_pairs, n_slots, n_variables = 0, 0, 0
    for level in range(n_levels):
        begin, end = plan.pair_offsets[level], plan.pair_offsets[level + 1]
        for position in range(begin, end):
            factor = load(plan.pair_factor, position)
            owner = pair_owner(structure, factor)
            is_kept = active[owner]
            if not is_kept and (
                (position > begin and load(plan.pair_factor, position - 1) == ~factor)
                or (position + 1 < end and load(plan.pair_factor, position + 1) == ~factor)
            ):
                is_kept = active[pair_owner(structure, ~factor)]
                refreshed[owner] |= is_kept
            if is_kept:
                store(kept.pair_target, n_pairs, load(plan.pair_target, position))
                store(kept.pair_source, n_pairs, load(plan.pair_source, position))
                store(kept.pair_factor, n_pairs, factor)
                n_pairs += 1
        for position in range(plan.slot_offsets[level], plan.slot_offsets[level + 1]):
            if active[structure.slot_variables[plan.slots[position]]]:
                kept.slots[n_slots] = plan.slots[position]
                n_slots += 1
        for position in range(plan.variable_offsets[level], plan.variable_offsets[level + 1]):
            if refreshed[plan.variables[position]]:
                kept.variables[n_variables] = plan.variables[position]
                n_variables += 1
        kept.pair_offsets[level + 1] = n_pairs
        kept.slot_offsets[level + 1] = n_slots
        kept.variable_offsets[level + 1] = n_variables
    return (
        kept.pair_target[:n_pairs],
        kept.pair_source[:n_pairs],
        kept.pair_factor[:n_pairs],
        kept.pair_offsets,
        kept.slots[:n_slots],
        kept.slot_offsets,
        kept.variables[:n_variables],
        kept.variable_offsets,
    )


# -- In threads: chunks of one level at a time, the same messages bit for bit ------------


#: A level with less work than this per thread, in nanoseconds, is not worth waking one.
SMALLEST_CHUNK = 15_000


@kernel
def chunk_bound(begin: int, end: int, chunk: int, n_chunks: int) -> Any:
    """Where a chunk begins: evenly spaced, whole blocks.

    A 32-bit integer, as plans hold: kernels compiled for 64-bit bounds would be other code, which
    rounds differently from the serial one.
    """
    if chunk >= n_chunks:
        return np.int32(end)
    size = (end - begin) * chunk // n_chunks
    return np.int32(min(end, begin + size // BLOCK * BLOCK))


@kernel
def slot_chunk_bound(
    structure: Structure, slots: IntArray, begin: int, end: int, chunk: int, n_chunks: int
) -> int:
    """`chunk_bound`, moved on so that the slots of one factor stay together."""
    bound = chunk_bound(begin, end, chunk, n_chunks)
    while (
        begin < bound < end
        and structure.slot_factors[slots[bound]] == structure.slot_factors[slots[bound - 1]]
    ):
        bound = np.int32(bound + 1)
    return bound


@kernel(parallel=True)
def run_sweeps_in_threads(
    k: tuple[int, ...],
    structure: Structure,
    plan: Plan,
    model: Model,
    state: State,
    changes: Changes,
    damping: float,
    tol: float,
    max_sweeps: int,
    n_threads: int,
) -> tuple[int, int]:
    """`run_sweeps` with ``n_threads`` chunks for each level that is large enough."""
    n_levels = len(plan.variable_offsets) - 1
    # nanoseconds of a message: index work, exponentials and logarithms, table
    cost = 10 + 5 * len(k) + len(k) ** 2 // 2
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
                    k, structure, plan, first_pair, last_pair, model, state, changes.pair,
                    damping, tol,
                )  # fmt: skip
                flags |= update_slots(
                    structure, plan, first_slot, last_slot, model, state, changes.slot, damping, tol
                )
                flags |= refresh(k, structure, plan.variables, first, last, model, state)
                continue
            for chunk in prange(n_threads):
                chunk_flags[chunk] |= update_pairs(
                    k,
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
                    k,
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


def threaded_sweeps(n_jobs: int | None) -> Callable[..., tuple[int, int]]:
    """A function like `run_sweeps` that uses ``n_jobs`` threads."""

    def run(*arguments: Any) -> tuple[int, int]:
        with kernel_threads(n_jobs) as n_threads:
            n_sweeps, flags = run_sweeps_in_threads(*(*arguments, n_threads))
        return int(n_sweeps), int(flags)

    return run


def sweep_kernel(n_jobs: int | None) -> Callable[..., tuple[int, int]]:
    """The serial or the threaded sweep; the threaded one is compiled only when asked for."""
    return run_sweeps if n_kernel_threads(n_jobs) == 1 else threaded_sweeps(n_jobs)


class Sweeps(ABC):
    """Sweeps of one run over all of its messages, and over parts of them.

    What says which part is made and read by the same class only.
    """

    everything: Any  # the part that is all

    @abstractmethod
    def restricted(self, active: BoolArray) -> Any:
        """The part whose messages go to active variables."""

    @abstractmethod
    def n_messages(self, part: Any) -> int:
        """Messages of one sweep."""

    @abstractmethod
    def n_active(self, part: Any) -> int:
        """Variables that a sweep visits."""

    @abstractmethod
    def run(
        self, part: Any, damping: float, tol: float, max_sweeps: int
    ) -> tuple[int, int, FloatArray]:
        """Number of sweeps, flags, and the last changes of the messages into each variable."""

    @abstractmethod
    def write_back(self) -> None:
        """Bring the state of the run up to date."""


class PlanSweeps(Sweeps):
    """Sweeps over a plan, for any model; they work in the state of the run."""

    def __init__(
        self,
        graph: FactorGraph,
        plan: Plan,
        k: tuple[int, ...],
        model: Model,
        state: State,
        n_jobs: int | None,
    ) -> None:
        self.everything = plan
        self._structure = graph.structure
        self._k, self._model, self._state = k, model, state
        self._kernel = sweep_kernel(n_jobs)

    def restricted(self, active: BoolArray) -> Plan:
        return restricted_plan(self._structure, self.everything, active)

    def n_messages(self, part: Plan) -> int:
        return len(part.pair_target) + len(part.slots)

    def n_active(self, part: Plan) -> int:
        return len(part.variables)

    def run(
        self, part: Plan, damping: float, tol: float, max_sweeps: int
    ) -> tuple[int, int, FloatArray]:
        changes = Changes(np.zeros(len(part.pair_target)), np.zeros(len(part.slots)))
        n_sweeps, flags = self._kernel(
            self._k, self._structure, part, self._model, self._state, changes, damping, tol,
            max_sweeps,
        )  # fmt: skip
        return n_sweeps, flags, variable_changes(self._structure, part, changes)

    def write_back(self) -> None:
        """Nothing to do."""
