"""A best labelling by branch and bound on the local polytope.

With integral beliefs of the variables the beliefs of the factors are integral, too, so that only
the former are integer variables of the program.  The solver is HiGHS.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fieldfit.core.batch import Batch
from fieldfit.core.potentials import Potentials, conditioned_unary
from fieldfit.core.result import MapResult
from fieldfit.errors import InvalidInputError, ZeroWeightError
from fieldfit.oracle._local_polytope import improved_labels, local_polytope

__all__ = ["integer_program"]

#: The largest potential is scaled to this size.  HiGHS ends at an absolute gap of 1e-6, which then
#: is 1e-12 of it; with much larger numbers its tolerances suffer.
LARGEST = 1e6


def integer_program(
    batch: Batch,
    potentials: Potentials,
    observed: dict[int, int] | ArrayLike | None,
    time_limit: float | None,
) -> MapResult:
    """Best labelling of a batch; if the time is over, the best one found and a bound."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    if time_limit is not None and not time_limit > 0.0:
        raise InvalidInputError(f"time_limit must be positive or None, got {time_limit}")
    graph = batch.graph
    unary = conditioned_unary(graph, potentials, observed)
    polytope = local_polytope(graph)
    scores = polytope.scores(unary, potentials.factor_values)
    constants = potentials.factor_values[graph.table_offsets[:-1][graph.arities == 0]]
    columns = np.flatnonzero(scores > -np.inf)
    if (constants == -np.inf).any() or (len(columns) == 0 and len(polytope.right)):
        raise _no_weight()
    starts = [unary]
    bound, is_proved, n_nodes = 0.0, True, 0
    if len(columns):
        scale = LARGEST / max(float(np.abs(scores[columns]).max()), 1e-300)
        limit = {} if time_limit is None else {"time_limit": time_limit}
        found = milp(
            -scale * scores[columns],
            integrality=columns < polytope.n_unary,
            bounds=Bounds(0.0, 1.0),
            constraints=LinearConstraint(
                polytope.matrix[:, columns], polytope.right, polytope.right
            ),
            options={"mip_rel_gap": 0.0} | limit,
        )
        if found.status == 2:
            raise _no_weight()
        if found.status not in (0, 1):
            raise InvalidInputError(f"the integer program must be solvable, got: {found.message}")
        is_proved = found.status == 0
        bound = np.inf if found.mip_dual_bound is None else -found.mip_dual_bound / scale
        n_nodes = int(found.mip_node_count or 0)
        if found.x is not None:
            own = columns[columns < polytope.n_unary]
            beliefs = np.full(polytope.n_unary, -np.inf)
            beliefs[own] = found.x[: len(own)]
            starts = [beliefs] if is_proved else [beliefs, unary]
    labels = max(
        (improved_labels(graph, unary, potentials.factor_values, start) for start in starts),
        key=potentials.score,
    )
    values = batch.scores(potentials, labels)
    value = float(values.sum())
    if is_proved:
        bound = value
        status = f"optimal: integer program with {n_nodes} nodes"
    else:
        # a search that has just begun may know less than the largest entries of all tables
        constant = np.zeros(graph.n_factors)
        constant[graph.arities == 0] = constants
        every = polytope.bounds(batch, scores, constant, np.zeros(len(polytope.right)))
        bound = max(value, min(bound + float(constants.sum()), float(every.sum())))
        status = (
            f"not proved after time_limit {time_limit:g} s and {n_nodes} nodes of the integer "
            f"program; the labelling is at most {bound - value:.3g} below the best score"
        )
    return MapResult(
        labels=labels,
        score=value,
        upper_bound=bound,
        optimal=is_proved,
        status=status,
        method="ExactMap",
        converged=is_proved,
        n_iter=n_nodes,
        scores=values,
        optimal_examples=np.full(batch.n_examples, is_proved),
    )


def _no_weight() -> ZeroWeightError:
    return ZeroWeightError(
        "the model (with its evidence) has total weight zero: no labelling is possible"
    )
