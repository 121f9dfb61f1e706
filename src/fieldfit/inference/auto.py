"""Choose an inference method: exact where it fits in memory, otherwise something that says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from fieldfit.core.entropy import Bethe, Convex, Entropy, TreeReweighted
from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Potentials
from fieldfit.core.result import InferenceResult
from fieldfit.errors import InvalidInputError, TooLargeError
from fieldfit.inference.brute_force import BruteForce
from fieldfit.inference.double_loop import DoubleLoop
from fieldfit.inference.exact import Exact
from fieldfit.inference.gibbs import Gibbs
from fieldfit.inference.mean_field import MeanField
from fieldfit.inference.sum_product import SumProduct

__all__ = ["INFERENCE_METHODS", "infer"]

INFERENCE_METHODS = (
    "auto", "exact", "bp", "belief-optimization", "double-loop", "kikuchi", "trw", "convex",
    "mean-field", "gibbs", "brute-force",
)  # fmt: skip

_ENTROPIES: dict[str, type[Entropy]] = {"bp": Bethe, "trw": TreeReweighted, "convex": Convex}

_ITERATIVE = frozenset({"damping", "max_iter", "tol"})
_USED: dict[str, frozenset[str]] = {
    "auto": frozenset({"max_iter", "tol"}),
    "exact": frozenset(),
    "bp": _ITERATIVE | {"schedule"},
    "belief-optimization": frozenset({"max_iter", "tol"}),
    "double-loop": frozenset({"max_iter", "tol"}),
    "kikuchi": frozenset({"damping", "max_iter", "tol"}),
    "trw": _ITERATIVE | {"schedule"},
    "convex": _ITERATIVE | {"schedule"},
    "mean-field": _ITERATIVE,
    "gibbs": frozenset({"max_iter"}),
    "brute-force": frozenset(),
}

Progress = Callable[[int, float], None]


def infer(
    graph: FactorGraph,
    potentials: Potentials,
    method: str = "auto",
    observed: dict[int, int] | ArrayLike | None = None,
    max_memory: float = 4e9,
    schedule: str | None = None,
    damping: float | None = None,
    tol: float | None = None,
    max_iter: int | None = None,
    random_state: int | None = None,
    progress: Progress | None = None,
) -> InferenceResult:
    """Marginals and log-partition by a named method; every option left ``None`` keeps its default.

    ``"auto"`` is `Exact` if its tables fit in ``max_memory`` bytes.  Otherwise belief propagation
    is tried, residual order first, then with damping; if it does not converge, tree-reweighted
    propagation, whose fixed point is unique.  The ``status`` says what was done and why.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.grid(3, 3, 2)
    >>> ff.infer(graph, ff.Potentials(graph)).bound
    'exact'
    """
    if method not in INFERENCE_METHODS:
        raise InvalidInputError(f"method must be one of {INFERENCE_METHODS}, got {method!r}")
    refuse_unused(
        method, _USED[method], schedule=schedule, damping=damping, tol=tol, max_iter=max_iter
    )
    if method == "auto":
        return _automatic(graph, potentials, observed, max_memory, tol, max_iter, progress)
    if method == "exact":
        return Exact(max_memory=max_memory).run(graph, potentials, observed)
    if method == "brute-force":
        return BruteForce().run(graph, potentials, observed)
    if method == "mean-field":
        mean_field = MeanField(random_state=random_state)
        given = _given(damping=damping, tol=tol, max_iter=max_iter)
        return replace(mean_field, **given).run(graph, potentials, observed, progress=progress)
    if method == "gibbs":
        gibbs = replace(Gibbs(random_state=random_state), **_given(n_sweeps=max_iter))
        return gibbs.run(graph, potentials, observed, progress=progress)
    if method == "belief-optimization":
        # here and below: their many kernels would make every import of the package slower
        from fieldfit.inference.belief_optimization import BeliefOptimization

        descent = replace(BeliefOptimization(), **_given(max_iter=max_iter, tol=tol))
        return descent.run(graph, potentials, observed, progress=progress)
    if method == "double-loop":
        double_loop = replace(DoubleLoop(), **_given(max_rounds=max_iter, tol=tol))
        return double_loop.run(graph, potentials, observed, progress=progress)
    if method == "kikuchi":
        from fieldfit.inference.generalized_sum_product import GeneralizedSumProduct

        kikuchi = replace(
            GeneralizedSumProduct(), **_given(damping=damping, max_rounds=max_iter, tol=tol)
        )
        return kikuchi.run(graph, potentials, observed, progress=progress)
    solver = SumProduct(entropy=_ENTROPIES[method]())
    given = _given(schedule=schedule, damping=damping, tol=tol, max_iter=max_iter)
    return replace(solver, **given).run(graph, potentials, observed, progress=progress)


def refuse_unused(method: str, used: frozenset[str], **options: Any) -> None:
    """Refuse options that a method would ignore."""
    for name in _given(**options):
        if name not in used:
            raise InvalidInputError(
                f"{name} must be left out for method {method!r}, which does not use it, "
                f"got {options[name]!r}"
            )


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _automatic(
    graph: FactorGraph,
    potentials: Potentials,
    observed: dict[int, int] | ArrayLike | None,
    max_memory: float,
    tol: float | None,
    max_iter: int | None,
    progress: Progress | None,
) -> InferenceResult:
    try:
        return Exact(max_memory=max_memory).run(graph, potentials, observed)
    except TooLargeError as refusal:
        reason = f"exact inference refused ({refusal})"
    given = _given(tol=tol, max_iter=max_iter)
    attempts = [
        SumProduct(schedule="residual", **given),
        SumProduct(schedule="sequential", damping=0.5, **given),
        SumProduct(entropy=TreeReweighted(), **given),
        SumProduct(entropy=TreeReweighted(), damping=0.5, **given),
    ]
    best: InferenceResult | None = None
    for solver in attempts:
        result = solver.run(graph, potentials, observed, progress=progress)
        if best is None or result.converged or result.residual < best.residual:
            best = result
        if result.converged:
            break
    assert best is not None  # attempts is not empty
    return replace(best, status=f"{reason}; {best.method} {best.status}")
