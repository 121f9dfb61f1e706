"""A best labelling by a clique tree (upward pass with maxima, then a traceback), or by search.

    max_y s(y) = max_y sum_i th_i(y_i) + sum_a th_a(y_a)

The tree is that of `fieldfit.inference.exact.Exact`.  On the way back every clique takes the best
labels of the variables eliminated in it, given those of its separator, which are known by then.
Where the tree is too wide, branch and bound may still prove a labelling optimal
(`fieldfit.oracle._integer_program`).

Reference: Dawid, "Applications of a general propagation algorithm for probabilistic expert
systems", Statistics and Computing 2 (1992).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fieldfit.core.batch import Batch
from fieldfit.core.potentials import Potentials, observed_labels
from fieldfit.core.result import MapResult
from fieldfit.errors import InvalidInputError, TooLargeError
from fieldfit.inference.elimination import Budget, find_plan, fixed_labels
from fieldfit.inference.exact import log_tables, total_shift
from fieldfit.kernels.clique_tree import pass_upward, trace_back
from fieldfit.oracle._base import MapSearch

__all__ = ["ExactMap"]


@dataclass(frozen=True)
class ExactMap(MapSearch):
    """A labelling of largest score, proved, on graphs of moderate treewidth.

    Parameters
    ----------
    max_memory, max_operations, n_restarts, random_state
        As in `fieldfit.inference.exact.Exact`.
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

    max_memory: float = 4e9
    max_operations: float = 2e10
    n_restarts: int = 200
    random_state: int = 0
    method: str = "clique-tree"
    time_limit: float | None = None

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None = None,
    ) -> MapResult:
        """The same for the union of many graphs; ``scores`` has one entry for each."""
        if self.method not in ("auto", "clique-tree", "integer"):
            raise InvalidInputError(
                f"method must be 'auto', 'clique-tree' or 'integer', got {self.method!r}"
            )
        if self.method != "integer":
            try:
                return self._by_clique_tree(batch, potentials, observed)
            except TooLargeError:
                if self.method == "clique-tree":
                    raise
        from fieldfit.oracle._integer_program import integer_program

        return integer_program(batch, potentials, observed, self.time_limit)

    def _by_clique_tree(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None,
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
        scores = batch.scores(potentials, labels)
        score = float(scores.sum())
        return MapResult(
            labels=labels,
            score=score,
            upper_bound=max(score, bound),  # equal but for rounding
            optimal=True,
            status=f"optimal: {plan.n_cliques} cliques of width at most {plan.width}",
            method="ExactMap",
            n_iter=1,
            scores=scores,
            optimal_examples=np.ones(batch.n_examples, dtype=np.bool_),
        )
