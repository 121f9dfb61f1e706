"""MAP inference (energy minimisation): the base class of all searches, and what they return.

    maximise over labellings y    s(y) = sum_i th_i(y_i) + sum_a th_a(y_a)

A search gives a labelling, its score, and an upper bound on the score of any labelling.  Where the
two meet, the labelling is proved optimal: the certificate is a part of every result.  Frank-Wolfe
methods and margin losses use a search as their *oracle*.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from fieldfit._typing import BoolArray, FloatArray, IntArray
from fieldfit._validation import require_instance
from fieldfit.errors import ZeroWeightError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph, require_factor_graph
from fieldfit.graph.potentials import Beliefs, Potentials
from fieldfit.graph.result import MapResult
from fieldfit.inference.base import Evidence, Progress

__all__ = [
    "MapSearch",
    "certified_result",
    "examples",
    "meets_bound",
    "no_labelling",
    "optimal_result",
    "require_oracle",
]

#: The bound and the score meet if they differ by less than this, relative to the score.
MEETING = 1e-9


class MapSearch(ABC):
    """A search for a labelling of largest score, on one graph or on all graphs of a batch."""

    #: The largest factors that it takes, by their numbers of variables; ``None``: any.
    max_arity: ClassVar[int | None] = None

    def run(
        self,
        graph: FactorGraph,
        potentials: Potentials,
        observed: Evidence = None,
        progress: Progress | None = None,
    ) -> MapResult:
        """A labelling of one graph that agrees with the evidence, and what is proved about it.

        ``progress`` is told (iterations, residual) by message passing; other searches have no such
        figures and ignore it.
        """
        require_factor_graph(graph)
        return self.run_batch(Batch.of([graph]), potentials, observed, progress)

    @abstractmethod
    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: Evidence = None,
        progress: Progress | None = None,
    ) -> MapResult:
        """The same for the union of many graphs; ``scores`` has one entry for each."""


def require_oracle(oracle: Any) -> None:
    """Refuse what is neither ``None`` nor a MAP search."""
    require_instance("oracle", oracle, MapSearch, "MaxProduct() or ExactMap()", or_none=True)


def examples(
    batch: Batch, potentials: Potentials, evidence: IntArray
) -> Iterator[tuple[FactorGraph, Potentials, IntArray]]:
    """Graph, potentials and evidence of each example of a batch."""
    unary, table, first = batch.unary_offsets, batch.table_offsets, batch.variable_offsets
    for m, graph in enumerate(batch.graphs):
        own = Potentials.from_flat(
            graph,
            potentials.unary_values[unary[m] : unary[m + 1]],
            potentials.factor_values[table[m] : table[m + 1]],
        )
        yield graph, own, evidence[first[m] : first[m + 1]]


# -- Results -------------------------------------------------------------------------------


def meets_bound(scores: FloatArray, bounds: FloatArray) -> BoolArray:
    """Examples whose labelling is possible and reaches its upper bound: these are optimal."""
    with np.errstate(invalid="ignore"):  # an impossible labelling with an infinite bound
        meets = bounds - scores <= MEETING * np.maximum(1.0, np.abs(scores))
    proved: BoolArray = (scores > -np.inf) & meets
    return proved


def certified_result(
    labels: IntArray,
    scores: FloatArray,
    bounds: FloatArray,
    *,
    how: str,
    method: str,
    converged: bool = True,
    n_iter: int = 1,
    is_proved: BoolArray | None = None,
    beliefs: Beliefs | None = None,
) -> MapResult:
    """The result of a search with upper bounds, one for each example.

    ``how`` says how the search ended; what the bounds prove is added to it.  ``is_proved`` are
    examples that are optimal for another reason than their bound.
    """
    bounds = np.maximum(bounds, scores)  # rounding may put a bound below the score of an optimum
    proved = meets_bound(scores, bounds)
    if is_proved is not None:
        proved = proved | ((scores > -np.inf) & is_proved)
    score, bound, optimal = float(scores.sum()), float(bounds.sum()), bool(proved.all())
    return MapResult(
        labels=labels,
        score=score,
        upper_bound=bound,
        optimal=optimal,
        status=f"{how}; {_certificate(score, bound, optimal)}",
        method=method,
        converged=converged,
        n_iter=n_iter,
        scores=scores,
        optimal_examples=proved,
        beliefs=beliefs,
    )


def optimal_result(
    batch: Batch,
    potentials: Potentials,
    labels: IntArray,
    *,
    how: str,
    method: str,
    n_iter: int = 1,
    upper_bound: float = -np.inf,
) -> MapResult:
    """The result of an exact method; ``upper_bound`` differs from the score by rounding only."""
    scores = batch.scores(potentials, labels)
    score = float(scores.sum())
    return MapResult(
        labels=labels,
        score=score,
        upper_bound=max(score, upper_bound),
        optimal=True,
        status=f"optimal: {how}",
        method=method,
        n_iter=n_iter,
        scores=scores,
        optimal_examples=np.ones(batch.n_examples, dtype=np.bool_),
    )


def no_labelling(reason: str) -> ZeroWeightError:
    """The error for a model that excludes every labelling."""
    return ZeroWeightError(f"the model (with its evidence) has total weight zero: {reason}")


def _certificate(score: float, bound: float, optimal: bool) -> str:
    if score == -np.inf:
        return "the labelling found breaks a hard constraint, try an exact method"
    if optimal:
        return "the labelling is optimal"
    return f"the labelling is at most {bound - score:.3g} below the best score"
