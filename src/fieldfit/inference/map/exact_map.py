"""Exact MAP: Viterbi decoding on a junction tree, or branch and bound by an integer program.

    max_y s(y) = max_y sum_i th_i(y_i) + sum_a th_a(y_a)

The junction tree (clique tree) is that of `fieldfit.inference.junction_tree.exact.Exact`.  An
upward pass takes maxima instead of sums; in the traceback every clique takes the best labels of the
variables eliminated in it, given those of its separator, which are known by then.  Where the tree
is too wide, branch and bound on the local polytope may still prove a labelling optimal.

Reference: Dawid, "Applications of a general propagation algorithm for probabilistic expert
systems", Statistics and Computing 2 (1992).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fieldfit._validation import require_integer, require_number, require_one_of
from fieldfit.errors import InvalidInputError, TooLargeError
from fieldfit.graph.batch import Batch
from fieldfit.graph.potentials import Potentials, conditioned_unary, observed_labels
from fieldfit.graph.result import MapResult
from fieldfit.inference.base import Evidence, Progress, require_model
from fieldfit.inference.junction_tree.elimination_order import Budget, find_plan, fixed_labels
from fieldfit.inference.junction_tree.exact import log_tables, total_shift
from fieldfit.inference.junction_tree.junction_tree_passes import pass_upward, trace_back
from fieldfit.inference.map.base import MapSearch, no_labelling, optimal_result
from fieldfit.inference.map.linear_program import improved_labels, local_polytope

__all__ = ["ExactMap", "integer_program"]


@dataclass(frozen=True, kw_only=True)
class ExactMap(MapSearch):
    """A labelling of largest score, proved, on graphs of moderate treewidth.

    Parameters
    ----------
    max_memory, max_operations, n_restarts, random_state
        As in `fieldfit.inference.junction_tree.exact.Exact`.
    method
        ``"clique-tree"``; ``"integer"``: an integer program, whose time depends on how tight its
        relaxation is; ``"auto"``: the integer program if the tree is too wide.
    time_limit
        Seconds for the integer program, ``None`` for no limit.  When the time is over, the result
        says that it is not proved, with a bound.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(3, 2)
    >>> potentials = Potentials(graph, unary=[[0, 1], None, None], factors=[np.eye(2), np.eye(2)])
    >>> result = ExactMap().run(graph, potentials)
    >>> result.labels.tolist(), result.score, result.optimal
    ([1, 1, 1], 3.0, True)
    """

    max_memory: float = field(default=4e9, kw_only=False)
    max_operations: float = 2e10
    n_restarts: int = 200
    random_state: int = 0
    method: str = "clique-tree"
    time_limit: float | None = None

    def __post_init__(self) -> None:
        require_number("max_memory", self.max_memory, above=0, finite=False)
        require_number("max_operations", self.max_operations, above=0, finite=False)
        require_integer("n_restarts", self.n_restarts, at_least=0)
        require_integer("random_state", self.random_state, at_least=0)
        require_one_of("method", self.method, ("auto", "clique-tree", "integer"))
        require_number("time_limit", self.time_limit, above=0, or_none=True, finite=False)

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: Evidence = None,
        progress: Progress | None = None,
    ) -> MapResult:
        """The same for the union of many graphs; ``scores`` has one entry for each."""
        require_model(batch, potentials, progress)
        if self.method != "integer":
            try:
                return self._by_clique_tree(batch, potentials, observed)
            except TooLargeError:
                if self.method == "clique-tree":
                    raise
        return integer_program(batch, potentials, observed, self.time_limit)

    def _by_clique_tree(
        self, batch: Batch, potentials: Potentials, observed: Evidence
    ) -> MapResult:
        graph = batch.graph
        evidence = fixed_labels(graph, observed_labels(graph, observed))
        budget = Budget(self.max_memory, self.max_operations, self.n_restarts, self.random_state)
        plan = find_plan(graph, evidence, budget).plan_within(budget, "ExactMap")
        constant, tables = log_tables(potentials, evidence, plan)
        work = plan.workspace()
        shifts = np.empty(plan.n_cliques)
        possible = pass_upward(plan.tree, graph.structure, evidence, tables, True, shifts, work)
        bound = total_shift(constant, shifts, possible)
        labels = evidence.copy()
        trace_back(plan.tree, graph.structure, evidence, tables, labels, work)
        return optimal_result(
            batch,
            potentials,
            labels,
            how=f"{plan.n_cliques} cliques of width at most {plan.width}",
            method="ExactMap",
            upper_bound=bound,
        )


# -- Branch and bound (mixed-integer linear program) on the local polytope -----------------
# With integral beliefs of the variables the beliefs of the factors are integral, too, so that only
# the former are integer variables of the program.  The solver is HiGHS.

#: The largest potential is scaled to this size.  HiGHS ends at an absolute gap of 1e-6, which then
#: is 1e-12 of it; with much larger numbers its tolerances suffer.
LARGEST = 1e6


def integer_program(
    batch: Batch, potentials: Potentials, observed: Evidence, time_limit: float | None
) -> MapResult:
    """Best labelling of a batch; if the time is over, the best one found and a bound."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    graph = batch.graph
    unary = conditioned_unary(graph, potentials, observed)
    polytope = local_polytope(graph)
    scores = polytope.scores(unary, potentials.factor_values)
    constants = potentials.factor_values[graph.table_offsets[:-1][graph.arities == 0]]
    columns = np.flatnonzero(scores > -np.inf)
    if (constants == -np.inf).any() or (len(columns) == 0 and len(polytope.right)):
        raise no_labelling("no labelling is possible")
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
            raise no_labelling("no labelling is possible")
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
