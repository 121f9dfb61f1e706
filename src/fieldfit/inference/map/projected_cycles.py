r"""Projected cycles: odd-cycle inequalities for any number of labels, on the local polytope.

Whether a variable has the label ``k`` is a binary variable, and for a pair of variables

    z_{ik,jl} = [ [y_i = k] != [y_j = l] ] = tau_i(k) + tau_j(l) - 2 tau_ij(k, l)

is linear in the beliefs.  Odd-cycle inequalities over these, with one node for each variable and
label, hold for every labelling; added to the linear program over the local polytope they lower its
bound.  Factors of more than two variables have no such pairs, but stay in the program.

Reference: Sontag and Jaakkola, "New outer bounds on the marginal polytope", NIPS 2007.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from fieldfit._typing import FloatArray, IntArray, LongArray
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials, conditioned_unary
from fieldfit.graph.ragged import offsets_of, ranges, row_numbers
from fieldfit.inference.map.cycle_cuts import TOLERANCE, neighbour_lists, odd_cycles
from fieldfit.inference.map.linear_program import LocalPolytope, improved_labels, local_polytope

__all__ = ["ProjectedRelaxation", "n_projected_pairs", "projected_relaxation"]


@dataclass(eq=False)
class ProjectedRelaxation:
    """The smallest bound so far, and labels rounded from the last solution, if there is one."""

    bound: float = np.inf
    labels: IntArray | None = None
    n_rounds: int = 0
    work: float = 0.0


def n_projected_pairs(graph: FactorGraph) -> int:
    """Pairs of labels of all factors of two variables."""
    return int(np.diff(graph.table_offsets)[graph.arities == 2].sum())


def projected_relaxation(
    graph: FactorGraph,
    potentials: Potentials,
    observed: IntArray,
    max_rounds: int,
    *,
    max_work: float = np.inf,
    deadline: float = np.inf,
    target: float = -np.inf,
) -> ProjectedRelaxation:
    """Cutting planes; limits as in `fieldfit.inference.map.cycle_cuts.cycle_relaxation`."""
    from scipy.sparse import csr_array, vstack

    unary = conditioned_unary(graph, potentials, observed)
    polytope = local_polytope(graph)
    scores = polytope.scores(unary, potentials.factor_values)
    ends, forms = _projected_pairs(graph, polytope)
    neighbours = neighbour_lists(polytope.n_unary, ends)
    cuts, right = csr_array((0, len(scores))), np.zeros(0)
    state = ProjectedRelaxation()
    known: set[bytes] = set()
    while (
        state.n_rounds < max_rounds
        and state.work < max_work
        and state.bound > target
        and time.monotonic() < deadline
    ):
        solution = _solve(graph, potentials, polytope, scores, cuts, right, deadline, state)
        if solution is None:
            break
        state.n_rounds += 1
        state.labels = improved_labels(
            graph, unary, potentials.factor_values, solution[: polytope.n_unary]
        )
        z = np.clip(forms @ solution, 0.0, 1.0)
        rows, pairs, values, limits = odd_cycles(neighbours, z, known)
        if len(limits) == 0:
            break
        chosen = csr_array((values, (rows, pairs)), shape=(len(limits), len(ends)))
        cuts = vstack([cuts, chosen @ forms]).tocsr()
        right = np.concatenate([right, limits])
    return state


def _projected_pairs(graph: FactorGraph, polytope: LocalPolytope) -> tuple[LongArray, Any]:
    """Unary entries that each pair of labels joins, and ``z`` as a matrix over the columns."""
    from scipy.sparse import coo_array

    factors = np.flatnonzero(graph.arities == 2)
    sizes = np.diff(graph.table_offsets)[factors]
    owner = row_numbers(offsets_of(sizes))
    slots = graph.scope_offsets[factors][owner]
    i, j = graph.slot_variables[slots], graph.slot_variables[slots + 1]
    k, label = np.divmod(ranges(np.zeros(len(factors)), sizes), graph.cardinalities[j])
    # of two labels one says it all
    kept = ((k > 0) | (graph.cardinalities[i] > 2)) & ((label > 0) | (graph.cardinalities[j] > 2))
    entries = ranges(graph.table_offsets[factors], sizes)[kept]
    ends = np.stack(
        [(graph.unary_offsets[i] + k)[kept], (graph.unary_offsets[j] + label)[kept]], axis=1
    ).astype(np.int64)
    columns = polytope.n_unary + np.searchsorted(polytope.tables, entries)
    n = len(ends)
    forms = coo_array(
        (
            np.repeat([1.0, 1.0, -2.0], n),
            (np.tile(np.arange(n), 3), np.concatenate([ends[:, 0], ends[:, 1], columns])),
        ),
        shape=(n, polytope.matrix.shape[1]),
    ).tocsr()
    return ends, forms


def _solve(
    graph: FactorGraph,
    potentials: Potentials,
    polytope: LocalPolytope,
    scores: FloatArray,
    cuts: Any,
    right: FloatArray,
    deadline: float,
    state: ProjectedRelaxation,
) -> FloatArray | None:
    """Beliefs of the linear program; None if the time was over.

    The bound is computed from the dual variables: those of the inequalities, ``d >= 0``, change the
    potentials to ``th - cuts' d`` and cost ``d . right``; the rest is the bound of the polytope.
    """
    from scipy.optimize import linprog

    columns = np.flatnonzero(scores > -np.inf)
    scale = max(float(np.abs(scores[columns]).max(initial=0.0)), 1e-300)
    limit = {} if deadline == np.inf else {"time_limit": max(1e-3, deadline - time.monotonic())}
    found = linprog(
        -scores[columns] / scale,
        A_ub=cuts[:, columns] if len(right) else None,
        b_ub=right if len(right) else None,
        A_eq=polytope.matrix[:, columns],
        b_eq=polytope.right,
        bounds=(0.0, None),
        method="highs-ds",
        options={
            "primal_feasibility_tolerance": TOLERANCE,
            "dual_feasibility_tolerance": TOLERANCE,
        }
        | limit,
    )
    if found.status != 0:
        return None
    state.work += float(len(right) + len(polytope.right)) * float(found.nit)
    constants = np.zeros(graph.n_factors)
    empty = np.flatnonzero(graph.arities == 0)
    constants[empty] = potentials.factor_values[graph.table_offsets[empty]]
    duals = scale * np.maximum(-found.ineqlin.marginals, 0.0) if len(right) else np.zeros(0)
    changed = scores - cuts.T @ duals
    rest = polytope.bounds(Batch.of([graph]), changed, constants, scale * found.eqlin.marginals)
    state.bound = min(state.bound, float(rest[0]) + float(duals @ right))
    solution = np.zeros(len(scores))
    solution[columns] = found.x
    return solution
