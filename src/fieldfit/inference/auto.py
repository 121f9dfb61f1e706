"""Choose an inference method: exact where it fits in memory, otherwise something that says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fieldfit.entropy.counting_numbers import Bethe, Convex, Entropy, TreeReweighted
from fieldfit.errors import (
    InvalidInputError,
    MissingDependencyError,
    TooLargeError,
    ZeroWeightError,
)
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials, observed_labels, require_graph
from fieldfit.graph.result import InferenceResult, MapResult
from fieldfit.inference.brute_force import BruteForce
from fieldfit.inference.free_energy.double_loop import DoubleLoop
from fieldfit.inference.gibbs.gibbs import Gibbs
from fieldfit.inference.junction_tree.exact import Exact
from fieldfit.inference.map.base import MapSearch
from fieldfit.inference.map.exact_map import ExactMap
from fieldfit.inference.map.max_product import MaxProduct
from fieldfit.inference.mean_field.mean_field import MeanField
from fieldfit.inference.messages.sum_product import SumProduct

__all__ = ["INFERENCE_METHODS", "MAP_METHODS", "Map", "decode", "infer"]

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
        from fieldfit.inference.free_energy.belief_optimization import BeliefOptimization

        descent = replace(BeliefOptimization(), **_given(max_iter=max_iter, tol=tol))
        return descent.run(graph, potentials, observed, progress=progress)
    if method == "double-loop":
        double_loop = replace(DoubleLoop(), **_given(max_rounds=max_iter, tol=tol))
        return double_loop.run(graph, potentials, observed, progress=progress)
    if method == "kikuchi":
        from fieldfit.inference.kikuchi.generalized_sum_product import GeneralizedSumProduct

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


# -- Choose a MAP method: `Map` by the structure of the model, `decode` by name ------------


MAP_METHODS = (
    "auto", "map", "exact", "integer", "max-product", "bp", "trw", "max-flow", "roof-duality",
    "assignment", "perfect-matching", "planar", "lp",
)  # fmt: skip

_MESSAGES = frozenset({"damping", "max_iter", "schedule", "tol"})
_USED_BY_SEARCH = {
    "auto": _MESSAGES,
    "map": _MESSAGES,
    "max-product": _MESSAGES,
    "bp": _MESSAGES,
    "trw": _MESSAGES,
    "max-flow": frozenset({"max_iter"}),
}


#: Columns of a linear program (entries of all unary and factor tables) that is solved in seconds.
MAX_COLUMNS = 30_000
#: Frustrated faces of a planar model that are matched in seconds.
MAX_FRUSTRATED = 1000


@dataclass(frozen=True)
class Map(MapSearch):
    """A best labelling by the method that fits the model; ``status`` says which one, and why.

    In this order: a clique tree if there is no cycle; `MaxFlow` for binary submodular pairs;
    `Assignment` and `PerfectMatching` for models that encode a matching; `PlanarIsing` for planar
    binary models without field; a clique tree if it is narrow enough.  These are exact.  What is
    left has an upper bound: the best of `RoofDuality` for binary pairs, or `LinearProgram` if it is
    not too large, and of plain and tree-reweighted max-product.  Methods whose optional packages
    are not installed are passed over.

    Parameters
    ----------
    exact
        The search by a clique tree with its limits; with ``ExactMap(method="auto")`` an integer
        program follows where the tree is too wide.
    messages
        Options of max-product, where nothing exact fits.

    Examples
    --------
    >>> graph = FactorGraph.chain(3, 2)
    >>> result = Map().run(graph, Potentials(graph, unary=[[0.0, 1.0], None, None]))
    >>> result.score, result.optimal, result.status.split(":")[0]
    (1.0, True, 'ExactMap, because the graph has no cycle')
    """

    exact: ExactMap = ExactMap()  # noqa: RUF009 -- frozen
    messages: MaxProduct = MaxProduct()  # noqa: RUF009 -- frozen

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None = None,
    ) -> MapResult:
        """The same for the union of many graphs; all are solved by the same method."""
        graph = batch.graph
        require_graph(graph, potentials)
        evidence = observed_labels(graph, observed)
        if graph.is_acyclic:
            result = self.exact.run_batch(batch, potentials, evidence)
            return _picked(result, "the graph has no cycle")
        results = []
        for solver, reason in _exact_methods(graph, self.exact):
            found = _attempt(solver, batch, potentials, evidence)
            if found is not None and found.optimal:
                return _picked(found, reason)
            if found is not None:  # an integer program whose time was over
                results.append(found)
        for solver in _relaxations(graph, self.messages):
            found = _attempt(solver, batch, potentials, evidence)
            if found is not None:
                results.append(found)
                if found.optimal:
                    break
        return _picked(_joined(batch, potentials, results), "no exact method fits")


def _exact_methods(graph: FactorGraph, exact: ExactMap) -> list[tuple[Any, str]]:
    """Methods to try, each with the reason that holds if it accepts the model."""
    from fieldfit.inference.map.graph_cut.max_flow import MaxFlow
    from fieldfit.inference.matching.assignment import Assignment
    from fieldfit.inference.matching.perfect_matching import PerfectMatching
    from fieldfit.inference.planar.planar_ising import PlanarIsing

    methods: list[tuple[Any, str]] = []
    if _is_binary_pairwise(graph):
        methods.append((MaxFlow(), "its variables are binary and its pairs submodular"))
    methods += [
        (Assignment(), "the model encodes a bipartite matching"),
        (PerfectMatching(), "the model encodes a matching"),
    ]
    if _is_binary_pairwise(graph):
        methods.append(
            (PlanarIsing(MAX_FRUSTRATED), "the model is planar, binary and without field")
        )
    proof = "its clique tree is narrow enough"
    if exact.method != "clique-tree":
        proof = "no other exact method fits"
    methods.append((exact, proof))
    return methods


def _relaxations(graph: FactorGraph, messages: MaxProduct) -> list[Any]:
    """Methods with an upper bound, the most informative first."""
    from fieldfit.inference.map.graph_cut.roof_duality import RoofDuality
    from fieldfit.inference.map.linear_program import LinearProgram

    methods: list[Any] = []
    if _is_binary_pairwise(graph):
        methods = [RoofDuality()]  # its value is that of the linear program
    elif graph.unary_offsets[-1] + graph.table_offsets[-1] <= MAX_COLUMNS:
        methods = [LinearProgram()]
    return [*methods, messages, replace(messages, entropy=TreeReweighted())]


def _is_binary_pairwise(graph: FactorGraph) -> bool:
    return bool(graph.cardinalities.max(initial=0) <= 2 and graph.arities.max(initial=0) <= 2)


def _attempt(solver: Any, batch: Batch, potentials: Potentials, evidence: Any) -> MapResult | None:
    """The result of a method, or ``None`` if it does not accept the model."""
    try:
        result: MapResult = solver.run_batch(batch, potentials, evidence)
    except ZeroWeightError:
        raise
    except (InvalidInputError, MissingDependencyError):
        return None
    return result


def _picked(result: MapResult, reason: str) -> MapResult:
    return replace(result, status=f"{result.method}, because {reason}: {result.status}")


def _joined(batch: Batch, potentials: Potentials, results: list[MapResult]) -> MapResult:
    """The best labelling of each example, and the smallest bound on their sum."""
    scores = np.stack([result.scores for result in results if result.scores is not None])
    proved = np.stack(
        [result.optimal_examples for result in results if result.optimal_examples is not None]
    )
    chosen = np.lexsort((scores, proved), axis=0)[-1]  # a proved one is best but for rounding
    of_variable = chosen[batch.variable_examples()]
    labels = np.stack([result.labels for result in results])
    joined = labels[of_variable, np.arange(labels.shape[1])]
    values = batch.scores(potentials, joined)
    score = float(values.sum())
    tightest = min(results, key=lambda result: result.upper_bound)
    bound = max(score, tightest.upper_bound)
    methods = " and ".join(sorted({results[k].method for k in chosen}))
    is_proved = np.logical_or.reduce(proved, axis=0)
    gap = (
        "is optimal" if is_proved.all() else f"is at most {bound - score:.3g} below the best score"
    )
    return MapResult(
        labels=joined,
        score=score,
        upper_bound=score if is_proved.all() else bound,
        optimal=bool(is_proved.all()),
        status=f"the labelling {gap}, by the bound of {tightest.method}",
        method=methods,
        converged=all(result.converged for result in results),
        n_iter=sum(result.n_iter for result in results),
        scores=values,
        optimal_examples=is_proved,
        beliefs=tightest.beliefs,
    )


def decode(
    graph: FactorGraph,
    potentials: Potentials,
    method: str = "auto",
    observed: dict[int, int] | ArrayLike | None = None,
    max_memory: float = 4e9,
    schedule: str | None = None,
    damping: float | None = None,
    tol: float | None = None,
    max_iter: int | None = None,
    progress: Progress | None = None,
) -> MapResult:
    """A best labelling by a named method; options left ``None`` keep their defaults.

    ``"auto"`` and ``"map"`` are `Map`, which picks a method by the structure of the model and says
    why; ``"max-product"`` and ``"bp"`` are the same method, and ``"integer"`` is `ExactMap` by an
    integer program.  ``progress`` is told by message passing only.
    """
    if method not in MAP_METHODS:
        raise InvalidInputError(f"method must be one of {MAP_METHODS}, got {method!r}")
    refuse_unused(
        method,
        _USED_BY_SEARCH.get(method, frozenset()),
        schedule=schedule,
        damping=damping,
        tol=tol,
        max_iter=max_iter,
    )
    given = {"schedule": schedule, "damping": damping, "tol": tol, "max_iter": max_iter}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    exact = ExactMap(max_memory=max_memory)
    if method in ("max-product", "bp"):
        return replace(MaxProduct(), **options).run(graph, potentials, observed, progress=progress)
    if method == "trw":
        reweighted = replace(MaxProduct(entropy=TreeReweighted()), **options)
        return reweighted.run(graph, potentials, observed, progress=progress)
    if method in ("auto", "map"):
        messages = replace(MaxProduct(), **options)
        return Map(exact, messages).run(graph, potentials, observed)
    solver = _named(method, exact, options)
    result: MapResult = solver.run(graph, potentials, observed)
    return result


def _named(method: str, exact: ExactMap, options: dict[str, Any]) -> Any:
    """The search of a name, other than messages."""
    from fieldfit.inference.map.graph_cut.max_flow import MaxFlow
    from fieldfit.inference.map.graph_cut.roof_duality import RoofDuality
    from fieldfit.inference.map.linear_program import LinearProgram
    from fieldfit.inference.matching.assignment import Assignment
    from fieldfit.inference.matching.perfect_matching import PerfectMatching
    from fieldfit.inference.planar.planar_ising import PlanarIsing

    return {
        "exact": exact,
        "integer": replace(exact, method="integer"),
        "max-flow": replace(MaxFlow(), **options) if method == "max-flow" else None,
        "roof-duality": RoofDuality(),
        "assignment": Assignment(),
        "perfect-matching": PerfectMatching(),
        "planar": PlanarIsing(),
        "lp": LinearProgram(),
    }[method]
