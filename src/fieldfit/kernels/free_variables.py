"""Groups of variables without a label, and blocks of variables without cycles.

Both are about variables that are free while the others are fixed: a factor then joins only its free
variables, and a set of free variables is a forest if joining them factor by factor closes no cycle.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.structure import find_root

__all__ = ["assign_tree_blocks", "group_missing", "next_to"]

IntArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]


@njit(cache=True, nogil=True, error_model="numpy")
def group_missing(structure: Any, labels: IntArray, groups: IntArray) -> tuple[int, BoolArray]:
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


@njit(cache=True, nogil=True, error_model="numpy")
def next_to(structure: Any, marked: BoolArray, adjacent: BoolArray) -> None:
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


@njit(cache=True, nogil=True, error_model="numpy")
def joined_roots(
    structure: Any,
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


@njit(cache=True, nogil=True, error_model="numpy")
def assign_tree_blocks(
    structure: Any, eligible: BoolArray, groups: IntArray, blocks: IntArray
) -> int:
    """Share out variables to blocks without cycles, first fit in index order; number of blocks.

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
