"""Inference and MAP by name: `infer`, `decode`, and `Map`, which picks a method by the model.

Names, the classes behind them and the options that each takes are in `fieldfit._registry`.
``"auto"`` is exact where that fits in memory, otherwise something that says so.  The ``status`` of
a result begins with the method that has run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fieldfit._random_state import require_random_state
from fieldfit._registry import INFERENCE_METHODS, MAP_METHODS, Method
from fieldfit._typing import IntArray, LabelArray
from fieldfit._validation import (
    refuse_unused,
    require_instance,
    require_integer,
    require_number,
    require_one_of,
)
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
from fieldfit.inference.map.anytime import Bracket, is_binary_pairwise, narrow
from fieldfit.inference.map.base import MapSearch, examples
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

    Parameters
    ----------
    graph, potentials
        The model.
    method
        One of ``"auto"``, ``"exact"``, ``"bp"``, ``"belief-optimization"``, ``"double-loop"``,
        ``"kikuchi"``, ``"trw"``, ``"trw-kikuchi"``, ``"convex"``, ``"interior-point"``,
        ``"log-determinant"``, ``"mean-field"``, ``"frank-wolfe"``, ``"gibbs"`` and
        ``"brute-force"``.
    observed
        Evidence: ``{variable: label}``, or one integer for each variable with ``-1`` for "not
        observed".
    max_memory
        Bytes that exact tables may take.
    schedule, damping, tol, max_iter
        Of message passing, as in `SumProduct`.
    random_state
        Seed of methods that draw numbers.
    progress
        A function that is told after every sweep how far the run is.

    Returns
    -------
    InferenceResult
        Beliefs, the log-partition, what is proved about it, and how the run ended.

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
    """What ``infer(method="auto")`` does: `Exact` if it fits, otherwise message passing.

    Parameters
    ----------
    max_memory
        Bytes that exact tables may take.
    tol, max_iter
        Of message passing; ``None`` keeps its defaults.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(4, 2)
    >>> ff.inference.Automatic().run(graph, ff.Potentials(graph)).bound
    'exact'
    """

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
#: What is done in a second, roughly: operations of a clique tree, variables and slots times trials
#: of elimination orders, message entries times sweeps, columns of a linear program.  With a time
#: limit, methods get what fits into a part of it.
OPERATIONS, ELIMINATIONS, ENTRIES, COLUMNS = 1e8, 1e6, 5e7, 1e5
#: Between what is proved and the method that proved it.
BY_BOUND = ", by the bound of "
#: Between the names of methods that found labels of different examples.
AND = " and "


@dataclass(frozen=True, kw_only=True)
class Map(MapSearch):
    """A best labelling by the method that fits the model; ``status`` says which one, and why.

    In this order: a clique tree if there is no cycle; `MaxFlow` for binary submodular pairs;
    `Assignment` and `PerfectMatching` for models that encode a matching; `PlanarIsing` for planar
    binary models without field; a clique tree if it is narrow enough.  These are exact.  What is
    left has an upper bound: the best of `RoofDuality` for binary pairs, or `LinearProgram` if it is
    not too large, and of plain and tree-reweighted max-product.  Where that proves nothing, the gap
    is narrowed from both sides: `Probing` of binary pairs makes the model smaller, inequalities of
    odd cycles lower the bound (`CycleCuts`, or for more labels the same in the linear program) and
    `LocalSearch` raises the score; with a time
    limit, an integer program follows.  Methods whose optional packages are not installed are passed
    over.

    Parameters
    ----------
    exact
        The search by a clique tree with its limits; with ``ExactMap(method="auto")`` an integer
        program follows where the tree is too wide.
    messages
        Options of max-product, where nothing exact fits.
    time_limit
        Seconds of wall time for the whole call, respected to within one step of the method that is
        running; ``None``: an effort of some seconds that is counted in steps, so that results
        depend on ``random_state`` alone.
    random_state
        Seed of the local search.

    Examples
    --------
    >>> graph = FactorGraph.chain(3, 2)
    >>> result = Map().run(graph, Potentials(graph, unary=[[0.0, 1.0], None, None]))
    >>> result.score, result.optimal, result.status.split(":")[0]
    (1.0, True, 'ExactMap, because the graph has no cycle')
    """

    exact: ExactMap = field(default=ExactMap(), kw_only=False)
    messages: MaxProduct = MaxProduct()  # noqa: RUF009 -- frozen
    time_limit: float | None = None
    random_state: int = 0

    def __post_init__(self) -> None:
        require_instance("exact", self.exact, ExactMap, "ExactMap()")
        require_instance("messages", self.messages, MaxProduct, "MaxProduct()")
        require_number("time_limit", self.time_limit, above=0, or_none=True)
        require_integer("random_state", self.random_state, at_least=0)

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: Evidence = None,
        progress: Progress | None = None,
    ) -> MapResult:
        """The same for the union of many graphs; what is not proved goes on by itself."""
        require_model(batch, potentials, progress)
        end = np.inf if self.time_limit is None else time.monotonic() + self.time_limit
        graph = batch.graph
        evidence = observed_labels(graph, observed)
        if graph.is_acyclic:
            result = self.exact.run_batch(batch, potentials, evidence)
            return _picked(result, "the graph has no cycle")
        results = []
        for solver, reason in _exact_methods(graph, self._limited_exact(graph, end)):
            found = _attempt(solver, batch, potentials, evidence, progress)
            if found is not None and found.optimal:
                return _picked(found, reason)
            if found is not None:  # an integer program whose time was over
                results.append(found)
        results += self._relaxed(batch, potentials, evidence, progress, end)
        joined = _joined(batch, potentials, results)
        if not joined.optimal:
            joined = self._narrowed(batch, potentials, evidence, joined, end)
        return _picked(joined, "no exact method fits")

    def _limited_exact(self, graph: FactorGraph, end: float) -> ExactMap:
        """The clique tree with the operations that half of the time allows, and few trials."""
        if self.time_limit is None:
            return self.exact
        left = max(0.0, end - time.monotonic())
        limit = 1e-3 + 0.5 * left
        n_trials = int(0.05 * left * ELIMINATIONS / (1 + graph.n_variables + graph.n_slots))
        return replace(
            self.exact,
            max_operations=min(self.exact.max_operations, OPERATIONS * limit),
            n_restarts=min(self.exact.n_restarts, n_trials),
            time_limit=limit
            if self.exact.time_limit is None
            else min(limit, self.exact.time_limit),
        )

    def _relaxed(
        self,
        batch: Batch,
        potentials: Potentials,
        evidence: IntArray,
        progress: Progress | None,
        end: float,
    ) -> list[MapResult]:
        """Results of the relaxations, until one is optimal or the time is over."""
        results: list[MapResult] = []
        messages, max_columns = self.messages, MAX_COLUMNS
        if self.time_limit is not None:
            seconds = 0.1 * max(0.0, end - time.monotonic())
            n_entries = 1 + int(batch.graph.message_offsets[-1])
            n_sweeps = max(1, int(ENTRIES * seconds / n_entries))
            messages = replace(messages, max_iter=min(messages.max_iter, n_sweeps))
            max_columns = min(max_columns, int(COLUMNS * seconds))
        for solver in _relaxations(batch.graph, messages, max_columns):
            if results and time.monotonic() >= end:
                break
            found = _attempt(solver, batch, potentials, evidence, progress)
            if found is not None:
                results.append(found)
                if found.optimal:
                    break
        return results

    def _narrowed(
        self,
        batch: Batch,
        potentials: Potentials,
        evidence: IntArray,
        joined: MapResult,
        end: float,
    ) -> MapResult:
        """Examples that are not proved go on alone, each with its share of the time."""
        assert joined.scores is not None
        assert joined.optimal_examples is not None
        brackets: dict[int, Bracket] = {}
        n_open = int(np.sum(~joined.optimal_examples))
        for m, (graph, own, known) in enumerate(examples(batch, potentials, evidence)):
            if joined.optimal_examples[m]:
                continue
            first, last = batch.variable_offsets[m : m + 2]
            alone = joined
            share = end
            if batch.n_examples > 1:
                share = time.monotonic() + max(0.0, end - time.monotonic()) / n_open
                single = Batch.of([graph])
                alone = _joined(single, own, self._relaxed(single, own, known, None, share))
            brackets[m] = Bracket(
                labels=joined.labels[first:last],
                score=float(joined.scores[m]),
                bound=alone.upper_bound,
                labels_by=joined.method,
                bound_by=_bound_by(alone),
                is_proved=alone.optimal,
            )
            n_open -= 1
            brackets[m].raise_score(alone.labels, alone.score, alone.method)
            left = max(1e-3, share - time.monotonic())  # a first step is always taken
            if not brackets[m].is_closed:
                narrow(
                    brackets[m],
                    graph,
                    own,
                    known,
                    time_limit=None if left == np.inf else left,
                    random_state=self.random_state,
                )
        return _bracketed(batch, potentials, joined, brackets)


def _exact_methods(graph: FactorGraph, exact: ExactMap) -> list[tuple[MapSearch, str]]:
    """Methods to try, each with the reason that holds if it accepts the model."""
    from fieldfit.inference.map.graph_cut.max_flow import MaxFlow
    from fieldfit.inference.matching.assignment import Assignment
    from fieldfit.inference.matching.perfect_matching import PerfectMatching
    from fieldfit.inference.planar.planar_ising import PlanarIsing

    methods: list[tuple[MapSearch, str]] = []
    if is_binary_pairwise(graph):
        methods.append((MaxFlow(), "its variables are binary and its pairs submodular"))
    methods += [
        (Assignment(), "the model encodes a bipartite matching"),
        (PerfectMatching(), "the model encodes a matching"),
    ]
    if is_binary_pairwise(graph):
        methods.append(
            (PlanarIsing(MAX_FRUSTRATED), "the model is planar, binary and without field")
        )
    proof = "its clique tree is narrow enough"
    if exact.method != "clique-tree":
        proof = "no other exact method fits"
    methods.append((exact, proof))
    return methods


def _relaxations(graph: FactorGraph, messages: MaxProduct, max_columns: int) -> list[MapSearch]:
    """Methods with an upper bound, the most informative first."""
    from fieldfit.inference.map.graph_cut.roof_duality import RoofDuality
    from fieldfit.inference.map.linear_program import LinearProgram

    methods: list[MapSearch] = []
    if is_binary_pairwise(graph):
        methods = [RoofDuality()]  # its value is that of the linear program
    elif graph.unary_offsets[-1] + graph.table_offsets[-1] <= max_columns:
        methods = [LinearProgram()]
    return [*methods, messages, replace(messages, entropy=TreeReweighted())]


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
    methods = AND.join(sorted({results[k].method for k in chosen}))
    is_proved = np.logical_or.reduce(proved, axis=0)
    return MapResult(
        labels=joined,
        score=score,
        upper_bound=score if is_proved.all() else bound,
        optimal=bool(is_proved.all()),
        status=_gap_sentence(score, bound, bool(is_proved.all()), tightest.method),
        method=methods,
        converged=all(result.converged for result in results),
        n_iter=sum(result.n_iter for result in results),
        scores=values,
        optimal_examples=is_proved,
        beliefs=tightest.beliefs,
    )


def _gap_sentence(score: float, bound: float, is_proved: bool, bound_by: str) -> str:
    """What is proved; the name of the method that gave the bound comes last."""
    if is_proved:
        gap = "is optimal"
    elif score == -np.inf:
        gap = "breaks a hard constraint, and no other was found"
    else:
        share = (bound - score) / max(abs(score), 1e-300)
        gap = f"is at most {bound - score:.3g} ({share:.2%}) below the best score"
    return f"the labelling {gap}{BY_BOUND}{bound_by}"


def _bound_by(joined: MapResult) -> str:
    return joined.status.rpartition(BY_BOUND)[2]


def _bracketed(
    batch: Batch, potentials: Potentials, joined: MapResult, brackets: dict[int, Bracket]
) -> MapResult:
    """A joined result with what was found for single examples afterwards."""
    assert joined.optimal_examples is not None  # a joined result has them
    labels, proved = joined.labels.copy(), joined.optimal_examples.copy()
    for m, bracket in brackets.items():
        first, last = batch.variable_offsets[m : m + 2]
        labels[first:last] = bracket.labels
        proved[m] = bracket.is_closed
    scores = batch.scores(potentials, labels)
    bounds = scores.copy()
    for m, bracket in brackets.items():
        bounds[m] = bracket.score if bracket.is_closed else max(bracket.bound, bracket.score)
    score, optimal = float(scores.sum()), bool(proved.all())
    bound = max(score, min(joined.upper_bound, float(bounds.sum())))
    widest = max(brackets.values(), key=lambda bracket: bracket.gap)
    names = {name for bracket in brackets.values() for name in bracket.labels_by.split(AND)}
    return replace(
        joined,
        labels=labels,
        score=score,
        upper_bound=score if optimal else bound,
        optimal=optimal,
        status=_gap_sentence(score, bound, optimal, widest.bound_by),
        method=AND.join(sorted(names)),
        n_iter=joined.n_iter + sum(bracket.n_iter for bracket in brackets.values()),
        scores=scores,
        optimal_examples=proved,
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
    time_limit: float | None = None,
    random_state: int | None = None,
    progress: Progress | None = None,
) -> MapResult:
    """A best labelling by a named method; options left ``None`` keep their defaults.

    ``"auto"`` and ``"map"`` are `Map`, which picks a method by the structure of the model and says
    why; ``"max-product"`` and ``"bp"`` are the same method, and ``"integer"`` is `ExactMap` by an
    integer program.  ``time_limit`` is in seconds.  Methods without tables or random numbers do
    not read ``max_memory`` and ``random_state``; ``progress`` is told by message passing only.

    Parameters
    ----------
    graph, potentials
        The model.
    method
        One of ``"auto"``, ``"map"``, ``"exact"``, ``"integer"``, ``"max-product"``, ``"bp"``,
        ``"trw"``, ``"max-flow"``, ``"roof-duality"``, ``"assignment"``, ``"perfect-matching"``,
        ``"planar"``, ``"lp"``, ``"local-search"`` and ``"cycle-cuts"``.
    observed
        Evidence: ``{variable: label}``, or one integer for each variable with ``-1`` for "not
        observed".
    max_memory
        Bytes that exact tables may take.
    schedule, damping, tol, max_iter
        Of message passing, as in `SumProduct`.
    time_limit
        Seconds.
    random_state
        Seed of searches that draw numbers.
    progress
        A function that is told after every sweep how far the run is.

    Returns
    -------
    MapResult
        Labels, their score, and an upper bound on the score of any labelling.

    Examples
    --------
    >>> import numpy as np, fieldfit as ff
    >>> graph = ff.FactorGraph.grid(2, 2, 2)
    >>> unary = [[0.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.5, 0.0]]
    >>> ff.decode(graph, ff.Potentials(graph, unary, np.eye(2))).labels.tolist()
    [1, 1, 1, 1]
    """
    options = {"schedule": schedule, "damping": damping, "tol": tol, "max_iter": max_iter}
    options["time_limit"] = time_limit
    found = _named(MAP_METHODS, method, **options)
    require_number("max_memory", max_memory, above=0, finite=False)
    solver: MapSearch = found.make(max_memory=max_memory, random_state=random_state, **options)
    result = solver.run(graph, potentials, observed, progress)
    return result if isinstance(solver, Map) else _told(result)
