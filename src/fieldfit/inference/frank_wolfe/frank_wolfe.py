"""Marginals from MAP searches alone: Frank-Wolfe on the free energy.

    B(th) = max over tau in the polytope of <th, tau> + H_c(tau)

with a concave entropy.  At a point ``tau`` the best vertex of the linearised problem, potentials
``th + grad H_c(tau)``, is a MAP search, and how far it is above ``tau``,

    gap = max over s of <th + grad H_c(tau), s - tau>  >=  B(th) - <th, tau> - H_c(tau),

certifies the point.  Vertices that were found are kept, and shares are moved between them until
that gains little; only then the next search follows.  Which polytope it is depends on the oracle:
the local one for relaxations (`RoofDuality`, `LinearProgram`, any oracle on a tree), where the
answer is that of message passing with the same entropy, or that of true marginals (`ExactMap`).

References: Frank and Wolfe (1956); Jaggi, "Revisiting Frank-Wolfe", ICML (2013); Sontag and
Jaakkola, "New outer bounds on the marginal polytope", NIPS (2007); Tang, Ruozzi, Belanger and
Jebara, "Bethe learning of graphical models via MAP decoding", AISTATS (2016).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from fieldfit._typing import BoolArray, FloatArray
from fieldfit.entropy.counting_numbers import CountingNumbers, Entropy, TreeReweighted
from fieldfit.errors import InvalidInputError, ZeroWeightError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import (
    Beliefs,
    Potentials,
    observed_labels,
    require_graph,
    with_evidence,
)
from fieldfit.graph.result import Bound, InferenceResult
from fieldfit.inference.frank_wolfe.active_set import HullPoint
from fieldfit.inference.map.base import MapOracle, require_oracle

__all__ = [
    "Ascent",
    "FrankWolfe",
    "Point",
    "ascend",
    "coefficients_of",
    "concave_counting_numbers",
    "covering_point",
    "find_point",
    "relaxation_oracle",
    "uniform_point",
]

# -- The loop of Frank-Wolfe with stored points, for any polytope that can be searched -----
# `frank_wolfe` says what is maximised, and what the gap proves.


#: Shares are moved until what the stored points promise is below this share of the gap, or so
#: often at most: a search costs more than many of these steps.
PATIENCE, MAX_MOVES = 0.1, 200


@dataclass(frozen=True)
class Point:
    """A point of the polytope, flat, and a number that no point's linear score exceeds."""

    values: FloatArray
    upper_bound: float


#: A point of largest linear score under some slopes.
Find = Callable[[FloatArray], Point]


@dataclass(frozen=True)
class Ascent:
    """How it ended: ``<th, x> + H(x)`` is ``value``, and at most ``gap`` below its maximum."""

    value: float
    gap: float
    n_iter: int
    converged: bool


def ascend(
    hull: HullPoint, potentials: FloatArray, find: Find, tol: float, max_iter: int
) -> Ascent:
    """Move a point until its gap is below ``tol`` of the value (or of 1, if that is larger).

    ``potentials`` may be ``-inf`` where every point of the polytope is zero.
    """
    is_possible = potentials > -np.inf
    finite = np.where(is_possible, potentials, 0.0)
    nothing = np.zeros(0)
    n_iter = 0
    while True:
        slopes = hull.slopes(potentials)
        point = find(slopes)
        n_iter += 1
        value = hull.linear + hull.entropy()
        gap = max(point.upper_bound - float(np.where(is_possible, slopes, 0.0) @ hull.x), 0.0)
        converged = gap <= tol * max(1.0, abs(value))
        if converged or n_iter == max_iter:
            return Ascent(value, gap, n_iter, converged)
        linear = float(finite @ point.values)
        if hull.is_stored:
            place = hull.add(point.values, nothing, linear)
            hull.move_shares(nothing, PATIENCE * gap, MAX_MOVES, place)
        else:
            hull.step_towards(point.values, nothing, linear, nothing)


def covering_point(find: Find, is_possible: BoolArray) -> FloatArray:
    """A mixture of points of the polytope that is positive wherever one of them can be.

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


# -- Points of the local polytope from MAP searches, for methods that only ever ask for those ---


def relaxation_oracle(graph: FactorGraph) -> MapOracle:
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


def find_point(oracle: MapOracle, batch: Batch, slopes: FloatArray) -> Point:
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
    sizes = np.diff(graph.table_offsets)
    return np.concatenate(
        [np.repeat(counting.variable, graph.cardinalities), np.repeat(counting.factor, sizes)]
    )


def uniform_point(graph: FactorGraph) -> FloatArray:
    """Uniform beliefs, flat."""
    sizes = np.diff(graph.table_offsets)
    cardinalities = graph.cardinalities
    return np.concatenate(
        [np.repeat(1.0 / cardinalities, cardinalities), np.repeat(1.0 / sizes, sizes)]
    )


# -- The algorithm -------------------------------------------------------------------------


@dataclass(frozen=True)
class FrankWolfe:
    """Marginals and a certified surrogate of the log-partition, by calls of a MAP oracle.

    Parameters
    ----------
    oracle
        A MAP search with ``run_batch``; ``None`` picks one for the local polytope.
    entropy
        Must be concave on the graph.
    tol
        Converged when the gap is below this share of the objective (or of 1, if that is larger).
    max_iter
        Most searches for each example.
    is_stored
        Keep the points that were found, and move shares between them (pairwise steps).  Otherwise
        plain Frank-Wolfe, which needs no memory and many more searches.

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

    oracle: MapOracle | None = None
    entropy: Entropy = field(default_factory=TreeReweighted)
    tol: float = 1e-6
    max_iter: int = 1000
    is_stored: bool = True

    def __post_init__(self) -> None:
        require_oracle(self.oracle)
        if not self.tol > 0.0:
            raise InvalidInputError(f"tol must be positive, got {self.tol!r}")
        if not self.max_iter >= 1:
            raise InvalidInputError(f"max_iter must be at least 1, got {self.max_iter!r}")

    def run(
        self,
        graph: FactorGraph,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None = None,
        init: InferenceResult | None = None,
    ) -> InferenceResult:
        """Beliefs of one graph; ``init`` is an earlier result of `FrankWolfe` on it."""
        return self.run_batch(Batch.of([graph]), potentials, observed, init)

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None = None,
        init: InferenceResult | None = None,
    ) -> InferenceResult:
        """The same for the union of many graphs, one after the other."""
        graph = batch.graph
        require_graph(graph, potentials)
        unary = with_evidence(graph, potentials.unary_values, observed_labels(graph, observed))
        tables = potentials.factor_values
        starts = [None] * batch.n_examples if init is None else _points_of(init, batch)
        found = []
        for example, start in enumerate(starts):
            flat = np.concatenate(
                [unary[_range(batch, example, "unary")], tables[_range(batch, example, "table")]]
            )
            found.append(self._run_one(batch.graphs[example], flat, start))
        cuts = [int(graph.unary_offsets[-1]) for graph in batch.graphs]
        beliefs = Beliefs(
            batch.graph,
            np.concatenate([one.x[:cut] for one, cut in zip(found, cuts, strict=True)]),
            np.concatenate([one.x[cut:] for one, cut in zip(found, cuts, strict=True)]),
        )
        return self._result(found, beliefs)

    def _run_one(
        self, graph: FactorGraph, potentials: FloatArray, earlier: FloatArray | None
    ) -> _Found:
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
        hull = HullPoint(
            start, nothing, float(finite @ start), coefficients_of(graph, counting), nothing,
            is_stored=self.is_stored,
        )  # fmt: skip
        return _Found(hull.x, ascend(hull, potentials, find, self.tol, self.max_iter), counting)

    def _result(self, found: list[_Found], beliefs: Beliefs) -> InferenceResult:
        gaps = np.array([one.end.gap for one in found])
        values = np.array([one.end.value for one in found])
        converged = np.array([one.end.converged for one in found])
        n_iter = max(one.end.n_iter for one in found)
        bound = _bound([one.counting for one in found])
        # an upper bound has to hold for points that are not quite the maximum, too
        log_partitions = values + gaps if bound == "upper" else values
        n_open = int((~converged).sum())
        status = f"converged after {n_iter} searches; gap {gaps.max():.2g}"
        if n_open:
            status = (
                f"not converged after max_iter={self.max_iter} searches; gap {gaps.max():.2g}, "
                f"tol {self.tol:.2g}"
            )
        return InferenceResult(
            beliefs=beliefs,
            log_partition=float(log_partitions.sum()),
            bound=bound,
            converged=n_open == 0,
            n_iter=n_iter,
            residual=float(gaps.max()),
            status=status,
            method=f"FrankWolfe({self.entropy.name})",
            log_partitions=log_partitions,
            converged_examples=converged,
            diagnostics={"gaps": gaps},
            state=_Points(one.x for one in found),
        )


class _Points(tuple[FloatArray, ...]):
    """Where a later run may start: a point of the polytope of each example."""


@dataclass(frozen=True)
class _Found:
    x: FloatArray
    end: Ascent
    counting: CountingNumbers


def _range(batch: Batch, example: int, kind: str) -> slice:
    if kind == "unary":
        ends = batch.graph.unary_offsets[batch.variable_offsets[example : example + 2]]
    else:
        ends = batch.graph.table_offsets[batch.factor_offsets[example : example + 2]]
    return slice(int(ends[0]), int(ends[1]))


def _points_of(init: InferenceResult, batch: Batch) -> _Points:
    points = init.state
    sizes = [int(one.unary_offsets[-1] + one.table_offsets[-1]) for one in batch.graphs]
    if not isinstance(points, _Points) or [len(one) for one in points] != sizes:
        raise InvalidInputError("init must be a FrankWolfe result on graphs of this structure")
    return points


def _bound(countings: list[CountingNumbers]) -> Bound:
    """Never ``"exact"``, on trees neither: the value is known up to the gap."""
    return "upper" if all(one.bound in ("exact", "upper") for one in countings) else None
