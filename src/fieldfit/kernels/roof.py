r"""Roof duality: the network of two copies of every variable, and what its cuts say.

Node ``i`` on the source's side says ``x_i = 0`` and node ``i + n`` on the source's side says
``x_i = 1``.  A pair that is submodular joins the copies ``i, j`` and their mirrors; any other
pair is submodular after ``x_j`` is turned round, and joins ``i`` to the mirror of ``j``.  The
mirror of an arc from ``u`` to ``v`` goes from the mirror of ``v`` to that of ``u``.  A constant
less half the minimum cut is the value of the relaxation over the local polytope, in which a
variable whose nodes say the same has a label and any other has belief one half.

Two copies have the arcs of one graph twice: arc ``a`` of node ``i`` is arc ``a + m`` of node
``i + n``, whatever its head.

References: Hammer, Hansen and Simeone, "Roof duality, complementation and persistency in quadratic
0-1 optimization", Mathematical Programming 28 (1984); Boros and Hammer, "Pseudo-Boolean
optimization", Discrete Applied Mathematics 123 (2002); Kolmogorov and Rother, "Minimizing
nonsubmodular functions with graph cuts - a review", IEEE Trans. Pattern Analysis and Machine
Intelligence 29 (2007).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.cuts import (
    NOT_FIRST,
    NOT_SECOND,
    Pairs,
    four_entries,
    is_submodular,
    normal_form,
)
from fieldfit.kernels.max_flow import FREE, SIDE, SINK, SOURCE, IndexArray, Network

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
ByteArray = NDArray[np.uint8]

#: What is left of a capacity after a flow counts as nothing below this, relative to the capacity.
SATURATED = 1e-12
#: In place of a choice.
HALF = 2


class Constants(NamedTuple):
    """Parts of the score that a cut does not pay for; the bound is their sum less half the flow."""

    variable: FloatArray
    factor: FloatArray


@njit(cache=True, nogil=True, error_model="numpy")
def fill_copies(
    structure: Any,
    pairs: Pairs,
    slot_arcs: IndexArray,
    network: Network,
    residual: FloatArray,
    terminal: FloatArray,
    forbidden: ByteArray,
    constants: Constants,
) -> int:
    """Heads and capacities of the network of two copies; a variable without a label, or -1."""
    n = len(structure.cardinalities)
    m = len(residual) // 2
    constant = constants.variable
    for i in range(n):
        start = structure.unary_offsets[i]
        constant[i] = pairs.unary[start + pairs.first[i]]
        terminal[i] = constant[i] - pairs.unary[start + pairs.second[i]]
        forbidden[i] = 0
    constants.factor[:] = 0.0
    for factor in pairs.factors:
        t00, t01, t10, t11 = four_entries(structure, pairs, factor)
        slot = structure.scope_offsets[factor]
        i, j = structure.slot_variables[slot], structure.slot_variables[slot + 1]
        there, back = np.int64(slot_arcs[slot]), np.int64(slot_arcs[slot + 1])
        turned = not is_submodular(t00, t01, t10, t11)
        if turned:
            t00, t01, t10, t11 = t01, t00, t11, t10
        value, slope_i, slope_j, forward, backward, not_i, not_j = normal_form(t00, t01, t10, t11)
        constants.factor[factor] = value
        terminal[i] -= slope_i
        forbidden[i] |= not_i
        if turned:  # slope_j (1 - x_j), and the bits of the labels change places
            constant[j] += slope_j
            terminal[j] += slope_j
            forbidden[j] |= ((not_j & NOT_FIRST) << 1) | ((not_j & NOT_SECOND) >> 1)
            _join(there, back + m, i, j + n, network, residual, forward, backward)
            _join(back, there + m, j, i + n, network, residual, forward, backward)
        else:
            terminal[j] -= slope_j
            forbidden[j] |= not_j
            _join(there, back, i, j, network, residual, forward, backward)
            _join(back + m, there + m, j + n, i + n, network, residual, forward, backward)
    empty = -1
    for i in range(n):
        if forbidden[i] == 0:
            constant[i] += max(0.0, -terminal[i])
        elif forbidden[i] == NOT_FIRST:
            constant[i] -= terminal[i]
            terminal[i] = -np.inf
        elif forbidden[i] == NOT_SECOND:
            terminal[i] = np.inf
        else:
            empty = i
        terminal[i + n] = -terminal[i]
    return empty


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def _join(
    there: int,
    back: int,
    tail: int,
    head: int,
    network: Network,
    residual: FloatArray,
    forward: float,
    backward: float,
) -> None:
    network.heads[there] = head
    network.heads[back] = tail
    network.reverses[there] = back
    network.reverses[back] = there
    residual[there] = forward
    residual[back] = backward


@njit(cache=True, nogil=True, error_model="numpy")
def read_choices(
    network: Network, residual: FloatArray, node: IndexArray, choices: ByteArray
) -> None:
    """0, 1 or `HALF` for each variable, from a maximum flow.

    Where the copies are on different sides of the cut, the choice is part of every optimum (strong
    persistency).  Variables with two free copies are left to `_choose_freely`.
    """
    n = len(choices)
    some_free = False
    for i in range(n):
        side, mirror = node[i, SIDE], node[i + n, SIDE]
        if side == mirror:  # only rounding puts both into one tree
            choices[i] = HALF
            some_free = some_free or side == FREE
        elif side == SOURCE or mirror == SINK:
            choices[i] = 0
        else:
            choices[i] = 1
    if some_free:
        _choose_freely(network, residual, node, choices)


@njit(cache=True, nogil=True, error_model="numpy")
def _choose_freely(
    network: Network, residual: FloatArray, node: IndexArray, choices: ByteArray
) -> None:
    """Choices of free variables that are part of some optimum (weak persistency).

    An arc with residual capacity between free nodes is an implication, ``u`` on the source's side
    only with ``v``.  As in 2-satisfiability, a variable can be chosen unless its two nodes imply
    each other, i.e. lie in one strong component, and the node whose component comes last in the
    order of the implications may be on the source's side (Aspvall, Plass and Tarjan 1979).
    Components are found in reverse order by Tarjan's search (1972), without recursion.
    """
    n = len(choices)
    n_nodes = 2 * n
    order = np.zeros(n_nodes, dtype=np.int32)  # of discovery, from 1
    low = np.zeros(n_nodes, dtype=np.int32)
    component = np.zeros(n_nodes, dtype=np.int32)  # from 1; 0 while open
    position = np.empty(n_nodes, dtype=np.uint32)  # next arc to look at
    path = np.empty(n_nodes, dtype=np.int32)
    stack = np.empty(n_nodes, dtype=np.int32)
    n_found, n_components, n_stack = 0, 0, 0
    for root in range(n_nodes):
        if order[root] != 0 or not _is_free(root, n, node):
            continue
        path[0] = root
        n_path = 1
        while n_path > 0:
            u = path[n_path - 1]
            if order[u] == 0:
                n_found += 1
                order[u] = low[u] = n_found
                position[u] = network.offsets[u]
                stack[n_stack] = u
                n_stack += 1
            descend = False
            while position[u] < network.offsets[u + 1]:
                arc = position[u]
                v = np.int64(network.heads[arc])
                if _is_free(v, n, node) and component[v] == 0 and _implies(arc, network, residual):
                    if order[v] == 0:
                        path[n_path] = v
                        n_path += 1
                        descend = True
                        break  # the arc is looked at again afterwards, for the low mark of v
                    low[u] = min(low[u], low[v])
                position[u] += np.uint32(1)
            if descend:
                continue
            n_path -= 1
            if low[u] == order[u]:
                n_components += 1
                while component[u] == 0:
                    n_stack -= 1
                    component[stack[n_stack]] = n_components
    for i in range(n):
        if _is_free(i, n, node) and component[i] != component[i + n]:
            choices[i] = 0 if component[i] < component[i + n] else 1


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def _is_free(u: int, n: int, node: IndexArray) -> bool:
    mirror = u + n if u < n else u - n
    return node[u, SIDE] == FREE and node[mirror, SIDE] == FREE


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def _implies(arc: int, network: Network, residual: FloatArray) -> bool:
    """Whether an arc or its mirror, which together count, has capacity left."""
    m = len(residual) // 2
    back = np.int64(network.reverses[arc])
    mirror = back + m if back < m else back - m
    mirror_back = np.int64(arc) + m if arc < m else np.int64(arc) - m
    left = residual[arc] + residual[mirror]
    capacity = left + residual[back] + residual[mirror_back]
    return left > (SATURATED * capacity if capacity < np.inf else 0.0)


@njit(cache=True, nogil=True, error_model="numpy")
def fill_beliefs(
    structure: Any,
    pairs: Pairs,
    choices: ByteArray,
    unary_beliefs: FloatArray,
    tables: FloatArray,
    values: Constants,
) -> None:
    """Beliefs of the relaxation, and what each variable and factor contributes to its score.

    A pair with one choice or two is the product of its variables.  Two halves leave one number
    free, and the better of "equal" and "different" is the best.  The arrays are zero before.
    """
    for i in range(len(choices)):
        start = structure.unary_offsets[i]
        upper = 0.5 if choices[i] == HALF else np.float64(choices[i])
        unary_beliefs[start + pairs.first[i]] += 1.0 - upper
        unary_beliefs[start + pairs.second[i]] += upper
        values.variable[i] = _linear(
            pairs.unary, unary_beliefs, start, structure.unary_offsets[i + 1]
        )
    for factor in range(len(structure.scope_offsets) - 1):
        start, stop = structure.table_offsets[factor], structure.table_offsets[factor + 1]
        slot = structure.scope_offsets[factor]
        arity = structure.scope_offsets[factor + 1] - slot
        if arity == 0:
            tables[start] = 1.0
            values.factor[factor] = pairs.tables[start]
            continue
        i = structure.slot_variables[slot]
        if arity == 1:  # counted with the variable
            for y in range(stop - start):
                tables[start + y] = unary_beliefs[structure.unary_offsets[i] + y]
            values.factor[factor] = 0.0
            continue
        j = structure.slot_variables[slot + 1]
        n_columns = structure.cardinalities[j]
        if choices[i] == HALF and choices[j] == HALF:
            t00, t01, t10, t11 = four_entries(structure, pairs, factor)
            turned = not is_submodular(t00, t01, t10, t11)
            left, right = pairs.first[j], pairs.second[j]
            if turned:
                left, right = right, left
            tables[start + pairs.first[i] * n_columns + left] = 0.5
            tables[start + pairs.second[i] * n_columns + right] = 0.5
        else:
            for a in range(structure.cardinalities[i]):
                for b in range(n_columns):
                    tables[start + a * n_columns + b] = (
                        unary_beliefs[structure.unary_offsets[i] + a]
                        * unary_beliefs[structure.unary_offsets[j] + b]
                    )
        values.factor[factor] = _linear(pairs.tables, tables, start, stop)


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def _linear(values: FloatArray, beliefs: FloatArray, start: int, stop: int) -> float:
    """Inner product with ``0 * -inf = 0``."""
    total = 0.0
    for entry in range(start, stop):
        if beliefs[entry] > 0.0:
            total += beliefs[entry] * values[entry]
    return total
