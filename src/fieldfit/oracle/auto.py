"""Choose a MAP method: `Map` by the structure of the model, `decode` by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fieldfit.core.batch import Batch
from fieldfit.core.entropy import TreeReweighted
from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Potentials, observed_labels, require_graph
from fieldfit.core.result import MapResult
from fieldfit.errors import (
    InvalidInputError,
    MissingDependencyError,
    ZeroWeightError,
)
from fieldfit.inference.auto import refuse_unused
from fieldfit.oracle._base import MapSearch
from fieldfit.oracle.exact_map import ExactMap
from fieldfit.oracle.max_product import MaxProduct

__all__ = ["MAP_METHODS", "Map", "decode"]

MAP_METHODS = (
    "auto", "map", "exact", "integer", "max-product", "bp", "trw", "max-flow", "roof-duality",
    "assignment", "perfect-matching", "planar", "lp",
)  # fmt: skip

_MESSAGES = frozenset({"damping", "max_iter", "schedule", "tol"})
_USED = {
    "auto": _MESSAGES,
    "map": _MESSAGES,
    "max-product": _MESSAGES,
    "bp": _MESSAGES,
    "trw": _MESSAGES,
    "max-flow": frozenset({"max_iter"}),
}

Progress = Callable[[int, float], None]

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
    from fieldfit.oracle.assignment import Assignment
    from fieldfit.oracle.max_flow import MaxFlow
    from fieldfit.oracle.perfect_matching import PerfectMatching
    from fieldfit.oracle.planar_ising import PlanarIsing

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
    from fieldfit.oracle.linear_program import LinearProgram
    from fieldfit.oracle.roof_duality import RoofDuality

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
        _USED.get(method, frozenset()),
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
    from fieldfit.oracle.assignment import Assignment
    from fieldfit.oracle.linear_program import LinearProgram
    from fieldfit.oracle.max_flow import MaxFlow
    from fieldfit.oracle.perfect_matching import PerfectMatching
    from fieldfit.oracle.planar_ising import PlanarIsing
    from fieldfit.oracle.roof_duality import RoofDuality

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
