"""Inference and MAP by name: `infer`, `decode`, and `Map`, which picks a method by the model.

Names, the classes behind them and the options that each takes are in `fieldfit._registry`.
``"auto"`` is exact where that fits in memory, otherwise something that says so.  The ``status`` of
a result begins with the method that has run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fieldfit._random_state import require_random_state
from fieldfit._registry import INFERENCE_METHODS, MAP_METHODS, Method
from fieldfit._typing import IntArray, LabelArray
from fieldfit._validation import refuse_unused, require_instance, require_number, require_one_of
from fieldfit.entropy.counting_numbers import TreeReweighted
from fieldfit.errors import (
    InvalidInputError,
    MissingDependencyError,
    TooLargeError,
    ZeroWeightError,
)
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials, observed_labels
from fieldfit.graph.result import InferenceResult, MapResult
from fieldfit.inference.base import Evidence, GraphInference, Progress, require_model
from fieldfit.inference.junction_tree.exact import Exact
from fieldfit.inference.map.base import MapSearch
from fieldfit.inference.map.exact_map import ExactMap
from fieldfit.inference.map.max_product import MaxProduct
from fieldfit.inference.messages.sum_product import SumProduct

__all__ = ["Automatic", "Map", "decode", "infer"]


def _named(methods: Mapping[str, Method], name: str, **options: Any) -> Method:
    """The method of a name; refuses options that it would ignore."""
    require_one_of("method", name, tuple(methods))
    refuse_unused(name, methods[name].options, **options)
    return methods[name]


# -- Marginals by name ---------------------------------------------------------------------


def infer(
    graph: FactorGraph,
    potentials: Potentials,
    method: str = "auto",
    observed: Evidence = None,
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
    propagation, whose fixed point is unique.  The ``status`` says what was done and why.  Methods
    without tables or random numbers do not read ``max_memory`` and ``random_state``.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.grid(3, 3, 2)
    >>> ff.infer(graph, ff.Potentials(graph)).bound
    'exact'
    """
    options = {"schedule": schedule, "damping": damping, "tol": tol, "max_iter": max_iter}
    found = _named(INFERENCE_METHODS, method, **options)
    require_number("max_memory", max_memory, above=0, finite=False)
    require_random_state(random_state)
    solver = found.make(max_memory=max_memory, random_state=random_state, **options)
    told = {} if progress is None else {"progress": progress}
    result: InferenceResult = solver.run(graph, potentials, observed, **told)
    return result if method == "auto" else _told(result)


def _told(result: Any) -> Any:
    """A result whose status begins with the method."""
    return replace(result, status=f"{result.method}: {result.status}")


@dataclass(frozen=True, kw_only=True)
class Automatic(GraphInference):
    """What ``infer(method="auto")`` does: `Exact` if it fits, otherwise message passing."""

    max_memory: float = field(default=4e9, kw_only=False)
    tol: float | None = None
    max_iter: int | None = None

    def __post_init__(self) -> None:
        Exact(max_memory=self.max_memory)
        self._attempts()  # these check the others

    def run_graph(
        self,
        graph: FactorGraph,
        potentials: Potentials,
        observed: LabelArray,
        init: Any,
        progress: Progress | None,
    ) -> InferenceResult:
        """The first attempt that converges; else the one that came nearest."""
        try:
            return _told(Exact(max_memory=self.max_memory).run(graph, potentials, observed))
        except TooLargeError as refusal:
            reason = f"exact inference refused ({refusal})"
        best: InferenceResult | None = None
        for solver in self._attempts():
            result = solver.run(graph, potentials, observed, progress=progress)
            if best is None or result.converged or result.residual < best.residual:
                best = result
            if result.converged:
                break
        assert best is not None  # there are attempts
        return replace(best, status=f"{best.method}, because {reason}: {best.status}")

    def _attempts(self) -> list[SumProduct]:
        options = {"tol": self.tol, "max_iter": self.max_iter}
        given: dict[str, Any] = {name: x for name, x in options.items() if x is not None}
        return [
            SumProduct(schedule="residual", **given),
            SumProduct(schedule="sequential", damping=0.5, **given),
            SumProduct(entropy=TreeReweighted(), **given),
            SumProduct(entropy=TreeReweighted(), damping=0.5, **given),
        ]


# -- MAP by the structure of the model -----------------------------------------------------

#: Columns of a linear program (entries of all unary and factor tables) that is solved in seconds.
MAX_COLUMNS = 30_000
#: Frustrated faces of a planar model that are matched in seconds.
MAX_FRUSTRATED = 1000


@dataclass(frozen=True, kw_only=True)
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

    exact: ExactMap = field(default=ExactMap(), kw_only=False)
    messages: MaxProduct = MaxProduct()  # noqa: RUF009 -- frozen

    def __post_init__(self) -> None:
        require_instance("exact", self.exact, ExactMap, "ExactMap()")
        require_instance("messages", self.messages, MaxProduct, "MaxProduct()")

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: Evidence = None,
        progress: Progress | None = None,
    ) -> MapResult:
        """The same for the union of many graphs; all are solved by the same method."""
        require_model(batch, potentials, progress)
        graph = batch.graph
        evidence = observed_labels(graph, observed)
        if graph.is_acyclic:
            result = self.exact.run_batch(batch, potentials, evidence)
            return _picked(result, "the graph has no cycle")
        results = []
        for solver, reason in _exact_methods(graph, self.exact):
            found = _attempt(solver, batch, potentials, evidence, progress)
            if found is not None and found.optimal:
                return _picked(found, reason)
            if found is not None:  # an integer program whose time was over
                results.append(found)
        for solver in _relaxations(graph, self.messages):
            found = _attempt(solver, batch, potentials, evidence, progress)
            if found is not None:
                results.append(found)
                if found.optimal:
                    break
        return _picked(_joined(batch, potentials, results), "no exact method fits")


def _exact_methods(graph: FactorGraph, exact: ExactMap) -> list[tuple[MapSearch, str]]:
    """Methods to try, each with the reason that holds if it accepts the model."""
    from fieldfit.inference.map.graph_cut.max_flow import MaxFlow
    from fieldfit.inference.matching.assignment import Assignment
    from fieldfit.inference.matching.perfect_matching import PerfectMatching
    from fieldfit.inference.planar.planar_ising import PlanarIsing

    methods: list[tuple[MapSearch, str]] = []
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


def _relaxations(graph: FactorGraph, messages: MaxProduct) -> list[MapSearch]:
    """Methods with an upper bound, the most informative first."""
    from fieldfit.inference.map.graph_cut.roof_duality import RoofDuality
    from fieldfit.inference.map.linear_program import LinearProgram

    methods: list[MapSearch] = []
    if _is_binary_pairwise(graph):
        methods = [RoofDuality()]  # its value is that of the linear program
    elif graph.unary_offsets[-1] + graph.table_offsets[-1] <= MAX_COLUMNS:
        methods = [LinearProgram()]
    return [*methods, messages, replace(messages, entropy=TreeReweighted())]


def _is_binary_pairwise(graph: FactorGraph) -> bool:
    return bool(graph.cardinalities.max(initial=0) <= 2 and graph.arities.max(initial=0) <= 2)


def _attempt(
    solver: MapSearch,
    batch: Batch,
    potentials: Potentials,
    evidence: IntArray,
    progress: Progress | None,
) -> MapResult | None:
    """The result of a method, or ``None`` if it does not accept the model."""
    try:
        return solver.run_batch(batch, potentials, evidence, progress)
    except ZeroWeightError:
        raise
    except (InvalidInputError, MissingDependencyError):
        return None


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


# -- MAP by name ---------------------------------------------------------------------------


def decode(
    graph: FactorGraph,
    potentials: Potentials,
    method: str = "auto",
    observed: Evidence = None,
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
    options = {"schedule": schedule, "damping": damping, "tol": tol, "max_iter": max_iter}
    found = _named(MAP_METHODS, method, **options)
    require_number("max_memory", max_memory, above=0, finite=False)
    solver: MapSearch = found.make(max_memory=max_memory, **options)
    result = solver.run(graph, potentials, observed, progress)
    return result if isinstance(solver, Map) else _told(result)
