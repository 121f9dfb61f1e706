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

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit.core.batch import Batch
from fieldfit.core.entropy import CountingNumbers, Entropy, TreeReweighted
from fieldfit.core.graph import FactorGraph
from fieldfit.core.hull import HullPoint
from fieldfit.core.potentials import (
    Beliefs,
    Potentials,
    observed_labels,
    require_graph,
    with_evidence,
)
from fieldfit.core.result import Bound, InferenceResult
from fieldfit.errors import InvalidInputError
from fieldfit.oracle._ascent import Ascent, Point, ascend, covering_point
from fieldfit.oracle._base import MapOracle, require_oracle
from fieldfit.oracle._relaxation import (
    coefficients_of,
    concave_counting_numbers,
    find_point,
    relaxation_oracle,
    uniform_point,
)

__all__ = ["FrankWolfe"]

FloatArray = NDArray[np.float64]


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
