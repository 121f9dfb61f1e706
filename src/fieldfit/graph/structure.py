"""The index arrays of a factor graph, and kernels on them: cycles, colouring, dependency levels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fieldfit._typing import IntArray
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH


class Structure(NamedTuple):
    """The index arrays of a graph, as kernels take them."""

    cardinalities: IntArray
    scope_offsets: IntArray
    slot_variables: IntArray
    slot_factors: IntArray
    unary_offsets: IntArray
    table_offsets: IntArray
    message_offsets: IntArray
    variable_slot_offsets: IntArray
    variable_slots: IntArray


@kernel
def find_root(parents: IntArray, node: int) -> int:
    """Root of ``node`` in a union-find forest, with path halving."""
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


@kernel
def count_cycles(n_variables: int, scope_offsets: IntArray, slot_variables: IntArray) -> int:
    """Independent cycles of the bipartite graph: slots that join what is joined already."""
    n_factors = len(scope_offsets) - 1
    parents = np.arange(n_variables).astype(np.int32)
    n_cycles = 0
    for factor in range(n_factors):
        begin, end = scope_offsets[factor], scope_offsets[factor + 1]
        for slot in range(begin + 1, end):
            first = find_root(parents, slot_variables[begin])
            other = find_root(parents, slot_variables[slot])
            if first == other:
                n_cycles += 1
            else:
                parents[other] = first
    return n_cycles


@kernel
def greedy_colors(structure: Structure) -> IntArray:
    """Colour variables in index order so that no factor has two of one colour."""
    n_variables = len(structure.cardinalities)
    colors = np.full(n_variables, -1, dtype=np.int32)
    # taken[c] == i marks colour c as used around variable i; never cleared
    taken = np.full(n_variables + 1, -1, dtype=np.int32)
    for i in range(n_variables):
        for position in range(
            structure.variable_slot_offsets[i], structure.variable_slot_offsets[i + 1]
        ):
            factor = structure.slot_factors[structure.variable_slots[position]]
            for slot in range(structure.scope_offsets[factor], structure.scope_offsets[factor + 1]):
                other = structure.slot_variables[slot]
                if colors[other] >= 0:
                    taken[colors[other]] = i
        color = 0
        while taken[color] == i:
            color += 1
        colors[i] = color
    return colors


@kernel
def slot_levels(structure: Structure, slots: IntArray) -> IntArray:
    """Levels that make a parallel run equal to updating ``slots`` one after the other.

    Updating slot ``(a, i)`` reads the beliefs of the other variables of ``a`` and their
    messages from ``a``; it writes the message to ``i`` and the belief of ``i``.  A slot is
    placed after every earlier slot that writes what it reads or reads what it writes.  Two
    slots of one variable may share a level, because neither reads that variable's belief.
    """
    n_variables = len(structure.cardinalities)
    written = np.full(n_variables, -1, dtype=np.int32)  # last level that wrote the belief
    read = np.full(n_variables, -1, dtype=np.int32)  # last level that read the belief
    levels = np.empty(len(slots), dtype=np.int32)
    for index in range(len(slots)):
        slot = slots[index]
        target = structure.slot_variables[slot]
        factor = structure.slot_factors[slot]
        begin, end = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        level = read[target] + 1
        if written[target] > level:
            level = written[target]
        for other in range(begin, end):
            if other != slot and written[structure.slot_variables[other]] >= level:
                level = written[structure.slot_variables[other]] + 1
        levels[index] = level
        written[target] = level
        for other in range(begin, end):
            if other != slot and read[structure.slot_variables[other]] < level:
                read[structure.slot_variables[other]] = level
    return levels


@kernel
def variable_levels(structure: Structure, order: IntArray) -> IntArray:
    """Levels that make a parallel run equal to updating the variables of ``order`` in turn.

    A variable is placed one level after the last earlier variable that shares a factor with it
    (or after itself, if ``order`` names it twice).
    """
    last = np.full(len(structure.cardinalities), -1, dtype=np.int32)
    levels = np.empty(len(order), dtype=np.int32)
    for index in range(len(order)):
        i = order[index]
        level = last[i] + 1
        for position in range(
            structure.variable_slot_offsets[i], structure.variable_slot_offsets[i + 1]
        ):
            factor = structure.slot_factors[structure.variable_slots[position]]
            for slot in range(structure.scope_offsets[factor], structure.scope_offsets[factor + 1]):
                other = structure.slot_variables[slot]
                if last[other] >= level:
                    level = last[other] + 1
        levels[index] = level
        last[i] = level
    return levels


@kernel
def counting_order(keys: IntArray, n_keys: int) -> IntArray:
    """Stable order of small non-negative integers, in linear time."""
    starts = np.zeros(n_keys + 1, dtype=np.int32)
    for key in keys:
        starts[key + 1] += 1
    for key in range(n_keys):
        starts[key + 1] += starts[key]
    order = np.empty(len(keys), dtype=np.int32)
    for index in range(len(keys)):
        order[starts[keys[index]]] = index
        starts[keys[index]] += 1
    return order


@kernel
def slots_by_variable(
    n_variables: int, scope_offsets: IntArray, slot_variables: IntArray
) -> tuple[IntArray, IntArray]:
    """For each variable its slots in factors of arity two or more: offsets and list."""
    offsets = np.zeros(n_variables + 1, dtype=np.int32)
    n_factors = len(scope_offsets) - 1
    for factor in range(n_factors):
        begin, end = scope_offsets[factor], scope_offsets[factor + 1]
        if end - begin >= 2:
            for slot in range(begin, end):
                offsets[slot_variables[slot] + 1] += 1
    for i in range(n_variables):
        offsets[i + 1] += offsets[i]
    filled = offsets[:-1].copy()
    slots = np.empty(offsets[n_variables], dtype=np.int32)
    for factor in range(n_factors):
        begin, end = scope_offsets[factor], scope_offsets[factor + 1]
        if end - begin >= 2:
            for slot in range(begin, end):
                i = slot_variables[slot]
                slots[filled[i]] = slot
                filled[i] += 1
    return offsets, slots


@kernel(fastmath=SAFE_FASTMATH)
def next_row(structure: Structure, first: int, last: int, digits: IntArray) -> int:
    """Advance the odometer over all variables of a scope but the last; first changed position."""
    position = last - 1
    while position >= first:
        digits[position - first] += 1
        if digits[position - first] < structure.cardinalities[structure.slot_variables[position]]:
            return position
        digits[position - first] = 0
        position -= 1
    return first
