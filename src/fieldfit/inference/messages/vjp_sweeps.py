"""Sweeps with a tape, and the backward pass over them (see `vjp_arrays`).

Forward, a level first copies the messages that it will replace to the tape.  Backward, it takes
them from there and forms the beliefs anew, so the state is again, bit for bit, what the level saw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import carray, prange

from fieldfit._parallel import kernel_threads
from fieldfit._typing import Index, IntArray
from fieldfit.graph.structure import Structure
from fieldfit.inference.messages.factor_update import update_slots
from fieldfit.inference.messages.message_arrays import NO_WEIGHT, Changes, Model, Plan, State
from fieldfit.inference.messages.message_sweeps import (
    SMALLEST_CHUNK,
    chunk_bound,
    refresh,
    slot_chunk_bound,
)
from fieldfit.inference.messages.pair_update import update_pairs
from fieldfit.inference.messages.vjp_arrays import Adjoint, Tape
from fieldfit.inference.messages.vjp_factor_update import vjp_slots
from fieldfit.inference.messages.vjp_pair_update import vjp_pairs
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import load, stack_scratch, store


@kernel
def save_pairs(
    k: tuple[int, ...], plan: Plan, begin: int, end: int, state: State, tape: Tape
) -> None:
    """Copy the messages of pair slots ``begin`` to ``end`` of the plan to the tape."""
    n_labels = len(k)
    for index in range(begin, end):
        target = load(plan.pair_target, index)
        for y in range(n_labels):
            store(tape.pair, index * n_labels + y, load(state.message, target + y))


@kernel
def save_slots(
    structure: Structure, plan: Plan, begin: int, end: int, state: State, tape: Tape
) -> None:
    """`save_pairs` for all other slots."""
    for index in range(begin, end):
        target = structure.message_offsets[plan.slots[index]]
        place = tape.slot_offsets[index]
        for y in range(tape.slot_offsets[index + 1] - place):
            tape.slot[place + y] = state.message[target + y]


@kernel
def restore_pairs(
    k: tuple[int, ...],
    plan: Plan,
    begin: int,
    end: int,
    state: State,
    tape: Tape,
    adjoint: Adjoint,
    damping: float,
    entropy: bool,
) -> None:
    """Put back the messages of pair slots; first note ``<g[new], new>``, ``new`` undamped."""
    n_labels = len(k)
    for index in range(begin, end):
        target = load(plan.pair_target, index)
        place = index * n_labels
        if entropy:
            factor = load(plan.pair_factor, index)
            total = 0.0
            for y in range(n_labels):
                new = load(state.message, target + y)
                if new > NO_WEIGHT:  # what is impossible has no derivative
                    kept = damping * load(tape.pair, place + y) if damping != 0.0 else 0.0
                    total += load(adjoint.message, target + y) * (new - kept)
            adjoint.products[factor if factor >= 0 else ~factor] += total
        for y in range(n_labels):
            store(state.message, target + y, load(tape.pair, place + y))


@kernel
def restore_slots(
    structure: Structure,
    plan: Plan,
    begin: int,
    end: int,
    state: State,
    tape: Tape,
    adjoint: Adjoint,
    damping: float,
    entropy: bool,
) -> None:
    """`restore_pairs` for all other slots."""
    for index in range(begin, end):
        slot = plan.slots[index]
        target = structure.message_offsets[slot]
        place = tape.slot_offsets[index]
        n_labels = tape.slot_offsets[index + 1] - place
        if entropy:
            total = 0.0
            for y in range(n_labels):
                new = state.message[target + y]
                if new > NO_WEIGHT:
                    kept = damping * tape.slot[place + y] if damping != 0.0 else 0.0
                    total += adjoint.message[target + y] * (new - kept)
            adjoint.products[structure.slot_factors[slot]] += total
        for y in range(n_labels):
            state.message[target + y] = tape.slot[place + y]


@kernel
def vjp_refresh(
    k: tuple[int, ...],
    structure: Structure,
    variables: IntArray,
    begin: Index,
    end: Index,
    model: Model,
    state: State,
    adjoint: Adjoint,
    entropy: bool,
) -> None:
    """Backward through `refresh` for ``variables[begin:end]``, and through ``lam``."""
    n_common = len(k)
    total = carray(stack_scratch(k, 1), (n_common,))
    for index in range(begin, end):
        i = load(variables, index)
        offset = load(structure.unary_offsets, i)
        n_labels = load(structure.cardinalities, i)
        first = load(structure.variable_slot_offsets, i)
        stop = load(structure.variable_slot_offsets, i + 1)
        inverse = 1.0 / load(model.variable_total, i)
        if n_labels == n_common:  # the same loops with a trip count known to the compiler
            for y in range(n_common):
                store(total, y, load(adjoint.log_belief, offset + y))
                store(adjoint.log_belief, offset + y, 0.0)
            for position in range(first, stop):
                slot = load(structure.variable_slots, position)
                weight = load(model.factor_weight, load(structure.slot_factors, slot))
                source = load(structure.message_offsets, slot)
                for y in range(n_common):
                    value = load(total, y) + weight * load(adjoint.incoming, source + y)
                    store(total, y, value)
            for y in range(n_common):
                store(total, y, load(total, y) * inverse)
            for position in range(first, stop):
                slot = load(structure.variable_slots, position)
                source = load(structure.message_offsets, slot)
                for y in range(n_common):
                    value = load(adjoint.message, source + y) + load(total, y)
                    value -= load(adjoint.incoming, source + y)
                    store(adjoint.message, source + y, value)
                    store(adjoint.incoming, source + y, 0.0)
            for y in range(n_common):
                store(adjoint.unary, offset + y, load(adjoint.unary, offset + y) + load(total, y))
            if entropy:
                product = 0.0
                for y in range(n_common):
                    value = load(state.log_belief, offset + y)
                    product += load(total, y) * value if value > NO_WEIGHT else 0.0
                adjoint.variable_total[i] -= product
            continue
        product = 0.0
        for y in range(n_labels):
            value = adjoint.log_belief[offset + y]
            adjoint.log_belief[offset + y] = 0.0
            for position in range(first, stop):
                slot = structure.variable_slots[position]
                weight = model.factor_weight[structure.slot_factors[slot]]
                value += weight * adjoint.incoming[structure.message_offsets[slot] + y]
            value *= inverse
            for position in range(first, stop):
                source = structure.message_offsets[structure.variable_slots[position]] + y
                adjoint.message[source] += value - adjoint.incoming[source]
                adjoint.incoming[source] = 0.0
            adjoint.unary[offset + y] += value
            if state.log_belief[offset + y] > NO_WEIGHT:
                product += value * state.log_belief[offset + y]
        if entropy:
            adjoint.variable_total[i] -= product


@kernel
def sweep_with_tape(
    k: tuple[int, ...],
    structure: Structure,
    plan: Plan,
    model: Model,
    state: State,
    changes: Changes,
    damping: float,
    tape: Tape,
) -> int:
    """One sweep over a plan, with a tape; returns flags."""
    flags = 0
    for level in range(len(plan.variable_offsets) - 1):
        begin, end = plan.pair_offsets[level], plan.pair_offsets[level + 1]
        if begin < end:
            save_pairs(k, plan, begin, end, state, tape)
            flags |= update_pairs(
                k, structure, plan, begin, end, model, state, changes.pair, damping, np.inf
            )
        begin, end = plan.slot_offsets[level], plan.slot_offsets[level + 1]
        if begin < end:
            save_slots(structure, plan, begin, end, state, tape)
            flags |= update_slots(
                structure, plan, begin, end, model, state, changes.slot, damping, np.inf
            )
        begin, end = plan.variable_offsets[level], plan.variable_offsets[level + 1]
        flags |= refresh(k, structure, plan.variables, begin, end, model, state)
    return flags


@kernel
def vjp_sweep(
    k: tuple[int, ...],
    structure: Structure,
    plan: Plan,
    model: Model,
    state: State,
    adjoint: Adjoint,
    damping: float,
    entropy: bool,
    tape: Tape,
) -> None:
    """Backward over one sweep; ``entropy`` asks for the derivatives by counting numbers."""
    for level in range(len(plan.variable_offsets) - 2, -1, -1):
        first, last = plan.variable_offsets[level], plan.variable_offsets[level + 1]
        first_pair, last_pair = plan.pair_offsets[level], plan.pair_offsets[level + 1]
        first_slot, last_slot = plan.slot_offsets[level], plan.slot_offsets[level + 1]
        vjp_refresh(k, structure, plan.variables, first, last, model, state, adjoint, entropy)
        restore_pairs(k, plan, first_pair, last_pair, state, tape, adjoint, damping, entropy)
        restore_slots(
            structure, plan, first_slot, last_slot, state, tape, adjoint, damping, entropy
        )
        refresh(k, structure, plan.variables, first, last, model, state)
        if first_pair < last_pair:
            vjp_pairs(
                k, structure, plan, first_pair, last_pair, model, state, adjoint, damping,
                entropy,
            )  # fmt: skip
        if first_slot < last_slot:
            vjp_slots(
                structure, plan, first_slot, last_slot, model, state, adjoint, damping, entropy
            )


# -- In threads: chunks of one level, the same numbers bit for bit ------------------------


@kernel(parallel=True)
def sweep_with_tape_in_threads(
    k: tuple[int, ...],
    structure: Structure,
    plan: Plan,
    model: Model,
    state: State,
    changes: Changes,
    damping: float,
    tape: Tape,
    n_threads: int,
) -> int:
    """`sweep_with_tape` with ``n_threads`` chunks for each large level."""
    # nanoseconds of a message, as in `run_sweeps_in_threads`
    cost = 10 + 5 * len(k) + len(k) ** 2 // 2
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
            save_pairs(k, plan, begin, end, state, tape)
            chunk_flags[chunk] |= update_pairs(
                k, structure, plan, begin, end, model, state, changes.pair, damping, np.inf
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
                k,
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


@kernel(parallel=True)
def vjp_sweep_in_threads(
    k: tuple[int, ...],
    structure: Structure,
    plan: Plan,
    model: Model,
    state: State,
    adjoint: Adjoint,
    damping: float,
    entropy: bool,
    tape: Tape,
    n_threads: int,
) -> None:
    """`vjp_sweep` likewise."""
    cost = 10 + 5 * len(k) + len(k) ** 2 // 2
    for level in range(len(plan.variable_offsets) - 2, -1, -1):
        first_pair, last_pair = plan.pair_offsets[level], plan.pair_offsets[level + 1]
        first_slot, last_slot = plan.slot_offsets[level], plan.slot_offsets[level + 1]
        first, last = plan.variable_offsets[level], plan.variable_offsets[level + 1]
        n_messages = last_pair - first_pair + last_slot - first_slot
        n_chunks = n_threads if n_messages * cost >= SMALLEST_CHUNK * n_threads else 1
        for chunk in prange(n_chunks):
            begin = chunk_bound(first, last, chunk, n_chunks)
            end = chunk_bound(first, last, chunk + 1, n_chunks)
            vjp_refresh(k, structure, plan.variables, begin, end, model, state, adjoint, entropy)
        for chunk in prange(n_chunks):
            begin = chunk_bound(first_pair, last_pair, chunk, n_chunks)
            end = chunk_bound(first_pair, last_pair, chunk + 1, n_chunks)
            restore_pairs(k, plan, begin, end, state, tape, adjoint, damping, entropy)
            begin = slot_chunk_bound(structure, plan.slots, first_slot, last_slot, chunk, n_chunks)
            end = slot_chunk_bound(
                structure, plan.slots, first_slot, last_slot, chunk + 1, n_chunks
            )
            restore_slots(structure, plan, begin, end, state, tape, adjoint, damping, entropy)
        for chunk in prange(n_chunks):
            begin = chunk_bound(first, last, chunk, n_chunks)
            end = chunk_bound(first, last, chunk + 1, n_chunks)
            refresh(k, structure, plan.variables, begin, end, model, state)
        for chunk in prange(n_chunks):
            begin = chunk_bound(first_pair, last_pair, chunk, n_chunks)
            end = chunk_bound(first_pair, last_pair, chunk + 1, n_chunks)
            vjp_pairs(k, structure, plan, begin, end, model, state, adjoint, damping, entropy)
            begin = slot_chunk_bound(structure, plan.slots, first_slot, last_slot, chunk, n_chunks)
            end = slot_chunk_bound(
                structure, plan.slots, first_slot, last_slot, chunk + 1, n_chunks
            )
            vjp_slots(structure, plan, begin, end, model, state, adjoint, damping, entropy)


def threaded_kernels(n_jobs: int | None) -> tuple[Callable[..., int], Callable[..., None]]:
    """Functions like `sweep_with_tape` and `vjp_sweep` with ``n_jobs`` threads."""

    def in_threads(kernel: Callable[..., Any], *arguments: Any) -> Any:
        with kernel_threads(n_jobs) as n_threads:
            return kernel(*arguments, n_threads)

    def forward(*arguments: Any) -> int:
        return int(in_threads(sweep_with_tape_in_threads, *arguments))

    def backward(*arguments: Any) -> None:
        in_threads(vjp_sweep_in_threads, *arguments)

    return forward, backward
