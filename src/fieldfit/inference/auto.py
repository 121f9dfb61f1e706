"""Inference and MAP by name: `infer`, `decode`, and `Map`, which picks a method by the model.

Each table below has one row for each method: its name, the class behind it (imported when it is
first used, because the many kernels would make every import of the package slower), and the options
that it takes.  ``"auto"`` is exact where that fits in memory, otherwise something that says so.
The ``status`` of a result begins with the method that has run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np

from fieldfit._typing import IntArray
from fieldfit._validation import refuse_unused, require_instance, require_one_of
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
from fieldfit.inference.base import Evidence, Progress
from fieldfit.inference.junction_tree.exact import Exact
from fieldfit.inference.map.base import MapSearch
from fieldfit.inference.map.exact_map import ExactMap
from fieldfit.inference.map.max_product import MaxProduct
from fieldfit.inference.messages.sum_product import SumProduct

__all__ = [
    "INFERENCES",
    "INFERENCE_METHODS",
    "MAP_METHODS",
    "SEARCHES",
    "Map",
    "Method",
    "decode",
    "infer",
]

# -- Tables of methods ---------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """A name that `infer` or `decode` takes.

    Attributes
    ----------
    name, module, class_name
        The name, and the class that it stands for.
    options
        Arguments of `infer` or `decode` that it takes.
    renamed
        Fields of the class that have another name than the argument; a path such as
        ``"messages.damping"`` leads into an option object.
    entropy
        Of the class, where the name chooses it.
    fields
        Other fields that the name stands for.
    """

    name: str
    module: str
    class_name: str
    options: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    entropy: type[Entropy] | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    def solver(self, **given: Any) -> Any:
        """An object of the class; arguments that are ``None``, or no options, are left out."""
        cls = getattr(import_module(f"fieldfit.inference.{self.module}"), self.class_name)
        fields = dict(self.fields)
        if self.entropy is not None:
            fields["entropy"] = self.entropy()
        found = cls(**fields)
        for name, value in given.items():
            if value is not None and name in self.options:
                found = _with(found, self.renamed.get(name, name), value)
        return found


def _with(options: Any, path: str, value: Any) -> Any:
    """An option object with another value of a field, or of a field of a field."""
    name, _, rest = path.partition(".")
    if rest:
        value = _with(getattr(options, name), rest, value)
    return replace(options, **{name: value})


_SWEEPS = ("damping", "tol", "max_iter")
_MESSAGES = ("schedule", *_SWEEPS)
_ROUNDS = {"max_iter": "max_rounds"}

_SUM_PRODUCT = ("messages.sum_product", "SumProduct", _MESSAGES)
_MAX_PRODUCT = ("map.max_product", "MaxProduct", _MESSAGES)
_MAP = ("auto", "Map", ("max_memory", *_MESSAGES))
_IN_MAP = {"max_memory": "exact.max_memory"} | {name: f"messages.{name}" for name in _MESSAGES}

#: Methods of `infer`.
INFERENCES = (
    Method("auto", "auto", "_Automatic", ("max_memory", "tol", "max_iter")),
    Method("exact", "junction_tree.exact", "Exact", ("max_memory",)),
    Method("bp", *_SUM_PRODUCT, entropy=Bethe),
    Method(
        "belief-optimization",
        "free_energy.belief_optimization",
        "BeliefOptimization",
        ("tol", "max_iter"),
    ),
    Method("double-loop", "free_energy.double_loop", "DoubleLoop", ("tol", "max_iter"), _ROUNDS),
    Method("kikuchi", "kikuchi.generalized_sum_product", "GeneralizedSumProduct", _SWEEPS, _ROUNDS),
    Method("trw", *_SUM_PRODUCT, entropy=TreeReweighted),
    Method("convex", *_SUM_PRODUCT, entropy=Convex),
    Method("mean-field", "mean_field.mean_field", "MeanField", (*_SWEEPS, "random_state")),
    Method("gibbs", "gibbs.gibbs", "Gibbs", ("max_iter", "random_state"), {"max_iter": "n_sweeps"}),
    Method("brute-force", "brute_force", "BruteForce"),
)
#: Methods of `decode`.
SEARCHES = (
    Method("auto", *_MAP, renamed=_IN_MAP),
    Method("map", *_MAP, renamed=_IN_MAP),
    Method("exact", "map.exact_map", "ExactMap", ("max_memory",)),
    Method("integer", "map.exact_map", "ExactMap", ("max_memory",), fields={"method": "integer"}),
    Method("max-product", *_MAX_PRODUCT),
    Method("bp", *_MAX_PRODUCT),
    Method("trw", *_MAX_PRODUCT, entropy=TreeReweighted),
    Method("max-flow", "map.graph_cut.max_flow", "MaxFlow", ("max_iter",)),
    Method("roof-duality", "map.graph_cut.roof_duality", "RoofDuality"),
    Method("assignment", "matching.assignment", "Assignment"),
    Method("perfect-matching", "matching.perfect_matching", "PerfectMatching"),
    Method("planar", "planar.planar_ising", "PlanarIsing"),
    Method("lp", "map.linear_program", "LinearProgram"),
)

INFERENCE_METHODS = tuple(method.name for method in INFERENCES)
MAP_METHODS = tuple(method.name for method in SEARCHES)


def _named(methods: tuple[Method, ...], name: str, **options: Any) -> Method:
    """The method of a name; refuses options that it would ignore."""
    require_one_of("method", name, tuple(method.name for method in methods))
    found = next(method for method in methods if method.name == name)
    refuse_unused(name, found.options, **options)
    return found


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
    found = _named(INFERENCES, method, **options)
    solver = found.solver(max_memory=max_memory, random_state=random_state, **options)
    # methods without iterations have no progress to tell
    told = {"progress": progress} if "max_iter" in found.options else {}
    result: InferenceResult = solver.run(graph, potentials, observed, **told)
    return result if method == "auto" else _told(result)


def _told(result: Any) -> Any:
    """A result whose status begins with the method."""
    return replace(result, status=f"{result.method}: {result.status}")


@dataclass(frozen=True)
class _Automatic:
    """What ``infer(method="auto")`` does: `Exact` if it fits, otherwise message passing."""

    max_memory: float = 4e9
    tol: float | None = None
    max_iter: int | None = None

    def run(
        self,
        graph: FactorGraph,
        potentials: Potentials,
        observed: Evidence = None,
        progress: Progress | None = None,
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
        graph = batch.graph
        require_graph(graph, potentials)
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
    found = _named(SEARCHES, method, **options)
    solver: MapSearch = found.solver(max_memory=max_memory, **options)
    result = solver.run(graph, potentials, observed, progress)
    return result if isinstance(solver, Map) else _told(result)
