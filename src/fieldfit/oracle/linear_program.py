"""MAP by linear programming over the local polytope, for any arities and cardinalities.

    max <th, tau>    over tau in the local polytope (`fieldfit.oracle._local_polytope`)

is at least the best score, and equal to it if the solution is integral, as on trees and for
submodular binary models.  Otherwise labels are rounded and improved by single changes.  The
solver is HiGHS's dual simplex method; it works to tolerances, therefore the reported bound is
computed from its multipliers alone, by a formula that holds for any multipliers.

References: Schlesinger, "Syntactic analysis of two-dimensional visual signals in the presence of
noise", Kibernetika 4 (1976); Wainwright, Jaakkola and Willsky, "MAP estimation via agreement on
trees", IEEE Transactions on Information Theory 51 (2005).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit.core.batch import Batch
from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Potentials, conditioned_unary
from fieldfit.core.result import MapResult
from fieldfit.errors import InvalidInputError, ZeroWeightError
from fieldfit.oracle._base import MapSearch
from fieldfit.oracle._local_polytope import (
    LocalPolytope,
    improved_labels,
    local_polytope,
    meeting,
)

__all__ = ["LinearProgram"]

FloatArray = NDArray[np.float64]

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
        observed: dict[int, int] | ArrayLike | None = None,
    ) -> MapResult:
        """The same for the union of many graphs; ``scores`` has one entry for each."""
        graph = batch.graph
        unary = conditioned_unary(graph, potentials, observed)
        polytope = local_polytope(graph)
        scores = polytope.scores(unary, potentials.factor_values)
        constants = np.zeros(graph.n_factors)
        empty = np.flatnonzero(graph.arities == 0)
        constants[empty] = potentials.factor_values[graph.table_offsets[empty]]
        if (constants == -np.inf).any():
            raise ZeroWeightError("the model has total weight zero: a constant is -inf")
        solution, multipliers, n_iter = _solve(batch, polytope, scores)
        beliefs = polytope.beliefs(graph, solution)
        labels = improved_labels(graph, unary, potentials.factor_values, beliefs.unary_values)
        values = batch.scores(potentials, labels)
        bounds = polytope.bounds(batch, scores, constants, multipliers)
        bounds = np.maximum(bounds, values)  # rounding may put it a hair below
        proved = meeting(bounds, values)
        score, bound = float(values.sum()), float(bounds.sum())
        return MapResult(
            labels=labels,
            score=score,
            upper_bound=bound,
            optimal=bool(proved.all()),
            status=_status(graph, beliefs.unary_values, score, bound, bool(proved.all())),
            method="LinearProgram",
            n_iter=n_iter,
            scores=values,
            optimal_examples=proved,
            beliefs=beliefs,
        )


def _solve(
    batch: Batch, polytope: LocalPolytope, scores: FloatArray
) -> tuple[FloatArray, FloatArray, int]:
    """Solution, multipliers of the rows (for a maximum) and iterations, group by group."""
    graph = batch.graph
    solution = np.zeros(len(scores))
    multipliers = np.zeros(len(polytope.right))
    column_examples = np.concatenate(
        [
            np.repeat(batch.variable_examples(), graph.cardinalities),
            np.searchsorted(
                batch.factor_offsets,
                np.repeat(polytope.factors, np.diff(graph.table_offsets)[polytope.factors]),
                side="right",
            )
            - 1,
        ]
    )
    row_examples = batch.variable_examples()[polytope.row_variables]
    sizes = np.bincount(column_examples, minlength=batch.n_examples)
    group = np.cumsum(sizes) // GROUP_SIZE  # examples are contiguous in both parts
    n_iter = 0
    for number in np.unique(group):
        columns = np.flatnonzero((group[column_examples] == number) & (scores > -np.inf))
        rows = np.flatnonzero(group[row_examples] == number)
        if len(rows) == 0:
            continue
        matrix = polytope.matrix[:, columns][rows]
        found, row_multipliers, n_steps = _simplex(scores[columns], matrix, polytope.right[rows])
        solution[columns], multipliers[rows] = found, row_multipliers
        n_iter += n_steps
    return solution, multipliers, n_iter


def _simplex(
    scores: FloatArray, matrix: object, right: FloatArray
) -> tuple[FloatArray, FloatArray, int]:
    from scipy.optimize import linprog

    if len(scores) == 0:
        raise _empty_polytope()
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
        raise _empty_polytope()
    if found.status != 0:
        raise InvalidInputError(f"the linear program must have a solution, got: {found.message}")
    return found.x, scale * found.eqlin.marginals, int(found.nit)


def _empty_polytope() -> ZeroWeightError:
    return ZeroWeightError(
        "the model (with its evidence) has total weight zero: its local polytope is empty"
    )


def _status(
    graph: FactorGraph, unary: FloatArray, score: float, bound: float, optimal: bool
) -> str:
    fractional = (unary > 1e-6) & (unary < 1.0 - 1e-6)
    variables = np.repeat(np.arange(graph.n_variables), graph.cardinalities)[fractional]
    n_fractional = len(np.unique(variables))
    what = (
        f"{n_fractional} of {graph.n_variables} variables are fractional"
        if n_fractional
        else "the solution of the linear program is integral"
    )
    if optimal:
        return f"{what}; the labelling is optimal"
    if score == -np.inf:
        return f"{what}; the labelling found breaks a hard constraint, try an exact method"
    return f"{what}; the labelling is at most {bound - score:.3g} below the best score"
