"""What ``fieldfit demo`` runs: methods on the picture, and bounds on a patch of it.

A method is a name and a function from a `Restoration` to an `Outcome`, so one that first learns
its coupling can stand beside those that are given one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fieldfit.cli.demo_picture import Restoration
from fieldfit.core.entropy import TreeReweighted
from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Potentials
from fieldfit.core.result import Bound, InferenceResult
from fieldfit.inference._message_run import Progress
from fieldfit.inference.exact import Exact
from fieldfit.inference.gibbs import Gibbs
from fieldfit.inference.mean_field import MeanField
from fieldfit.inference.sum_product import SumProduct

__all__ = ["BOUND_METHODS", "METHODS", "Method", "Outcome", "Study", "exact_outcomes", "warm_up"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """One restored picture."""

    name: str
    ink: FloatArray  # probability of ink at each pixel
    seconds: float
    converged: bool
    n_iter: int
    status: str
    log_partition: float
    bound: Bound
    curve: tuple[tuple[int, float], ...] = ()  # (sweeps, largest change)


@dataclass(frozen=True)
class Method:
    """A name, one sentence for the page, and how to restore a picture."""

    name: str
    sentence: str
    restore: Callable[[Restoration, int], Outcome]  # the second argument is a seed


def _timed(
    name: str, problem: Restoration, run: Callable[..., InferenceResult], *, traced: bool
) -> Outcome:
    """Run an inference on the model of a problem; noting its progress if ``traced``."""
    graph, potentials = problem.model()
    curve: list[tuple[int, float]] = []

    def note(n_iter: int, residual: float) -> None:
        curve.append((n_iter, residual))

    progress: Progress | None = note if traced else None
    begin = time.perf_counter()
    result = run(graph, potentials, progress=progress)
    seconds = time.perf_counter() - begin
    return Outcome(
        name=name,
        ink=result.beliefs.unary_values[1::2].reshape(problem.clean.shape),
        seconds=seconds,
        converged=result.converged,
        n_iter=result.n_iter,
        status=result.status,
        log_partition=result.log_partition,
        bound=result.bound,
        curve=tuple(curve),
    )


def _independent(problem: Restoration, seed: int) -> Outcome:
    # without coupling the model has no edges that matter: its own log Z is exact, but it is
    # that of another model, so it says nothing about the coupled one
    alone = _timed("independent pixels", problem.with_coupling(0.0), SumProduct().run, traced=False)
    return replace(alone, log_partition=float("nan"), bound=None)


def _belief_propagation(problem: Restoration, seed: int) -> Outcome:
    return _timed("belief propagation", problem, SumProduct().run, traced=True)


def _tree_reweighted(problem: Restoration, seed: int) -> Outcome:
    solver = SumProduct(entropy=TreeReweighted())
    return _timed("tree-reweighted", problem, solver.run, traced=True)


def _mean_field(problem: Restoration, seed: int) -> Outcome:
    return _timed("mean field", problem, MeanField().run, traced=True)


def _gibbs(problem: Restoration, seed: int) -> Outcome:
    sampler = Gibbs(n_sweeps=400, burn_in=100, random_state=seed)
    return _timed("Gibbs sampling", problem, sampler.run, traced=False)


METHODS: tuple[Method, ...] = (
    Method(
        "independent pixels",
        "Every pixel alone: its noise, no neighbours.",
        _independent,
    ),
    Method(
        "belief propagation",
        "Messages along the edges, as if the grid were a tree.",
        _belief_propagation,
    ),
    Method(
        "tree-reweighted",
        "Messages weighted by spanning trees: one optimum, and an upper bound on log Z.",
        _tree_reweighted,
    ),
    Method(
        "mean field",
        "The closest model of independent pixels: a lower bound on log Z, too sure of itself.",
        _mean_field,
    ),
    Method(
        "Gibbs sampling",
        "500 random sweeps of four chains: right in the limit.",
        _gibbs,
    ),
)

#: Those that estimate or bound log Z; Gibbs sampling only has a weak lower bound.
BOUND_METHODS = METHODS[1:4]


@dataclass(frozen=True)
class Study:
    """Bounds on log Z of a patch that exact inference can do, as the coupling grows."""

    patch: Restoration
    couplings: tuple[float, ...]
    exact: tuple[Outcome, ...]
    approximate: dict[str, tuple[Outcome, ...]]

    def errors(self, name: str) -> list[float]:
        """Error of a method's log Z for each pixel."""
        pairs = zip(self.approximate[name], self.exact, strict=True)
        n_pixels = self.patch.clean.size
        return [(ours.log_partition - exact.log_partition) / n_pixels for ours, exact in pairs]


def exact_outcomes(problems: Sequence[Restoration]) -> list[Outcome]:
    """Exact inference on several small pictures; a function that another process can run."""

    def run(
        graph: FactorGraph, potentials: Potentials, progress: Progress | None
    ) -> InferenceResult:
        return Exact().run(graph, potentials)

    tiny = Restoration.generate(2, seed=0, coupling=1.0)  # so that no time includes compilation
    outcomes = [_timed("exact", problem, run, traced=False) for problem in (tiny, *problems)]
    return outcomes[1:]


def warm_up(seed: int) -> None:
    """Compile every kernel that the demo uses (a second if they are in the disk cache)."""
    tiny = Restoration.generate(4, seed, coupling=1.0)
    for method in METHODS:
        method.restore(tiny, seed)
