r"""Blocks of variables given the labels of all others: a smaller graph whose tables are gathered.

A *term* is a set of variables with labels whose joint conditional probability is wanted.  Missing
variables that touch a term are free together with it (they are summed out), everything else is
fixed.  A factor is then left with a table over its free variables, whose entries are entries of the
old table; with one free variable it is a vector that is added to that variable's potentials.

So a set of terms is a *derived* graph and a list of where each of its numbers comes from.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.structure import find_root

__all__ = ["Derived", "add_at", "add_from", "condition_terms"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]


class Derived(NamedTuple):
    """A derived graph, and the source of each of its entries."""

    variables: IntArray  # variable of the original graph
    arities: IntArray
    slot_variables: IntArray
    table_source: IntArray  # entry of the original tables, for each derived table entry
    single_source: IntArray  # entry of the original tables, to be added ...
    single_target: IntArray  # ... to this derived unary entry


@njit(cache=True, nogil=True, error_model="numpy")
def gather_table(
    structure: Any,
    labels: IntArray,
    factor: int,
    stamps: IntArray,
    term: int,
    target: IntArray,
    begin: int,
    strides: IntArray,
    digits: IntArray,
) -> int:
    """List the table entries over the free variables, the last one fastest; where the list ends."""
    first, last = structure.scope_offsets[factor], structure.scope_offsets[factor + 1] - 1
    entry, stride = structure.table_offsets[factor], 1
    size = 1
    for slot in range(last, first - 1, -1):
        variable = structure.slot_variables[slot]
        strides[slot - first] = stride
        stride *= structure.cardinalities[variable]
        digits[slot - first] = 0
        if stamps[variable] == term:
            size *= structure.cardinalities[variable]
        else:
            entry += strides[slot - first] * labels[variable]
    for index in range(size):
        target[begin + index] = entry
        slot = last
        while slot >= first:
            variable = structure.slot_variables[slot]
            if stamps[variable] == term:
                digits[slot - first] += 1
                entry += strides[slot - first]
                if digits[slot - first] < structure.cardinalities[variable]:
                    break
                entry -= strides[slot - first] * digits[slot - first]
                digits[slot - first] = 0
            slot -= 1
    return begin + size


@njit(cache=True, nogil=True, error_model="numpy")
def condition_terms(
    structure: Any,
    labels: IntArray,
    groups: IntArray,
    group_offsets: IntArray,
    group_variables: IntArray,
    term_offsets: IntArray,
    term_variables: IntArray,
    cyclic: BoolArray,
    n_term_variables: IntArray,
    n_term_factors: IntArray,
    fill: bool,
    derived: Derived,
) -> tuple[int, int, int, int, int]:
    """Count, or with ``fill`` write, the derived graph of all terms.

    Returns the numbers of derived variables, factors, slots, table entries and added entries; also
    writes which terms have a cycle, and each term's number of variables and factors.
    """
    n_factors = len(structure.scope_offsets) - 1
    stamps = np.full(len(labels), -1, dtype=np.int32)  # last term in which it is free
    places = np.empty(len(labels), dtype=np.int32)
    offsets = np.empty(len(labels), dtype=np.int32)  # first derived unary entry
    factor_stamps = np.full(n_factors, -1, dtype=np.int32)
    touched = np.empty(n_factors, dtype=np.int32)
    parents = np.arange(len(labels)).astype(np.int32)
    arity = 1
    for factor in range(n_factors):
        arity = max(arity, structure.scope_offsets[factor + 1] - structure.scope_offsets[factor])
    strides, digits = np.empty(arity, dtype=np.int32), np.empty(arity, dtype=np.int32)
    members = np.empty(len(labels), dtype=np.int32)
    n_variables, n_derived, n_slots, n_entries, n_singles, n_unary = 0, 0, 0, 0, 0, 0
    for term in range(len(term_offsets) - 1):
        n_members, n_touched = 0, 0
        for position in range(term_offsets[term], term_offsets[term + 1]):
            members[n_members] = term_variables[position]
            stamps[term_variables[position]] = term
            n_members += 1
        head = 0
        while head < n_members:
            variable = members[head]
            head += 1
            for position in range(
                structure.variable_slot_offsets[variable],
                structure.variable_slot_offsets[variable + 1],
            ):
                factor = structure.slot_factors[structure.variable_slots[position]]
                if factor_stamps[factor] == term:
                    continue
                factor_stamps[factor] = term
                touched[n_touched] = factor
                n_touched += 1
                for slot in range(
                    structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
                ):
                    other = structure.slot_variables[slot]
                    group = groups[other]
                    if group >= 0 and stamps[other] != term:
                        for index in range(group_offsets[group], group_offsets[group + 1]):
                            members[n_members] = group_variables[index]
                            stamps[group_variables[index]] = term
                            n_members += 1
        for index in range(n_members):
            variable = members[index]
            places[variable] = n_variables + index
            parents[variable] = variable
            offsets[variable] = n_unary
            n_unary += structure.cardinalities[variable]
            if fill:
                derived.variables[n_variables + index] = variable
        n_variables += n_members
        n_before = n_derived
        cyclic[term] = False
        for index in range(n_touched):
            factor = touched[index]
            first, size, n_free = -1, 1, 0
            for slot in range(structure.scope_offsets[factor], structure.scope_offsets[factor + 1]):
                variable = structure.slot_variables[slot]
                if stamps[variable] != term:
                    continue
                n_free += 1
                size *= structure.cardinalities[variable]
                if first < 0:
                    first = variable
                    continue
                root, other = find_root(parents, first), find_root(parents, variable)
                cyclic[term] |= root == other
                parents[other] = root
            if n_free == 1:
                if fill:
                    gather_table(
                        structure, labels, factor, stamps, term, derived.single_source, n_singles,
                        strides, digits,
                    )  # fmt: skip
                    for y in range(size):
                        derived.single_target[n_singles + y] = offsets[first] + y
                n_singles += size
                continue
            if fill:
                gather_table(
                    structure, labels, factor, stamps, term, derived.table_source, n_entries,
                    strides, digits,
                )  # fmt: skip
                derived.arities[n_derived] = n_free
                free = n_slots
                for slot in range(
                    structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
                ):
                    variable = structure.slot_variables[slot]
                    if stamps[variable] == term:
                        derived.slot_variables[free] = places[variable]
                        free += 1
            n_entries += size
            n_slots += n_free
            n_derived += 1
        n_term_variables[term] = n_members
        n_term_factors[term] = n_derived - n_before
    return n_variables, n_derived, n_slots, n_entries, n_singles


@njit(cache=True, nogil=True, error_model="numpy")
def add_from(values: FloatArray, source: IntArray, target: IntArray, out: FloatArray) -> None:
    """``out[target] += values[source]``, entries may repeat."""
    for index in range(len(source)):
        out[target[index]] += values[source[index]]


@njit(cache=True, nogil=True, error_model="numpy")
def add_at(values: FloatArray, target: IntArray, out: FloatArray) -> None:
    """``out[target] += values``, entries may repeat."""
    for index in range(len(target)):
        out[target[index]] += values[index]
