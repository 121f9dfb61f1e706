r"""Kernels of composite likelihood: conditioning on labels as a smaller graph with gathered tables.

A *term* is a set of variables with labels whose joint conditional probability is wanted.  Missing
variables that touch a term are free together with it (they are summed out), everything else is
fixed.  A factor is then left with a table over its free variables, whose entries are entries of the
old table; with one free variable it is a vector that is added to that variable's potentials.

So a set of terms is a *derived* graph and a list of where each of its numbers comes from.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fieldfit._typing import BoolArray, FloatArray, IntArray
from fieldfit.graph.structure import Structure, find_root
from fieldfit.numeric.compile import kernel

__all__ = [
    "Derived",
    "add_at",
    "add_from",
    "assign_tree_blocks",
    "condition_terms",
    "group_missing",
    "next_to",
]


class Derived(NamedTuple):
    """A derived graph, and the source of each of its entries."""

    variables: IntArray  # variable of the original graph
    arities: IntArray
    slot_variables: IntArray
    table_source: IntArray  # entry of the original tables, for each derived table entry
    single_source: IntArray  # entry of the original tables, to be added ...
    single_target: IntArray  # ... to this derived unary entry


@kernel
def gather_table(
    structure: Structure,
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


@kernel
def condition_terms(
    structure: Structure,
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


@kernel
def add_from(values: FloatArray, source: IntArray, target: IntArray, out: FloatArray) -> None:
    """``out[target] += values[source]``, entries may repeat."""
    for index in range(len(source)):
        out[target[index]] += values[source[index]]


@kernel
def add_at(values: FloatArray, target: IntArray, out: FloatArray) -> None:
    """``out[target] += values``, entries may repeat."""
    for index in range(len(target)):
        out[target[index]] += values[index]


# -- Connected groups of missing labels, and blocks without cycles -------------------------
# Both are about variables that are free while the others are fixed: a factor then joins only its
# free variables, and a set of free variables is a forest if joining them factor by factor closes
# no cycle.


@kernel
def group_missing(
    structure: Structure, labels: IntArray, groups: IntArray
) -> tuple[int, BoolArray]:
    """Number the connected groups of variables without a label, and tell which have a cycle.

    ``groups`` becomes -1 for variables with a label.
    """
    n_variables = len(labels)
    parents = np.arange(n_variables).astype(np.int32)
    closes = np.zeros(n_variables, dtype=np.bool_)
    for factor in range(len(structure.scope_offsets) - 1):
        first = -1
        for slot in range(structure.scope_offsets[factor], structure.scope_offsets[factor + 1]):
            variable = structure.slot_variables[slot]
            if labels[variable] >= 0:
                continue
            if first < 0:
                first = variable
                continue
            root, other = find_root(parents, first), find_root(parents, variable)
            if root == other:
                closes[variable] = True
            # the smaller index is the root, hence met first below
            parents[max(root, other)] = min(root, other)
    n_groups = 0
    for variable in range(n_variables):
        groups[variable] = -1
        if labels[variable] < 0:
            root = find_root(parents, variable)
            if root == variable:
                groups[variable] = n_groups
                n_groups += 1
            else:
                groups[variable] = groups[root]
    cyclic = np.zeros(n_groups, dtype=np.bool_)
    for variable in range(n_variables):
        if closes[variable]:
            cyclic[groups[variable]] = True
    return n_groups, cyclic


@kernel
def next_to(structure: Structure, marked: BoolArray, adjacent: BoolArray) -> None:
    """Mark the variables that share a factor with a marked one."""
    adjacent[:] = False
    for factor in range(len(structure.scope_offsets) - 1):
        begin, end = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        found = False
        for slot in range(begin, end):
            found |= marked[structure.slot_variables[slot]]
        if found:
            for slot in range(begin, end):
                adjacent[structure.slot_variables[slot]] = True


@kernel
def joined_roots(
    structure: Structure,
    variable: int,
    block: int,
    blocks: IntArray,
    groups: IntArray,
    parents: IntArray,
    seen: IntArray,
    join: bool,
) -> bool:
    """Whether a variable closes no cycle with a block and the missing groups; ``join`` adds it.

    The free variables of one factor are in one tree already, so each factor leads to one root;
    two factors that lead to the same one close a cycle.
    """
    for position in range(
        structure.variable_slot_offsets[variable], structure.variable_slot_offsets[variable + 1]
    ):
        factor = structure.slot_factors[structure.variable_slots[position]]
        for slot in range(structure.scope_offsets[factor], structure.scope_offsets[factor + 1]):
            other = structure.slot_variables[slot]
            if other != variable and (blocks[other] == block or groups[other] >= 0):
                root = find_root(parents, other)
                if join:
                    parents[root] = find_root(parents, variable)
                elif seen[root] == variable:
                    return False
                else:
                    seen[root] = variable
                break
    return True


@kernel
def assign_tree_blocks(
    structure: Structure, eligible: BoolArray, groups: IntArray, blocks: IntArray
) -> int:
    """Distribute variables over blocks without cycles, first fit in index order; their number.

    The missing groups count as part of every block.  A variable that closes a cycle with them
    alone gets a block of its own; ``blocks`` is -1 where a variable is not ``eligible``.
    """
    n_variables = len(eligible)
    n_left = 0
    for variable in range(n_variables):
        blocks[variable] = -1
        n_left += eligible[variable]
    parents = np.empty(n_variables, dtype=np.int32)
    seen = np.empty(n_variables, dtype=np.int32)
    n_blocks = 0
    n_assigned = 1
    while n_left > 0 and n_assigned > 0:
        for variable in range(n_variables):
            parents[variable] = variable
            seen[variable] = -1
        for factor in range(len(structure.scope_offsets) - 1):
            first = -1
            for slot in range(structure.scope_offsets[factor], structure.scope_offsets[factor + 1]):
                variable = structure.slot_variables[slot]
                if groups[variable] >= 0:
                    if first >= 0:
                        parents[find_root(parents, variable)] = find_root(parents, first)
                    first = variable
        n_assigned = 0
        for variable in range(n_variables):
            if not eligible[variable] or blocks[variable] >= 0:
                continue
            if joined_roots(structure, variable, n_blocks, blocks, groups, parents, seen, False):
                joined_roots(structure, variable, n_blocks, blocks, groups, parents, seen, True)
                blocks[variable] = n_blocks
                n_assigned += 1
        n_left -= n_assigned
        if n_assigned > 0:
            n_blocks += 1
    for variable in range(n_variables):
        if eligible[variable] and blocks[variable] < 0:
            blocks[variable] = n_blocks
            n_blocks += 1
    return n_blocks
