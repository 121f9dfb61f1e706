"""Generalised belief propagation on Kikuchi's free energy: beliefs of whole regions.

Maximises over consistent beliefs of the regions of a `RegionGraph`

    <th, b> + sum_r c_r H(b_r)

where ``c_r`` are the counting numbers of the cluster variation method.  Regions that hold the
short cycles of a graph (the 2x2 plaquettes of a grid) make beliefs better by an order of
magnitude, at the cost of tables as large as regions.

``"double-loop"`` is convergent.  A negative entropy ``c_r H(b_r)`` is replaced by its tangent at
the old beliefs, ``|c_r| sum_y b_r(y) log old_r(y)``, which leaves a concave problem.  Its maximum,
found by exact steps on the dual (`fieldfit.inference.kikuchi.region_sweeps`), is at least as good
as the old beliefs were.  ``"messages"`` moves the tangent with every update: far fewer sweeps, but
no guarantee.  Both have the same fixed points.  The double loop starts where some sweeps of plain
messages end.

References: Yedidia, Freeman and Weiss, "Constructing free-energy approximations and generalized
belief propagation algorithms", IEEE Transactions on Information Theory 51 (2005); Yuille, "CCCP
algorithms to minimize the Bethe and Kikuchi free energies", Neural Computation 14 (2002); Heskes,
Albers and Kappen, "Approximate inference and constrained optimization", UAI 2003.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from fieldfit._parallel import require_jobs
from fieldfit._typing import BoolArray, FloatArray
from fieldfit._validation import (
    require_instance,
    require_integer,
    require_number,
    require_one_of,
)
from fieldfit.graph.batch import Batch
from fieldfit.graph.potentials import Potentials, conditioned_unary
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.base import (
    Evidence,
    Inference,
    Progress,
    ending,
    require_model,
    require_result,
)
from fieldfit.inference.kikuchi.hypertree_entropy import HypertreeReweighted, reweighted_regions
from fieldfit.inference.kikuchi.kikuchi_run import RegionRun, plain_messages, run_rounds
from fieldfit.inference.kikuchi.optimized_hypertrees import solve_reweighted
from fieldfit.inference.kikuchi.region_graph import RegionGraph, Regions, require_regions

__all__ = ["GeneralizedSumProduct"]


@dataclass(frozen=True, kw_only=True)
class GeneralizedSumProduct(Inference):
    """Beliefs under Kikuchi's free energy of a region graph.

    Parameters
    ----------
    regions
        ``"plaquettes"`` (cycles of four variables, and factors in none), ``"bethe"`` (factors and
        single variables), lists of variables, one for each outer region, or a `RegionGraph`.  In a
        batch the lists name the variables of each example.
    entropy
        ``None``: the counting numbers of the cluster variation method.  `HypertreeReweighted()`:
        those of a mixture of hypertrees, for which the problem is concave and the value an upper
        bound on the log-partition, converged or not.
    method
        ``"double-loop"`` (converges) or ``"messages"`` (faster, may oscillate).
    tol
        Converged when no belief of a region moves by more than this in a round or sweep, and
        regions agree to this; no logarithm of a belief where they form a junction tree.
    max_iter
        Most sweeps; in the double loop, most sweeps in a round.
    max_rounds
        Most rounds of the double loop.
    first_sweeps
        Most sweeps of plain messages before the first round.
    damping
        Fraction of the old log-belief that plain messages keep, in [0, 1); ``None`` starts with
        none and adds some when the disagreement stops falling.
    n_jobs
        Threads, for the examples of a batch; 1 if ``None``.  The result does not depend on it.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.grid(2, 2, 2)  # a single plaquette: exact
    >>> result = GeneralizedSumProduct("plaquettes").run(graph, ff.Potentials(graph))
    >>> round(result.log_partition, 6), result.bound
    (2.772589, 'exact')
    """

    regions: Regions = field(default="plaquettes", kw_only=False)
    entropy: HypertreeReweighted | None = None
    method: Literal["double-loop", "messages"] = "double-loop"
    tol: float = 1e-6
    max_iter: int = 1000
    max_rounds: int = 1000
    first_sweeps: int = 500
    damping: float | None = None
    n_jobs: int | None = None

    def __post_init__(self) -> None:
        require_regions(self.regions)
        require_instance(
            "entropy", self.entropy, HypertreeReweighted, "HypertreeReweighted()", or_none=True
        )
        require_one_of("method", self.method, ("double-loop", "messages"))
        require_number("tol", self.tol, above=0)
        require_integer("max_iter", self.max_iter, at_least=1)
        require_integer("max_rounds", self.max_rounds, at_least=1)
        require_integer("first_sweeps", self.first_sweeps, at_least=0)
        require_number("damping", self.damping, at_least=0, below=1, or_none=True)
        require_jobs(self.n_jobs)

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: Evidence = None,
        init: InferenceResult | None = None,
        progress: Progress | None = None,
    ) -> InferenceResult:
        """Beliefs, and minus Kikuchi's free energy of each example.

        Each example runs until it has converged by itself.  ``init`` is an earlier result with the
        same regions.
        """
        require_model(batch, potentials, progress)
        require_result(init)
        unary = conditioned_unary(batch.graph, potentials, observed)

        def solve(
            regions: RegionGraph, start: object, most_sweeps: int | None = None
        ) -> tuple[RegionRun, InferenceResult]:
            run = RegionRun(batch, regions, potentials, unary, self.n_jobs)
            if start is not None:
                run.start_from(start)
            options = self if most_sweeps is None else self._limited(most_sweeps)
            if self.method == "messages":
                return run, options._messages(run, progress)
            return run, options._double_loop(run, progress)

        start = None if init is None else init.state
        if self.entropy is None:
            return solve(RegionGraph.of_batch(batch, self.regions), start)[1]
        reweighted = reweighted_regions(batch, self.regions, self.entropy)
        return solve_reweighted(reweighted, solve, start, self.entropy.is_optimized)

    def _messages(self, run: RegionRun, progress: Progress | None) -> InferenceResult:
        plain_messages(run, self.max_iter, self.tol, self.damping, progress)
        run.state.old[:] = run.inner_log_belief
        values, _ = run.values(run.everyone)
        n_sweeps = int(run.n_sweeps.max(initial=0))
        return self._result(
            run, values, run.gaps <= self.tol, run.gaps, n_sweeps, f"{n_sweeps} sweeps", {}
        )

    def _limited(self, most_sweeps: int) -> GeneralizedSumProduct:
        """The same for a run that need not converge."""
        return replace(
            self,
            max_rounds=1,
            max_iter=min(self.max_iter, most_sweeps),
            first_sweeps=min(self.first_sweeps, most_sweeps),
        )

    def _double_loop(self, run: RegionRun, progress: Progress | None) -> InferenceResult:
        if self.first_sweeps:
            plain_messages(run, self.first_sweeps, self.tol, self.damping)
            run.relinearise_at_beliefs(run.everyone)
        rounds = run_rounds(run, self.max_rounds, self.max_iter, self.tol, progress=progress)
        converged_examples = ~rounds.moving & (run.gaps <= self.tol)
        n_sweeps = int(run.n_sweeps.max(initial=0))
        work = f"{rounds.n_rounds} round{'s' if rounds.n_rounds != 1 else ''}, {n_sweeps} sweeps"
        more = {"free_energies": -rounds.values}
        return self._result(
            run, rounds.values[-1], converged_examples, rounds.changes, rounds.n_rounds, work, more
        )

    def _result(
        self,
        run: RegionRun,
        values: FloatArray,
        converged_examples: BoolArray,
        residuals: FloatArray,
        n_iter: int,
        work: str,
        more: dict[str, FloatArray],
    ) -> InferenceResult:
        residual, converged = float(residuals.max(initial=0.0)), bool(converged_examples.all())
        is_plain = self.method == "messages"
        entropy = "" if self.entropy is None else f", {self.entropy.name}"
        moved = "a log-belief" if run.regions.is_acyclic else "a belief"
        status = ending(
            converged_examples,
            f"largest change of {moved} {residual:.2g} after {work}",
            self.tol,
            "damping or the double loop" if is_plain else "more rounds or more sweeps in a round",
        )
        return InferenceResult(
            beliefs=run.beliefs(),
            log_partition=float(values.sum()),
            bound="exact" if converged and run.regions.is_acyclic else None,
            converged=converged,
            n_iter=n_iter,
            residual=residual,
            status=status,
            method=f"GeneralizedSumProduct({self.method}{entropy})",
            log_partitions=values,
            converged_examples=converged_examples,
            diagnostics={"n_sweeps": int(run.n_sweeps.max(initial=0)), **more},
            state=run.state,
        )
