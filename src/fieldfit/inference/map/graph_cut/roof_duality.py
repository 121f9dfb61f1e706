r"""QPBO (roof duality): the half-integral LP relaxation of binary pairwise MAP, by one minimum cut.

For any pairwise model of two labels, submodular or not,

    max_{tau in L} <th, tau>  >=  max_y s(y)

over the local polytope ``L`` has an optimum with unary beliefs in ``{0, 1/2, 1}``; it is half a
minimum cut in a network with two nodes for each variable.  Variables with belief 0 or 1 are
*persistent*: some best labelling has all of these labels.  If there are no others, the labelling is
proved optimal.

The doubled network: node ``i`` on the source's side says ``x_i = 0`` and node ``i + n`` on the
source's side says ``x_i = 1``.  A pair that is submodular joins the copies ``i, j`` and their
mirrors; any other pair is submodular after ``x_j`` is switched (a gauge transformation), and joins
``i`` to the mirror of ``j``.  The mirror of an arc from ``u`` to ``v`` goes from the mirror of
``v`` to that of ``u``.  A constant less half the minimum cut is the value of the relaxation, in
which a variable whose nodes say the same has a label and any other has belief one half.  Two copies
have the arcs of one graph twice: arc ``a`` of node ``i`` is arc ``a + m`` of node ``i + n``,
whatever its head.

References: Hammer, Hansen and Simeone, "Roof duality, complementation and persistency in quadratic
0-1 optimization", Mathematical Programming 28 (1984); Boros and Hammer, "Pseudo-Boolean
optimization", Discrete Applied Mathematics 123 (2002); Kolmogorov and Rother, "Minimizing
nonsubmodular functions with graph cuts - a review", IEEE Trans. Pattern Analysis and Machine
Intelligence 29 (2007).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fieldfit._typing import ByteArray, FloatArray, Index, IntArray
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs, Potentials
from fieldfit.graph.result import MapResult
from fieldfit.graph.structure import Structure
from fieldfit.inference.base import Evidence, Progress, require_model
from fieldfit.inference.map.base import MapSearch, certified_result, no_labelling
from fieldfit.inference.map.graph_cut.boykov_kolmogorov import (
    FREE,
    SIDE,
    SINK,
    SOURCE,
    IndexArray,
    Network,
    solve,
)
from fieldfit.inference.map.graph_cut.cut_network import (
    NOT_FIRST,
    NOT_SECOND,
    BinaryPairs,
    CutNetwork,
    binary_choices,
    cut_network,
    is_submodular,
    minimum_cut,
    new_flow,
    new_trees,
    normal_form,
    pair_table,
)
from fieldfit.inference.map.max_product import iterated_conditional_modes
from fieldfit.numeric.compile import kernel

__all__ = ["HALF", "RoofDuality", "half_integral"]

# -- The doubled network, and what its cuts say --------------------------------------------

#: What is left of a capacity after a flow counts as nothing below this, relative to the capacity.
SATURATED = 1e-12
#: In place of a choice.
HALF = 2


class Constants(NamedTuple):
    """Parts of the score that a cut does not pay for; the bound is their sum less half the flow."""

    variable: FloatArray
    factor: FloatArray


@kernel
def fill_doubled_network(
    structure: Structure,
    pairs: BinaryPairs,
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
        t00, t01, t10, t11 = pair_table(structure, pairs, factor)
        slot = structure.scope_offsets[factor]
        i, j = structure.slot_variables[slot], structure.slot_variables[slot + 1]
        there, back = np.int64(slot_arcs[slot]), np.int64(slot_arcs[slot + 1])
        switched = not is_submodular(t00, t01, t10, t11)
        if switched:
            t00, t01, t10, t11 = t01, t00, t11, t10
        value, slope_i, slope_j, forward, backward, not_i, not_j = normal_form(t00, t01, t10, t11)
        constants.factor[factor] = value
        terminal[i] -= slope_i
        forbidden[i] |= not_i
        if switched:  # slope_j (1 - x_j), and the bits of the labels change places
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


@kernel(forceinline=True)
def _join(
    there: Index,
    back: Index,
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


@kernel
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


@kernel
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


@kernel(forceinline=True)
def _is_free(u: Index, n: int, node: IndexArray) -> bool:
    mirror = u + n if u < n else u - n
    return node[u, SIDE] == FREE and node[mirror, SIDE] == FREE


@kernel(forceinline=True)
def _implies(arc: int, network: Network, residual: FloatArray) -> bool:
    """Whether an arc or its mirror, which together count, has capacity left."""
    m = len(residual) // 2
    back = np.int64(network.reverses[arc])
    mirror = back + m if back < m else back - m
    mirror_back = np.int64(arc) + m if arc < m else np.int64(arc) - m
    left = residual[arc] + residual[mirror]
    capacity = left + residual[back] + residual[mirror_back]
    return left > (SATURATED * capacity if capacity < np.inf else 0.0)


@kernel
def fill_beliefs(
    structure: Structure,
    pairs: BinaryPairs,
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
            t00, t01, t10, t11 = pair_table(structure, pairs, factor)
            switched = not is_submodular(t00, t01, t10, t11)
            left, right = pairs.first[j], pairs.second[j]
            if switched:
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


@kernel(forceinline=True)
def _linear(values: FloatArray, beliefs: FloatArray, start: int, stop: int) -> float:
    """Inner product with ``0 * -inf = 0``."""
    total = 0.0
    for entry in range(start, stop):
        if beliefs[entry] > 0.0:
            total += beliefs[entry] * values[entry]
    return total


# -- Gauge transformation: switch variables until all pairs are submodular -----------------


@kernel
def switch_to_submodular(structure: Structure, network: Network, pairs: BinaryPairs) -> bool:
    """Switch first and second labels until every pair is submodular; False if that is impossible.

    It is possible if no cycle is frustrated, i.e. if the signed graph of the couplings is balanced
    (Harary 1953).  A search from any variable of a component decides for all others; pairs without
    interaction do not matter.  Labels are unchanged if it fails.
    """
    n_variables = len(structure.cardinalities)
    switches = np.full(n_variables, -1, dtype=np.int8)
    queue = np.empty(n_variables, dtype=np.int32)
    for root in range(n_variables):
        if switches[root] >= 0:
            continue
        switches[root] = 0
        queue[0] = root
        n_seen, n_done = 1, 0
        while n_done < n_seen:
            i = queue[n_done]
            n_done += 1
            for arc in range(network.offsets[i], network.offsets[i + 1]):
                factor = structure.slot_factors[structure.variable_slots[arc]]
                t00, t01, t10, t11 = pair_table(structure, pairs, factor)
                agrees = is_submodular(t00, t01, t10, t11)
                if agrees and is_submodular(t01, t00, t11, t10):
                    continue
                j = network.heads[arc]
                switch = switches[i] if agrees else 1 - switches[i]
                if switches[j] < 0:
                    switches[j] = switch
                    queue[n_seen] = j
                    n_seen += 1
                elif switches[j] != switch:
                    return False
    for i in range(n_variables):
        if switches[i] == 1:
            pairs.first[i], pairs.second[i] = pairs.second[i], pairs.first[i]
    return True


# -- The search ----------------------------------------------------------------------------


@dataclass(frozen=True)
class RoofDuality(MapSearch):
    """The half-integral relaxation of a pairwise model of two labels, and the labels it proves.

    ``upper_bound`` is the value of the relaxation over the local polytope and ``beliefs`` an
    optimum of it; a variable is persistent if its beliefs are 0 and 1, undecided if both are one
    half.  Undecided variables are labelled by their unary potentials and then changed one by one
    while that raises the score; ``labels`` has these and the persistent ones.  As few variables as
    possible are undecided: ties are decided by an optimum that is not the only one.

    Factors have at most two variables, and variables at most two possible labels (evidence and hard
    zeros counted).

    Examples
    --------
    >>> graph = FactorGraph.from_edges(4, [(0, 1), (1, 2), (2, 0), (2, 3)], 2)
    >>> potentials = Potentials(graph, [None, None, None, [0.0, 9.0]], 1.0 - np.eye(2))
    >>> result = RoofDuality().run(graph, potentials)
    >>> result.beliefs.unary_matrix()[:, 1].tolist()
    [0.5, 0.5, 0.5, 1.0]
    >>> result.score, result.upper_bound
    (12.0, 12.5)
    """

    max_arity = 2

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: Evidence = None,
        progress: Progress | None = None,
    ) -> MapResult:
        """The same for the union of many graphs; ``scores`` has one entry for each."""
        require_model(batch, potentials, progress)
        graph = batch.graph
        cuts = cut_network(graph, "RoofDuality")
        pairs, counts = binary_choices(graph, potentials, observed, cuts.factors)
        many = np.flatnonzero(counts > 2)
        if len(many):
            raise InvalidInputError(
                f"variable {many[0]} must have at most two possible labels for RoofDuality, got "
                f"{counts[many[0]]}; MaxFlow and MaxProduct take more"
            )
        if switch_to_submodular(graph.structure, cuts.network, pairs):
            choices = minimum_cut(graph, cuts, pairs)
            dual = None  # the labelling is optimal
        else:
            choices, dual = half_integral(batch, cuts, pairs)
        beliefs, linear = _beliefs(batch, pairs, choices)
        undecided = np.flatnonzero(choices == HALF).astype(np.int32)
        labels = np.where(choices == 1, pairs.second, pairs.first)
        if len(undecided):
            _complete(graph, pairs, undecided, labels)
        scores = batch.scores(potentials, labels)
        n_undecided = batch.sum_variables((choices == HALF).astype(np.float64))
        n_decided = graph.n_variables - len(undecided)
        all_or_some = "all" if len(undecided) == 0 else f"{n_decided} of"
        return certified_result(
            labels,
            scores,
            linear if dual is None else np.maximum(linear, dual),  # equal but for rounding
            how=f"{all_or_some} {graph.n_variables} variables are decided",
            method="RoofDuality",
            is_proved=n_undecided == 0,
            beliefs=beliefs,
        )


def half_integral(
    batch: Batch, cuts: CutNetwork, pairs: BinaryPairs
) -> tuple[ByteArray, FloatArray]:
    """Choices and dual values by the network of two copies."""
    graph, structure = batch.graph, batch.graph.structure
    n_arcs = len(cuts.network.heads)
    offsets = cuts.network.offsets
    network = Network(
        offsets=np.concatenate([offsets, offsets[1:] + np.uint32(n_arcs)]),
        heads=np.empty(2 * n_arcs, dtype=np.uint32),
        reverses=np.empty(2 * n_arcs, dtype=np.uint32),
    )
    flow = new_flow(2 * graph.n_variables, 2 * n_arcs)
    forbidden = np.empty(graph.n_variables, dtype=np.uint8)
    constants = Constants(np.empty(graph.n_variables), np.empty(graph.n_factors))
    empty = fill_doubled_network(
        structure, pairs, cuts.slot_arcs, network, flow.residual, flow.terminal, forbidden,
        constants,
    )  # fmt: skip
    if empty >= 0:
        raise no_labelling(f"hard zeros exclude every label of variable {empty}")
    trees = new_trees(2 * graph.n_variables)
    solve(network, flow, trees)
    if flow.conflict.any():
        where = np.flatnonzero(flow.conflict)[0] % graph.n_variables
        raise no_labelling(f"hard zeros around variable {where} contradict each other")
    choices = np.empty(graph.n_variables, dtype=np.uint8)
    read_choices(network, flow.residual, trees.node, choices)
    constant = graph.arities == 0
    constants.factor[constant] = pairs.tables[graph.table_offsets[:-1][constant]]
    paid = 0.5 * flow.inflow.reshape(2, -1).sum(axis=0)
    dual = batch.sum_variables(constants.variable - paid) + batch.sum_factors(constants.factor)
    return choices, dual


def _beliefs(batch: Batch, pairs: BinaryPairs, choices: ByteArray) -> tuple[Beliefs, FloatArray]:
    """Beliefs of the choices, and the linear score of each example."""
    graph = batch.graph
    unary, tables = np.zeros(graph.unary_offsets[-1]), np.zeros(graph.table_offsets[-1])
    values = Constants(np.empty(graph.n_variables), np.empty(graph.n_factors))
    fill_beliefs(graph.structure, pairs, choices, unary, tables, values)
    linear = batch.sum_variables(values.variable) + batch.sum_factors(values.factor)
    return Beliefs(graph, unary, tables), linear


def _complete(
    graph: FactorGraph, pairs: BinaryPairs, undecided: IntArray, labels: IntArray
) -> None:
    """Labels of undecided variables: the better one by itself, then single changes that help."""
    start = graph.unary_offsets[undecided]
    first, second = pairs.first[undecided], pairs.second[undecided]
    better = pairs.unary[start + second] > pairs.unary[start + first]
    labels[undecided] = np.where(better, second, first)
    iterated_conditional_modes(graph.structure, pairs.unary, pairs.tables, undecided, labels)
