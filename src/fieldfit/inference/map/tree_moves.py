r"""Tree moves: the best labels of a random induced forest, given all other labels.

    y_F  <-  argmax_{y_F} s(y_F, y_{\F})

for a set ``F`` of variables such that the factors, with everything outside ``F`` fixed, have no
cycle on ``F``.  Max-product on the forest, from the leaves to the roots and back, finds the best of
these labellings, of which there are exponentially many.  A forest is grown in a random order: a
variable joins it if it closes no cycle, so that no further variable can be added; on a square grid
about 60 % of the variables are in it.  Single-variable changes (iterated conditional modes) are the
case of one variable.

References: Hamze and de Freitas, "From fields to trees", UAI 2004; Selby, "Efficient subgraph-based
sampling of Ising-type models with frustration", arXiv:1409.3934 (2014).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fieldfit._typing import ByteArray, FloatArray, Index, IntArray
from fieldfit.graph.structure import Structure, find_root
from fieldfit.numeric.compile import kernel

__all__ = ["Forest", "grow_forest", "label_forest", "new_forest"]


class Forest(NamedTuple):
    """An induced forest and the scratch of max-product on it.

    ``factors[:n]`` join free variables, in an order from the roots outwards; ``upper[k]`` is the
    slot of the ``k``-th whose variable is next to the root.
    """

    is_free: ByteArray
    n_free: IntArray  # free variables of each factor
    parents: IntArray  # union-find
    mark: IntArray
    is_done: ByteArray  # factors
    queue: IntArray  # variables, from the roots outwards
    is_root: ByteArray  # by place in the queue
    factors: IntArray
    upper: IntArray
    values: FloatArray  # of unary entries: what lies below a variable, and its own part
    digits: IntArray
    strides: IntArray
    slots: IntArray


@kernel
def new_forest(structure: Structure) -> Forest:
    """Arrays for the forests of a graph."""
    n_variables, n_factors = len(structure.cardinalities), len(structure.scope_offsets) - 1
    arity = 1
    for factor in range(n_factors):
        arity = max(arity, structure.scope_offsets[factor + 1] - structure.scope_offsets[factor])
    return Forest(
        is_free=np.zeros(n_variables, dtype=np.uint8),
        n_free=np.zeros(n_factors, dtype=np.int32),
        parents=np.zeros(n_variables, dtype=np.int32),
        mark=np.zeros(n_variables, dtype=np.int32),
        is_done=np.zeros(n_factors, dtype=np.uint8),
        queue=np.zeros(n_variables, dtype=np.int32),
        is_root=np.zeros(n_variables, dtype=np.uint8),
        factors=np.zeros(n_factors, dtype=np.int32),
        upper=np.zeros(n_factors, dtype=np.int32),
        values=np.zeros(structure.unary_offsets[n_variables]),
        digits=np.zeros(arity, dtype=np.int32),
        strides=np.zeros(arity, dtype=np.int32),
        slots=np.zeros(arity, dtype=np.int32),
    )


# -- The forest ----------------------------------------------------------------------------


@kernel
def grow_forest(structure: Structure, order: IntArray, forest: Forest) -> tuple[int, int]:
    """Take the variables of ``order`` that close no cycle; numbers of variables and factors."""
    forest.is_free[:] = 0
    forest.n_free[:] = 0
    forest.mark[:] = -1
    for i in range(len(forest.parents)):
        forest.parents[i] = i
    for i in order:
        if not _closes_cycle(structure, i, forest):
            forest.is_free[i] = 1
            for position in range(
                structure.variable_slot_offsets[i], structure.variable_slot_offsets[i + 1]
            ):
                factor = structure.slot_factors[structure.variable_slots[position]]
                forest.n_free[factor] += 1
                j = _free_neighbour(structure, factor, i, forest)
                if j >= 0:
                    forest.parents[find_root(forest.parents, j)] = i
    return _order_forest(structure, forest)


@kernel(forceinline=True)
def _free_neighbour(structure: Structure, factor: Index, variable: Index, forest: Forest) -> int:
    """Some other free variable of a factor (all of them are in one tree), or -1."""
    for slot in range(structure.scope_offsets[factor], structure.scope_offsets[factor + 1]):
        j = structure.slot_variables[slot]
        if forest.is_free[j] and j != variable:
            return j
    return -1


@kernel(forceinline=True)
def _closes_cycle(structure: Structure, variable: Index, forest: Forest) -> bool:
    """Whether two factors of a variable lead to the same tree."""
    for position in range(
        structure.variable_slot_offsets[variable], structure.variable_slot_offsets[variable + 1]
    ):
        factor = structure.slot_factors[structure.variable_slots[position]]
        j = _free_neighbour(structure, factor, variable, forest)
        if j >= 0:
            root = find_root(forest.parents, j)
            if forest.mark[root] == variable:
                return True
            forest.mark[root] = variable
    return False


@kernel(forceinline=True)
def _order_forest(structure: Structure, forest: Forest) -> tuple[int, int]:
    """Free variables and the factors between them from the roots outwards; their numbers."""
    forest.mark[:] = 0
    forest.is_done[:] = 0
    n_queue, n_factors, n_seen = 0, 0, 0
    for root in range(len(forest.is_free)):
        if not forest.is_free[root] or forest.mark[root]:
            continue
        forest.mark[root] = 1
        forest.is_root[n_queue] = 1
        forest.queue[n_queue] = root
        n_queue += 1
        while n_seen < n_queue:
            i = forest.queue[n_seen]
            n_seen += 1
            for position in range(
                structure.variable_slot_offsets[i], structure.variable_slot_offsets[i + 1]
            ):
                upper = structure.variable_slots[position]
                factor = structure.slot_factors[upper]
                if forest.n_free[factor] < 2 or forest.is_done[factor]:
                    continue
                forest.is_done[factor] = 1
                forest.factors[n_factors] = factor
                forest.upper[n_factors] = upper
                n_factors += 1
                for slot in range(
                    structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
                ):
                    j = structure.slot_variables[slot]
                    if forest.is_free[j] and slot != upper:
                        forest.mark[j] = 1
                        forest.is_root[n_queue] = 0
                        forest.queue[n_queue] = j
                        n_queue += 1
    return n_queue, n_factors


# -- Max-product on the forest -------------------------------------------------------------


@kernel
def label_forest(
    structure: Structure,
    unary: FloatArray,
    tables: FloatArray,
    labels: IntArray,
    forest: Forest,
    n_free: int,
    n_factors: int,
) -> None:
    """Give the free variables their best labels; of equally good ones, a root keeps its own.

    Potentials are finite.
    """
    for place in range(n_free):
        _conditional_values(structure, unary, tables, forest.queue[place], labels, forest)
    for k in range(n_factors - 1, -1, -1):
        _pass_up(structure, tables, forest.factors[k], forest.upper[k], labels, forest)
    for place in range(n_free):
        if forest.is_root[place]:
            i = forest.queue[place]
            start = structure.unary_offsets[i]
            best = labels[i]
            for y in range(structure.cardinalities[i]):
                if forest.values[start + y] > forest.values[start + best]:
                    best = y
            labels[i] = best
    for k in range(n_factors):
        _pass_down(structure, tables, forest.factors[k], forest.upper[k], labels, forest)


@kernel(forceinline=True)
def _conditional_values(
    structure: Structure,
    unary: FloatArray,
    tables: FloatArray,
    variable: Index,
    labels: IntArray,
    forest: Forest,
) -> None:
    """Score of each label by the factors whose other variables are all fixed."""
    values = forest.values
    begin = structure.unary_offsets[variable]
    for y in range(structure.cardinalities[variable]):
        values[begin + y] = unary[begin + y]
    for position in range(
        structure.variable_slot_offsets[variable], structure.variable_slot_offsets[variable + 1]
    ):
        own = structure.variable_slots[position]
        factor = structure.slot_factors[own]
        if forest.n_free[factor] != 1:
            continue
        entry, stride, own_stride = structure.table_offsets[factor], 1, 1
        for slot in range(
            structure.scope_offsets[factor + 1] - 1, structure.scope_offsets[factor] - 1, -1
        ):
            j = structure.slot_variables[slot]
            if slot == own:
                own_stride = stride
            else:
                entry += stride * labels[j]
            stride *= structure.cardinalities[j]
        for y in range(structure.cardinalities[variable]):
            values[begin + y] += tables[entry + y * own_stride]


@kernel(forceinline=True)
def _lower_slots(
    structure: Structure, factor: Index, upper: Index, labels: IntArray, forest: Forest
) -> tuple[int, int, int]:
    """Free slots below ``upper`` with their strides; their number, first entry, upper's stride."""
    n_lower, entry, stride, own_stride = 0, structure.table_offsets[factor], 1, 1
    for slot in range(
        structure.scope_offsets[factor + 1] - 1, structure.scope_offsets[factor] - 1, -1
    ):
        j = structure.slot_variables[slot]
        if slot == upper:
            own_stride = stride
        elif forest.is_free[j]:
            forest.slots[n_lower] = slot
            forest.strides[n_lower] = stride
            n_lower += 1
        else:
            entry += stride * labels[j]
        stride *= structure.cardinalities[j]
    return n_lower, entry, own_stride


@kernel(forceinline=True)
def _pass_up(
    structure: Structure,
    tables: FloatArray,
    factor: Index,
    upper: Index,
    labels: IntArray,
    forest: Forest,
) -> None:
    """Add the best of what lies below a factor to the values of its upper variable."""
    values = forest.values
    n_lower, entry, own_stride = _lower_slots(structure, factor, upper, labels, forest)
    i = structure.slot_variables[upper]
    begin = structure.unary_offsets[i]
    if n_lower == 1:  # pairs, and what is like a pair when the rest is fixed
        j = structure.slot_variables[forest.slots[0]]
        below, stride = structure.unary_offsets[j], forest.strides[0]
        for x in range(structure.cardinalities[i]):
            place = entry + x * own_stride
            best = tables[place] + values[below]
            for y in range(1, structure.cardinalities[j]):
                best = max(best, tables[place + y * stride] + values[below + y])
            values[begin + x] += best
        return
    for x in range(structure.cardinalities[i]):
        best = _best_below(structure, tables, entry + x * own_stride, n_lower, forest)[0]
        values[begin + x] += best


@kernel(forceinline=True)
def _pass_down(
    structure: Structure,
    tables: FloatArray,
    factor: Index,
    upper: Index,
    labels: IntArray,
    forest: Forest,
) -> None:
    """Label the variables below a factor, given that of its upper variable."""
    n_lower, entry, own_stride = _lower_slots(structure, factor, upper, labels, forest)
    entry += labels[structure.slot_variables[upper]] * own_stride
    number = _best_below(structure, tables, entry, n_lower, forest)[1]
    for k in range(n_lower):
        j = structure.slot_variables[forest.slots[k]]
        labels[j] = number % structure.cardinalities[j]
        number //= structure.cardinalities[j]


@kernel(forceinline=True)
def _best_below(
    structure: Structure, tables: FloatArray, entry: Index, n_lower: int, forest: Forest
) -> tuple[float, int]:
    """The best labels of the lower slots: their value, and their number in the odometer."""
    forest.digits[:n_lower] = 0
    best, best_number, number = -np.inf, 0, 0
    while True:
        place, value = entry, 0.0
        for k in range(n_lower):
            j = structure.slot_variables[forest.slots[k]]
            place += forest.digits[k] * forest.strides[k]
            value += forest.values[structure.unary_offsets[j] + forest.digits[k]]
        value += tables[place]
        if value > best:
            best, best_number = value, number
        number += 1
        k = 0
        while k < n_lower:
            forest.digits[k] += 1
            j = structure.slot_variables[forest.slots[k]]
            if forest.digits[k] < structure.cardinalities[j]:
                break
            forest.digits[k] = 0
            k += 1
        if k == n_lower:
            return best, best_number
