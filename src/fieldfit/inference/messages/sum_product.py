"""Sum-product (belief propagation) under any entropy: loopy, tree-reweighted and convex.

Finds a stationary point of

    B(th) = max_tau <th, tau> + sum_a c_a H(tau_a) + sum_i c_i H(tau_i)

over the local polytope, for the counting numbers ``c`` of the chosen entropy.  With `Bethe` this is
loopy belief propagation (Pearl 1988; Yedidia, Freeman and Weiss 2005), with `TreeReweighted` the
upper bound of Wainwright, Jaakkola and Willsky (2005), with `Convex` a concave problem whose dual
is descended monotonically (Hazan and Shashua 2008).  The update is stated in
`fieldfit.inference.messages.message_arrays`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fieldfit._arrays import integers
from fieldfit._parallel import require_jobs
from fieldfit._validation import (
    require_flag,
    require_instance,
    require_integer,
    require_number,
    require_one_of,
)
from fieldfit.entropy.counting_numbers import Bethe, CountingNumbers, Entropy, TreeReweighted
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph, require_factor_graph
from fieldfit.graph.potentials import Potentials, observed_labels
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.base import Evidence, Inference, Progress, require_model, require_result
from fieldfit.inference.messages.message_run import MessageRun, build_model, initial_state
from fieldfit.inference.messages.optimized_tree_weights import optimize_weights
from fieldfit.inference.messages.schedule import SCHEDULES

__all__ = ["SumProduct"]


@dataclass(frozen=True, kw_only=True)
class SumProduct(Inference):
    """Message passing with an entropy and a schedule.

    Parameters
    ----------
    entropy
        `Bethe()`, `TreeReweighted()` or `Convex()`.
    schedule
        ``"sequential"`` (one variable after the other, by colours unless ``order`` is given),
        ``"flooding"``, ``"tree"`` (exact sweeps on spanning trees) or ``"residual"`` (largest
        pending change first).  On an acyclic graph ``"sequential"`` goes from the leaves to a root
        and back, which is exact in one sweep.
    order
        Order for ``"sequential"``: variables, each standing for all messages into it, or rows
        ``(factor, variable)``, each one message, as from `grid_clique_order`.  Either may come
        several times in a sweep.
    damping
        Fraction of the old message that is kept, in [0, 1); ``None`` starts with none and adds some
        when the residual stops falling.
    tol
        Converged when no entry of a log-message changes by more than this in a sweep or, for a
        concave entropy, when the beliefs of factors and variables agree to this.
    max_iter
        Most sweeps; for ``"residual"``, the equivalent number of messages.
    n_jobs
        Threads; 1 if ``None``.  The result does not depend on it.
    accelerate
        Where sweeps under a concave entropy would take too long, or more than `max_iter`, find the
        same fixed point by the interior-point method; ``status`` then says so.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(3, 2)
    >>> result = ff.SumProduct().run(graph, ff.Potentials(graph))
    >>> round(result.log_partition, 6), result.bound
    (2.079442, 'exact')
    """

    entropy: Entropy = field(default_factory=Bethe, kw_only=False)
    schedule: str = "sequential"
    order: Any = None
    damping: float | None = None
    tol: float = 1e-8
    max_iter: int = 1000
    n_jobs: int | None = None
    accelerate: bool = True

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: Evidence = None,
        init: InferenceResult | None = None,
        progress: Progress | None = None,
    ) -> InferenceResult:
        """Beliefs and one ``B`` for each example; examples that have converged are left alone.

        ``init`` is an earlier result of sum-product on graphs of this structure.
        """
        require_model(batch, potentials, progress)
        require_result(init)
        graph = batch.graph
        free = None
        if observed is not None and not np.isneginf(potentials.factor_values).any():
            # Messages to an observed variable change neither its belief nor B, where they
            # cancel; only with hard zeros it could still learn that its label is impossible.
            free = observed_labels(graph, observed) < 0

        def solve(counting: CountingNumbers, start: InferenceResult | None) -> InferenceResult:
            model = build_model(graph, potentials, counting, observed)
            state = initial_state(graph, model, start if start is not None else init)
            run = MessageRun(self, batch, model, state, counting, progress, free)
            if self.schedule == "residual":
                run.residual()
            else:
                run.sweeps(self.max_iter)
            if run.has_stalled:
                run.finish()
            return run.result()

        counting = self.entropy.counting_numbers(graph)
        if isinstance(self.entropy, TreeReweighted) and self.entropy.is_optimized:
            return optimize_weights(batch, counting, solve)
        return solve(counting, None)

    def memory(self, graph: FactorGraph) -> float:
        """Bytes that a run adds at its peak to the graph and the potentials it is given."""
        require_factor_graph(graph)
        entries = int(graph.unary_offsets[-1])
        tables = int(graph.table_offsets[-1])
        messages = int(graph.message_offsets[-1])
        slots = int(graph.arities[graph.arities >= 2].sum())
        plan = 12 * slots + 4 * graph.n_variables
        # model (unary part, exponentials of tables), state (messages, log-beliefs), index, plan
        kept = 8 * (entries + tables) + 8 * (messages + entries) + 8 * slots + plan
        sweeping = 8 * slots + plan + 9 * graph.n_variables  # changes, restricted plan
        if self.schedule == "residual":
            sweeping = max(sweeping, plan + 16 * entries)
        finishing = 8 * (entries + tables) + 24 * graph.n_factors + 16 * graph.n_variables
        return float(kept + max(sweeping, finishing))

    def __post_init__(self) -> None:
        require_instance("entropy", self.entropy, Entropy, "Bethe() or TreeReweighted()")
        require_one_of("schedule", self.schedule, SCHEDULES)
        require_number("damping", self.damping, at_least=0, below=1, or_none=True)
        require_number("tol", self.tol, above=0)
        require_integer("max_iter", self.max_iter, at_least=1)
        require_jobs(self.n_jobs)
        require_flag("accelerate", self.accelerate)
        if self.order is not None:
            integers("order", self.order)
        if self.order is not None and self.schedule != "sequential":
            raise InvalidInputError(
                f"order needs schedule='sequential', got schedule={self.schedule!r}"
            )
