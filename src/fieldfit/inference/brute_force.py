"""Exact inference by enumeration of all joint configurations.

    A(th) = log sum_y exp s(y),    tau_i(k) = sum_{y: y_i = k} exp(s(y) - A)

Slow on purpose and simple enough to trust: every other method is tested against it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fieldfit._typing import FloatArray, LabelArray, LongArray
from fieldfit._validation import require_integer
from fieldfit.errors import TooLargeError, ZeroWeightError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs, Potentials, observed_labels, require_graph
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.base import Evidence, GraphInference, Progress, Start

__all__ = ["BruteForce"]

#: Configurations that are held in memory at a time.
CHUNK = 2**16


@dataclass(frozen=True)
class BruteForce(GraphInference):
    """Enumeration; a slow reference for small models, at most ``max_configurations``.

    Parameters
    ----------
    max_configurations
        A model with more is refused.

    Examples
    --------
    >>> graph = FactorGraph([2, 3], [(0, 1)])
    >>> result = BruteForce().run(graph, Potentials(graph), observed={0: 1})
    >>> round(math.exp(result.log_partition), 9), result.beliefs.unary(0).tolist()
    (3.0, [0.0, 1.0])
    """

    max_configurations: int = 2**22

    def __post_init__(self) -> None:
        require_integer("max_configurations", self.max_configurations, at_least=1)

    def run_graph(
        self,
        graph: FactorGraph,
        potentials: Potentials,
        observed: LabelArray,
        init: Start,
        progress: Progress | None,
    ) -> InferenceResult:
        """Marginals of every variable and factor, and the log-partition.

        ``init`` is ignored: an exact run needs no start.  ``progress`` is told once, at the end.
        """
        scores = self.scores(graph, potentials, observed)
        largest = float(scores.max())
        if largest == -math.inf:
            raise ZeroWeightError("the model with its evidence must have positive weight, got zero")
        weights = np.exp(scores - largest)
        total = float(weights.sum())
        weights /= total

        unary_values = np.zeros(graph.unary_offsets[-1])
        factor_values = np.zeros(graph.table_offsets[-1])
        begin = 0
        for configurations in _configurations(graph, observed):
            chunk = weights[begin : begin + len(configurations)]
            begin += len(configurations)
            for i in range(graph.n_variables):
                np.add.at(unary_values, graph.unary_offsets[i] + configurations[:, i], chunk)
            for a in range(graph.n_factors):
                np.add.at(factor_values, _entries(graph, a, configurations), chunk)
        log_partition = largest + math.log(total)
        if progress is not None:
            progress(1, 0.0)
        return InferenceResult(
            beliefs=Beliefs(graph, unary_values, factor_values),
            log_partition=log_partition,
            bound="exact",
            converged=True,
            n_iter=1,
            residual=0.0,
            status=f"exact: all {len(scores)} configurations were enumerated",
            method="BruteForce",
            log_partitions=np.array([log_partition]),
            converged_examples=np.array([True]),
        )

    def scores(
        self, graph: FactorGraph, potentials: Potentials, observed: Evidence = None
    ) -> FloatArray:
        """Score ``s(y)`` of every configuration of `configurations`, in that order."""
        require_graph(graph, potentials)
        parts = []
        for chunk in _configurations(graph, self._checked(graph, observed)):
            score = np.zeros(len(chunk))
            for i in range(graph.n_variables):
                score += potentials.unary_values[graph.unary_offsets[i] + chunk[:, i]]
            for a in range(graph.n_factors):
                score += potentials.factor_values[_entries(graph, a, chunk)]
            parts.append(score)
        return np.concatenate(parts)

    def configurations(self, graph: FactorGraph, observed: Evidence = None) -> LabelArray:
        """All configurations that agree with the evidence, the last free variable fastest."""
        return np.concatenate(list(_configurations(graph, self._checked(graph, observed))))

    def _checked(self, graph: FactorGraph, observed: Evidence) -> LabelArray:
        labels = observed_labels(graph, observed)
        count = _count(graph, labels)
        if count > self.max_configurations:
            raise TooLargeError(
                f"BruteForce enumerates at most max_configurations {self.max_configurations} "
                f"configurations, the model has {_written(count)}"
            )
        return labels


def _count(graph: FactorGraph, labels: LabelArray) -> int:
    return math.prod(int(k) for k in graph.cardinalities[labels < 0])


def _written(count: int) -> str:
    """A large integer for people; it may be beyond the range of floating point."""
    return str(count) if count < 10**15 else f"about 10**{len(str(count)) - 1}"


def _configurations(graph: FactorGraph, labels: LabelArray) -> Iterator[LabelArray]:
    free = np.flatnonzero(labels < 0)
    count = _count(graph, labels)
    for begin in range(0, count, CHUNK):
        rest = np.arange(begin, min(begin + CHUNK, count))
        chunk = np.tile(labels, (len(rest), 1))
        for i in free[::-1]:
            rest, chunk[:, i] = np.divmod(rest, graph.cardinalities[i])
        yield chunk


def _entries(graph: FactorGraph, factor: int, configurations: LabelArray) -> LongArray:
    """Table entry of one factor for each configuration."""
    entries = np.zeros(len(configurations), dtype=np.int64)
    for i in graph.scope(factor):
        entries = entries * int(graph.cardinalities[i]) + configurations[:, i]
    return entries + int(graph.table_offsets[factor])
