"""LP relaxation of MAP over the local polytope, for any arities and cardinalities.

    max <th, tau>    over tau >= 0,  sum_k tau_i(k) = 1,  sum_{y_a: y_i = k} tau_a(y_a) = tau_i(k)

is at least the best score, and equal to it if the solution is integral, as on trees and for
submodular binary models.  Otherwise labels are rounded and improved by single changes (iterated
conditional modes).  The solver is HiGHS's dual simplex method; it works to tolerances, therefore
the reported bound is computed from its dual variables alone, by a formula that holds for any.

References: Schlesinger, "Syntactic analysis of two-dimensional visual signals in the presence of
noise", Kibernetika 4 (1976); Wainwright, Jaakkola and Willsky, "MAP estimation via agreement on
trees", IEEE Transactions on Information Theory 51 (2005).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fieldfit._typing import FloatArray, IntArray, LongArray
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs, Potentials, add_to_single_factors, conditioned_unary
from fieldfit.graph.ragged import expand, offsets_of, ranges, row_numbers
from fieldfit.graph.result import MapResult
from fieldfit.graph.structure import greedy_colors
from fieldfit.inference.base import Evidence, Progress, require_model
from fieldfit.inference.map.base import MapSearch, certified_result, no_labelling
from fieldfit.inference.map.max_product import iterated_conditional_modes

__all__ = ["LinearProgram", "LocalPolytope", "improved_labels", "local_polytope"]

# -- Constraints of the local polytope, and its dual bound ---------------------------------
# Columns are the unary entries followed by the table entries; factors of arity below two are left
# out, their potentials are part of the unary ones or constant.  Rows are the variables followed by
# the messages ``(a, i, k)``, without those that follow from the others: every margin of a table
# has the same sum, so that the last label of each slot but the first needs no row.
#
# For any numbers ``m_ai(k)``, one for each message row,
#
#     sum_i max_k (th_i(k) - sum_a m_ai(k)) + sum_a max_y (th_a(y) + sum_i m_ai(y_i))
#
# is at least the score of every labelling, and least at the dual variables of the linear program.

#: Beliefs below this are zeros that a solver left behind.
CLEAN = 1e-9
#: Rounds of scaling that remove what is left of differences between margins and beliefs.
N_POLISH = 8


@dataclass(frozen=True)
class LocalPolytope:
    """Constraints of one graph.

    ``tables`` are the places of the table columns among all table entries of the graph; the column
    of table entry ``tables[k]`` is ``n_unary + k``.  ``slot_entries[p]`` lists, for the ``p``-th
    variable of a scope from its end, table columns and their message entries.
    """

    n_unary: int
    tables: LongArray
    factors: LongArray  # of arity at least two
    table_starts: LongArray  # of each such factor among the table columns
    matrix: Any  # CSC, rows x columns
    right: FloatArray  # right-hand side: 1 for variables, 0 for messages
    row_variables: LongArray  # variable of each row
    slot_entries: tuple[tuple[LongArray, LongArray], ...]
    entry_unary: LongArray  # unary entry of each message entry

    def scores(self, unary: FloatArray, tables: FloatArray) -> FloatArray:
        """Potentials of all columns."""
        return np.concatenate([unary, tables[self.tables]])

    def beliefs(self, graph: FactorGraph, solution: FloatArray) -> Beliefs:
        """Beliefs from a solution: no negative numbers, sums of one, margins that agree."""
        cleaned = np.where(solution < CLEAN, 0.0, solution)
        unary = cleaned[: self.n_unary]
        if len(unary):
            sums = np.add.reduceat(unary, graph.unary_offsets[:-1])
            unary /= expand(sums, graph.unary_offsets)
        table = cleaned[self.n_unary :]
        wanted = unary[self.entry_unary]
        for _ in range(N_POLISH if len(table) else 0):
            for columns, entries in self.slot_entries:
                margin = np.bincount(entries, table[columns], minlength=len(wanted))
                ratio = np.divide(wanted, margin, out=np.ones_like(margin), where=margin > 0.0)
                table[columns] *= ratio[entries]
        values = np.zeros(int(graph.table_offsets[-1]))
        values[self.tables] = table
        values[graph.table_offsets[:-1][graph.arities == 0]] = 1.0
        add_to_single_factors(graph, unary, values)
        return Beliefs(graph, unary, values)

    def bounds(
        self, batch: Batch, scores: FloatArray, constants: FloatArray, duals: FloatArray
    ) -> FloatArray:
        """Upper bound on the score of each example, for any dual variables of the rows.

        ``constants`` has the potential of each factor of arity zero, and 0 for the others.
        """
        graph = batch.graph
        messages = duals.copy()
        messages[: graph.n_variables] = 0.0
        moved = scores + self.matrix.T @ messages
        by_factor = constants.copy()
        if len(self.factors):
            by_factor[self.factors] = np.maximum.reduceat(moved[self.n_unary :], self.table_starts)
        by_variable = np.zeros(graph.n_variables)
        if graph.n_variables:
            by_variable = np.maximum.reduceat(moved[: self.n_unary], graph.unary_offsets[:-1])
        return batch.sum_factors(by_factor) + batch.sum_variables(by_variable)


_POLYTOPES: WeakKeyDictionary[FactorGraph, LocalPolytope] = WeakKeyDictionary()


def local_polytope(graph: FactorGraph) -> LocalPolytope:
    """The constraints of a graph, built once."""
    if graph not in _POLYTOPES:
        _POLYTOPES[graph] = _built(graph)
    return _POLYTOPES[graph]


def _built(graph: FactorGraph) -> LocalPolytope:
    from scipy.sparse import coo_array

    n, n_unary = graph.n_variables, int(graph.unary_offsets[-1])
    factors = np.flatnonzero(graph.arities >= 2)
    sizes = np.diff(graph.table_offsets)[factors].astype(np.int64)
    offsets = offsets_of(sizes)
    local = ranges(np.zeros(len(factors)), sizes)
    tables = ranges(graph.table_offsets[factors], sizes)

    # which messages have a row, and their numbers
    slots = np.arange(graph.n_slots)
    lengths = graph.cardinalities[graph.slot_variables].astype(np.int64)
    is_first = graph.scope_offsets[:-1][graph.slot_factors] == slots
    n_rows_of = np.where(is_first, lengths, lengths - 1)
    n_rows_of[graph.arities[graph.slot_factors] < 2] = 0
    entry_slots = row_numbers(graph.message_offsets)
    label = np.arange(len(entry_slots)) - graph.message_offsets[entry_slots]
    has_row = label < n_rows_of[entry_slots]
    row_of = np.where(has_row, n + np.cumsum(has_row) - 1, -1)
    entry_unary = graph.unary_offsets[graph.slot_variables[entry_slots]] + label

    # odometer: the last variable of a scope is the fastest digit of a table entry
    owner = row_numbers(offsets)
    slot_entries: list[tuple[LongArray, LongArray]] = []
    remainder = local.copy()
    for position in range(int(graph.arities.max(initial=0))):
        columns = np.flatnonzero(graph.arities[factors][owner] > position)
        if len(columns) == 0:
            break
        slot = graph.scope_offsets[factors[owner[columns]] + 1] - 1 - position
        remainder[columns], digit = np.divmod(remainder[columns], lengths[slot])
        entries = np.asarray(graph.message_offsets[slot] + digit, dtype=np.int64)
        slot_entries.append((columns, entries))

    rows = [row_numbers(graph.unary_offsets), row_of[has_row]]
    column_lists = [np.arange(n_unary), entry_unary[has_row]]
    values = [np.ones(n_unary), -np.ones(int(has_row.sum()))]
    for columns, entries in slot_entries:
        kept = row_of[entries] >= 0
        rows.append(row_of[entries[kept]])
        column_lists.append(n_unary + columns[kept])
        values.append(np.ones(int(kept.sum())))
    n_rows = n + int(has_row.sum())
    matrix = coo_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(column_lists))),
        shape=(n_rows, n_unary + len(tables)),
    ).tocsc()
    return LocalPolytope(
        n_unary=n_unary,
        tables=tables,
        factors=factors,
        table_starts=offsets[:-1],
        matrix=matrix,
        right=np.concatenate([np.ones(n), np.zeros(n_rows - n)]),
        row_variables=np.concatenate(
            [np.arange(n), graph.slot_variables[entry_slots[has_row]].astype(np.int64)]
        ),
        slot_entries=tuple(slot_entries),
        entry_unary=entry_unary,
    )


def improved_labels(
    graph: FactorGraph, unary: FloatArray, tables: FloatArray, beliefs: FloatArray
) -> IntArray:
    """Labels of largest belief, changed one by one while that raises the score."""
    labels = np.zeros(graph.n_variables, dtype=np.int32)
    if graph.n_variables == 0:
        return labels
    largest = np.maximum.reduceat(beliefs, graph.unary_offsets[:-1])
    places = np.flatnonzero(beliefs == expand(largest, graph.unary_offsets))
    variables = np.searchsorted(graph.unary_offsets, places, side="right") - 1
    # assigned backwards, so that the first of equal labels stays
    labels[variables[::-1]] = (places - graph.unary_offsets[variables])[::-1]
    order = np.argsort(greedy_colors(graph.structure), kind="stable").astype(np.int32)
    writeable = np.require(tables, np.float64, ["C", "W"])  # what kernels are compiled for
    iterated_conditional_modes(graph.structure, unary, writeable, order, labels)
    return labels


# -- The linear program --------------------------------------------------------------------

#: Columns of the programs that the examples of a batch are joined to.  A call costs two
#: milliseconds, but the time of a program grows faster than its size: 2,000 to 5,000 were best for
#: grids of 4x4 and 8x8 with 2 to 5 labels, three times faster than one by one for the smallest.
GROUP_SIZE = 4000
#: HiGHS's smallest tolerance, for potentials scaled to a largest size of one.
TOLERANCE = 1e-10


@dataclass(frozen=True)
class LinearProgram(MapSearch):
    """The linear relaxation of MAP: labels, an upper bound, and the relaxed beliefs.

    Examples
    --------
    >>> graph = FactorGraph.chain(3, 2)
    >>> potentials = Potentials(graph, unary=[[0, 1], None, None], factors=[np.eye(2), np.eye(2)])
    >>> result = LinearProgram().run(graph, potentials)
    >>> result.labels.tolist(), round(result.upper_bound, 9), result.optimal
    ([1, 1, 1], 3.0, True)
    """

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
        unary = conditioned_unary(graph, potentials, observed)
        polytope = local_polytope(graph)
        scores = polytope.scores(unary, potentials.factor_values)
        constants = np.zeros(graph.n_factors)
        empty = np.flatnonzero(graph.arities == 0)
        constants[empty] = potentials.factor_values[graph.table_offsets[empty]]
        if (constants == -np.inf).any():
            raise no_labelling("a constant is -inf")
        solution, duals, n_iter = _solve(batch, polytope, scores)
        beliefs = polytope.beliefs(graph, solution)
        labels = improved_labels(graph, unary, potentials.factor_values, beliefs.unary_values)
        values = batch.scores(potentials, labels)
        return certified_result(
            labels,
            values,
            polytope.bounds(batch, scores, constants, duals),
            how=_how(graph, beliefs.unary_values),
            method="LinearProgram",
            n_iter=n_iter,
            beliefs=beliefs,
        )


def _solve(
    batch: Batch, polytope: LocalPolytope, scores: FloatArray
) -> tuple[FloatArray, FloatArray, int]:
    """Solution, dual variables of the rows (for a maximum) and iterations, group by group."""
    graph = batch.graph
    solution = np.zeros(len(scores))
    duals = np.zeros(len(polytope.right))
    factor_examples = row_numbers(batch.factor_offsets)[polytope.factors]
    sizes = np.diff(graph.table_offsets)[polytope.factors]
    column_examples = np.concatenate(
        [
            expand(batch.variable_examples(), graph.unary_offsets),
            np.repeat(factor_examples, sizes),
        ]
    )
    row_examples = batch.variable_examples()[polytope.row_variables]
    n_columns = np.bincount(column_examples, minlength=batch.n_examples)
    group = np.cumsum(n_columns) // GROUP_SIZE  # examples are contiguous in both parts
    n_iter = 0
    for number in np.unique(group):
        columns = np.flatnonzero((group[column_examples] == number) & (scores > -np.inf))
        rows = np.flatnonzero(group[row_examples] == number)
        if len(rows) == 0:
            continue
        matrix = polytope.matrix[:, columns][rows]
        found, row_duals, n_steps = _simplex(scores[columns], matrix, polytope.right[rows])
        solution[columns], duals[rows] = found, row_duals
        n_iter += n_steps
    return solution, duals, n_iter


def _simplex(
    scores: FloatArray, matrix: object, right: FloatArray
) -> tuple[FloatArray, FloatArray, int]:
    from scipy.optimize import linprog

    if len(scores) == 0:
        raise no_labelling("its local polytope is empty")
    scale = max(float(np.abs(scores).max(initial=0.0)), 1e-300)
    found = linprog(
        -scores / scale,
        A_eq=matrix,
        b_eq=right,
        bounds=(0.0, None),
        method="highs-ds",
        options={
            "primal_feasibility_tolerance": TOLERANCE,
            "dual_feasibility_tolerance": TOLERANCE,
        },
    )
    if found.status == 2:
        raise no_labelling("its local polytope is empty")
    if found.status != 0:
        raise InvalidInputError(f"the linear program must have a solution, got: {found.message}")
    return found.x, scale * found.eqlin.marginals, int(found.nit)


def _how(graph: FactorGraph, unary: FloatArray) -> str:
    fractional = (unary > 1e-6) & (unary < 1.0 - 1e-6)
    n_fractional = len(np.unique(row_numbers(graph.unary_offsets)[fractional]))
    if n_fractional:
        return f"{n_fractional} of {graph.n_variables} variables are fractional"
    return "the solution of the linear program is integral"
