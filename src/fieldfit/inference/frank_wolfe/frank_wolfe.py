"""Pairwise Frank-Wolfe (conditional gradient): marginals by MAP searches alone.

    B(th) = max over tau in the polytope of <th, tau> + H_c(tau)

with a concave entropy.  At a point ``tau`` the best vertex of the linearised problem, potentials
``th + grad H_c(tau)``, is a MAP search, and how far it is above ``tau``,

    gap = max over s of <th + grad H_c(tau), s - tau>  >=  B(th) - <th, tau> - H_c(tau),

certifies the point.  Vertices that were found are kept as the atoms of an active set, and pairwise
steps move weight between them until that gains little; only then the next search follows.  Which
polytope it is depends on the oracle: the local one for relaxations (`RoofDuality`, `LinearProgram`,
any oracle on a tree), where the answer is that of message passing with the same entropy, or that of
true marginals (`ExactMap`).

References: Frank and Wolfe (1956); Jaggi, "Revisiting Frank-Wolfe", ICML (2013); Lacoste-Julien and
Jaggi, "On the global linear convergence of Frank-Wolfe optimization variants", NIPS (2015); Sontag
and Jaakkola, "New outer bounds on the marginal polytope", NIPS (2007); Tang, Ruozzi, Belanger and
Jebara, "Bethe learning of graphical models via MAP decoding", AISTATS (2016).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fieldfit._typing import BoolArray, FloatArray
from fieldfit._validation import require_flag, require_instance, require_integer, require_number
from fieldfit.entropy.counting_numbers import CountingNumbers, Entropy, TreeReweighted
from fieldfit.errors import InvalidInputError, ZeroWeightError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import (
    Beliefs,
    Potentials,
    observed_labels,
    with_evidence,
)
from fieldfit.graph.ragged import expand
from fieldfit.graph.result import Bound, InferenceResult
from fieldfit.inference.base import (
    Evidence,
    Inference,
    Progress,
    ending,
    require_model,
    require_result,
)
from fieldfit.inference.frank_wolfe.active_set import ActiveSet
from fieldfit.inference.map.base import MapSearch, require_oracle

__all__ = [
    "AscentResult",
    "FrankWolfe",
    "Point",
    "coefficients_of",
    "concave_counting_numbers",
    "covering_point",
    "find_point",
    "relaxation_oracle",
    "run_frank_wolfe",
    "uniform_point",
]

# -- Pairwise Frank-Wolfe, for any polytope that can be searched ----------------------------

#: Pairwise steps go on until what the atoms promise is below this fraction of the gap, or so many
#: at most: a search costs more than many of these steps.
PATIENCE, MAX_PAIRWISE_STEPS = 0.1, 200


@dataclass(frozen=True)
class Point:
    """A point of the polytope, flat, and a number that no point's linear score exceeds."""

    values: FloatArray
    upper_bound: float


#: A point of largest linear score under some slopes.
Find = Callable[[FloatArray], Point]


@dataclass(frozen=True)
class AscentResult:
    """How it ended: ``<th, x> + H(x)`` is ``value``, and at most ``gap`` below its maximum."""

    value: float
    gap: float
    n_iter: int
    converged: bool


def run_frank_wolfe(
    active: ActiveSet,
    potentials: FloatArray,
    find: Find,
    tol: float,
    max_iter: int,
    progress: Progress | None = None,
) -> AscentResult:
    """Move a point until its gap is below ``tol`` of the value (or of 1, if that is larger).

    ``potentials`` may be ``-inf`` where every point of the polytope is zero.
    """
    is_possible = potentials > -np.inf
    finite = np.where(is_possible, potentials, 0.0)
    nothing = np.zeros(0)
    n_iter = 0
    while True:
        slopes = active.slopes(potentials)
        vertex = find(slopes)
        n_iter += 1
        value = active.linear + active.entropy()
        gap = max(vertex.upper_bound - float(np.where(is_possible, slopes, 0.0) @ active.x), 0.0)
        if progress is not None:
            progress(n_iter, gap)
        converged = gap <= tol * max(1.0, abs(value))
        if converged or n_iter == max_iter:
            return AscentResult(value, gap, n_iter, converged)
        linear = float(finite @ vertex.values)
        if active.keep_active_set:
            index = active.add(vertex.values, nothing, linear)
            active.move_weights(nothing, PATIENCE * gap, MAX_PAIRWISE_STEPS, index)
        else:
            active.step_towards(vertex.values, nothing, linear, nothing)


def covering_point(find: Find, is_possible: BoolArray) -> FloatArray:
    """A convex combination of points of the polytope, positive wherever one of them can be.

    Some entries are impossible, and make others so.  Searches with a bonus on what has not been met
    yet go on until they meet nothing new.
    """
    total = np.zeros(len(is_possible))
    n_points = 0
    while True:
        wanted = np.where(total > 0.0, 0.0, 1.0)
        point = find(np.where(is_possible, wanted, -np.inf)).values
        if n_points and not np.any((point > 0.0) & (total == 0.0)):
            return total / n_points
        if np.any((point > 0.0) & ~is_possible):
            raise ZeroWeightError(
                "potentials must give some labelling a positive weight; the MAP search found none"
            )
        total += point
        n_points += 1


# -- The local polytope: its oracle, its points and the entropy ----------------------------


def relaxation_oracle(graph: FactorGraph) -> MapSearch:
    """A search over the local polytope of a graph.

    `MaxProduct` where there are no cycles, so that best labellings are enough; `RoofDuality` where
    all variables are binary and factors join two; `LinearProgram` otherwise.
    """
    if graph.is_acyclic:
        from fieldfit.inference.map.max_product import MaxProduct

        return MaxProduct()
    if int(graph.cardinalities.max(initial=1)) <= 2 and int(graph.arities.max(initial=0)) <= 2:
        from fieldfit.inference.map.graph_cut.roof_duality import RoofDuality

        return RoofDuality()
    from fieldfit.inference.map.linear_program import LinearProgram

    return LinearProgram()


def find_point(oracle: MapSearch, batch: Batch, slopes: FloatArray) -> Point:
    """What an oracle finds for flat potentials: unary entries, then those of factors."""
    graph = batch.graph
    cut = int(graph.unary_offsets[-1])
    potentials = Potentials.from_flat(graph, slopes[:cut].copy(), slopes[cut:].copy())
    found = oracle.run_batch(batch, potentials)
    beliefs = found.beliefs
    if beliefs is None:
        beliefs = Beliefs.from_labels(graph, found.labels)
    values = np.concatenate([beliefs.unary_values, beliefs.factor_values])
    return Point(values, found.upper_bound)


def concave_counting_numbers(entropy: Entropy, graph: FactorGraph) -> CountingNumbers:
    """Counting numbers of an entropy that is proved to be concave on this graph, or an error."""
    counting = entropy.counting_numbers(graph)
    if not counting.concave:
        raise InvalidInputError(
            f"entropy must be concave on the local polytope, {entropy.name} is not proved to be on "
            f"this graph ({counting.reason}); TreeReweighted() always is"
        )
    return counting


def coefficients_of(graph: FactorGraph, counting: CountingNumbers) -> FloatArray:
    """The counting number of every entry of a flat vector of beliefs."""
    return np.concatenate(
        [
            expand(counting.variable, graph.unary_offsets),
            expand(counting.factor, graph.table_offsets),
        ]
    )


def uniform_point(graph: FactorGraph) -> FloatArray:
    """Uniform beliefs, flat."""
    offsets = (graph.unary_offsets, graph.table_offsets)
    return np.concatenate([expand(1.0 / np.diff(starts), starts) for starts in offsets])


# -- The inference -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FrankWolfe(Inference):
    """Marginals and a certified surrogate of the log-partition, by calls of a MAP oracle.

    Parameters
    ----------
    oracle
        A MAP search; ``None`` picks one for the local polytope.
    entropy
        Must be concave on the graph.
    tol
        Converged when the gap is below this fraction of the objective (or of 1, if that is larger).
    max_iter
        Most searches for each example.
    keep_active_set
        Keep the vertices that were found as atoms, and move weight between them (pairwise steps).
        Otherwise plain Frank-Wolfe, which needs no memory and many more searches.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(3, 2)
    >>> potentials = ff.Potentials(graph, unary=[[0, 1], None, None], factors=[np.eye(2)] * 2)
    >>> found = FrankWolfe(tol=1e-8).run(graph, potentials)
    >>> exact = ff.Exact().run(graph, potentials)
    >>> bool(abs(found.log_partition - exact.log_partition) < 1e-6)
    True
    """

    oracle: MapSearch | None = field(default=None, kw_only=False)
    entropy: Entropy = field(default_factory=TreeReweighted)
    tol: float = 1e-6
    max_iter: int = 1000
    keep_active_set: bool = True

    def __post_init__(self) -> None:
        require_oracle(self.oracle)
        require_instance("entropy", self.entropy, Entropy, "TreeReweighted()")
        require_number("tol", self.tol, above=0)
        require_integer("max_iter", self.max_iter, at_least=1)
        require_flag("keep_active_set", self.keep_active_set)

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: Evidence = None,
        init: InferenceResult | None = None,
        progress: Progress | None = None,
    ) -> InferenceResult:
        """The same for the union of many graphs, one after the other.

        ``init`` is an earlier result of `FrankWolfe` on graphs of this structure; ``progress`` is
        told (searches, gap) for each example.
        """
        require_model(batch, potentials, progress)
        require_result(init)
        graph = batch.graph
        values = with_evidence(graph, potentials.unary_values, observed_labels(graph, observed))
        unary = np.split(values, batch.unary_offsets[1:-1])
        tables = np.split(potentials.factor_values, batch.table_offsets[1:-1])
        starts = [None] * batch.n_examples if init is None else _points_of(init, batch)
        results = [
            self._run_example(graph, np.concatenate([unary[m], tables[m]]), starts[m], progress)
            for m, graph in enumerate(batch.graphs)
        ]
        return self._joined(batch, results)

    def _run_example(
        self,
        graph: FactorGraph,
        potentials: FloatArray,
        earlier: FloatArray | None,
        progress: Progress | None,
    ) -> _ExampleResult:
        counting = concave_counting_numbers(self.entropy, graph)
        oracle = relaxation_oracle(graph) if self.oracle is None else self.oracle
        batch = Batch.of([graph])

        def find(slopes: FloatArray) -> Point:
            return find_point(oracle, batch, slopes)

        is_possible = potentials > -np.inf
        finite = np.where(is_possible, potentials, 0.0)
        if earlier is not None and not np.any(earlier[~is_possible] > 0.0):
            start = earlier
        else:
            every = is_possible.all()
            start = uniform_point(graph) if every else covering_point(find, is_possible)
        nothing = np.zeros(0)
        active = ActiveSet(
            start, nothing, float(finite @ start), coefficients_of(graph, counting), nothing,
            keep_active_set=self.keep_active_set,
        )  # fmt: skip
        end = run_frank_wolfe(active, potentials, find, self.tol, self.max_iter, progress)
        return _ExampleResult(active.x, end, counting)

    def _joined(self, batch: Batch, results: list[_ExampleResult]) -> InferenceResult:
        """Results of the examples as one result of the union."""
        gaps = np.array([one.end.gap for one in results])
        values = np.array([one.end.value for one in results])
        converged = np.array([one.end.converged for one in results])
        n_iter = max(one.end.n_iter for one in results)
        bound = _bound([one.counting for one in results])
        # an upper bound has to hold for points that are not quite the maximum, too
        log_partitions = values + gaps if bound == "upper" else values
        cuts = [int(graph.unary_offsets[-1]) for graph in batch.graphs]
        beliefs = Beliefs(
            batch.graph,
            np.concatenate([one.x[:cut] for one, cut in zip(results, cuts, strict=True)]),
            np.concatenate([one.x[cut:] for one, cut in zip(results, cuts, strict=True)]),
        )
        return InferenceResult(
            beliefs=beliefs,
            log_partition=float(log_partitions.sum()),
            bound=bound,
            converged=bool(converged.all()),
            n_iter=n_iter,
            residual=float(gaps.max()),
            status=ending(converged, f"gap {gaps.max():.2g} after {n_iter} searches", self.tol),
            method=f"FrankWolfe({self.entropy.name})",
            log_partitions=log_partitions,
            converged_examples=converged,
            diagnostics={"gaps": gaps},
            state=_Points(one.x for one in results),
        )


class _Points(tuple[FloatArray, ...]):
    """Where a later run may start: a point of the polytope of each example."""


@dataclass(frozen=True)
class _ExampleResult:
    x: FloatArray
    end: AscentResult
    counting: CountingNumbers


def _points_of(init: Any, batch: Batch) -> _Points:
    points = init.state if isinstance(init, InferenceResult) else None
    sizes = [int(one.unary_offsets[-1] + one.table_offsets[-1]) for one in batch.graphs]
    if not isinstance(points, _Points) or [len(one) for one in points] != sizes:
        raise InvalidInputError("init must be a FrankWolfe result on graphs of this structure")
    return points


def _bound(countings: list[CountingNumbers]) -> Bound:
    """Never ``"exact"``, on trees neither: the value is known up to the gap."""
    return "upper" if all(one.bound in ("exact", "upper") for one in countings) else None
