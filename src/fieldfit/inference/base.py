"""What all inferences have in common: from potentials to beliefs and a log-partition.

    potentials th, evidence  ->  beliefs tau_i(y_i), tau_a(y_a)  and  log Z, a bound on it or a
    surrogate

A subclass is a frozen dataclass of options.  It gives `run_batch`, which treats the disjoint union
of many graphs at once; an algorithm that knows only single graphs derives from `GraphInference` and
gives `run_graph` instead, and batches are run example by example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fieldfit._arrays import plain_array
from fieldfit._typing import BoolArray, LabelArray
from fieldfit._validation import require_callable, require_instance
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph, require_factor_graph
from fieldfit.graph.potentials import Beliefs, Potentials, observed_labels, require_graph
from fieldfit.graph.result import Bound, InferenceResult

__all__ = [
    "Evidence",
    "GraphInference",
    "Inference",
    "Progress",
    "Start",
    "ending",
    "require_batch",
    "require_model",
    "require_result",
]

#: Labels of some variables: a dictionary, or an array with -1 for what is not observed.
Evidence = dict[int, int] | ArrayLike | None
#: Told (iterations, residual) after every iteration or every few.
Progress = Callable[[int, float], None]
#: Where a run begins: an earlier result.  Some methods also take beliefs or labels; each says what
#: it takes where it declares the argument.
Start = Any


class Inference(ABC):
    """Beliefs and log-partitions of one graph, or of all graphs of a batch."""

    def run(
        self,
        graph: FactorGraph,
        potentials: Potentials,
        observed: Evidence = None,
        init: Start = None,
        progress: Progress | None = None,
    ) -> InferenceResult:
        """Beliefs and log-partition of one graph.

        ``observed`` is evidence, ``init`` an earlier result to start from where the method can use
        one (the others ignore it), ``progress`` a function that is told (iterations, residual).
        """
        require_factor_graph(graph)
        return self.run_batch(Batch.of([graph]), potentials, observed, init, progress)

    @abstractmethod
    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: Evidence = None,
        init: Start = None,
        progress: Progress | None = None,
    ) -> InferenceResult:
        """The same for the union of many graphs; ``log_partitions`` has one entry for each.

        What an example gets does not depend on the others of the batch, but for differences within
        the tolerance.
        """


class GraphInference(Inference):
    """An inference that treats one graph at a time; a batch is run example by example."""

    @abstractmethod
    def run_graph(
        self,
        graph: FactorGraph,
        potentials: Potentials,
        observed: LabelArray,
        init: Start,
        progress: Progress | None,
    ) -> InferenceResult:
        """Beliefs and log-partition of one graph; ``observed`` has -1 where nothing is known."""

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: Evidence = None,
        init: Start = None,
        progress: Progress | None = None,
    ) -> InferenceResult:
        """One graph after the other; what each gives is put together."""
        require_model(batch, potentials, progress)
        labels = observed_labels(batch.graph, observed)
        if batch.n_examples == 1:
            return self.run_graph(batch.graphs[0], potentials, labels, init, progress)
        starts = _starts(init, batch)
        unary, table, first = batch.unary_offsets, batch.table_offsets, batch.variable_offsets
        results = [
            self.run_graph(
                graph,
                Potentials.from_flat(
                    graph,
                    potentials.unary_values[unary[m] : unary[m + 1]],
                    potentials.factor_values[table[m] : table[m + 1]],
                ),
                labels[first[m] : first[m + 1]],
                starts[m],
                progress,
            )
            for m, graph in enumerate(batch.graphs)
        ]
        return joined(batch, results)


def _starts(init: Start, batch: Batch) -> list[Start]:
    """The starting point of each example: its part of an earlier result, or of labels."""
    if init is None:
        return [None] * batch.n_examples
    if isinstance(init, InferenceResult):
        if not isinstance(init.state, BatchState) or len(init.state.examples) != batch.n_examples:
            raise InvalidInputError("init must be a result of this method on the same batch")
        return [
            replace(init, beliefs=beliefs, state=state)
            for beliefs, state in zip(batch.split(init.beliefs), init.state.examples, strict=True)
        ]
    labels = plain_array("init", init)
    if labels.ndim == 0 or labels.shape[-1] != batch.graph.n_variables:
        raise InvalidInputError(
            f"init must have {batch.graph.n_variables} labels in its last axis, got shape "
            f"{labels.shape}"
        )
    return np.split(labels, batch.variable_offsets[1:-1], axis=-1)


def require_batch(batch: Batch, progress: Progress | None) -> None:
    """Refuse what is no batch, and what cannot be told of progress."""
    require_instance("batch", batch, Batch, "Batch.of([graph])")
    require_callable("progress", progress, or_none=True)


def require_model(batch: Batch, potentials: Potentials, progress: Progress | None) -> None:
    """Refuse what no inference can run on; evidence is checked where it is read."""
    require_batch(batch, progress)
    require_graph(batch.graph, potentials)


def require_result(init: Any, *others: type) -> None:
    """Refuse a start that is no earlier result (nor one of the ``others``)."""
    require_instance("init", init, (InferenceResult, *others), "an earlier result", or_none=True)


class BatchState:
    """States of the examples of a batch that were run one by one."""

    def __init__(self, examples: list[Any]) -> None:
        self.examples = examples


_WEAKER: dict[Bound, int] = {"exact": 0, "upper": 1, "lower": 1, None: 2}


def joined(batch: Batch, results: list[InferenceResult]) -> InferenceResult:
    """Results of the examples of a batch as one result of the union."""
    values = np.array([result.log_partition for result in results])
    converged = np.array([result.converged for result in results])
    bounds = {result.bound for result in results} - {"exact"}
    bound: Bound = "exact" if not bounds else bounds.pop() if len(bounds) == 1 else None
    worst = max(
        range(len(results)), key=lambda m: (not results[m].converged, _WEAKER[results[m].bound])
    )
    status = results[worst].status
    if not converged.all():
        status = ending(converged, f"in example {worst}, {status}")
    return InferenceResult(
        beliefs=Beliefs(
            batch.graph,
            np.concatenate([result.beliefs.unary_values for result in results]),
            np.concatenate([result.beliefs.factor_values for result in results]),
        ),
        log_partition=float(values.sum()),
        bound=bound,
        converged=bool(converged.all()),
        n_iter=max(result.n_iter for result in results),
        residual=max(result.residual for result in results),
        status=status,
        method=results[0].method,
        log_partitions=values,
        converged_examples=converged,
        diagnostics={"examples": [result.diagnostics for result in results]},
        state=BatchState([result.state for result in results]),
    )


def ending(converged: BoolArray, measure: str, tol: float | None = None, advice: str = "") -> str:
    """How a run ended, in one sentence: how many examples, how far, and what to try.

    Examples
    --------
    >>> ending(np.array([True, True]), "largest change 1e-9 after 9 sweeps")
    'converged: largest change 1e-9 after 9 sweeps'
    >>> ending(np.array([True, False]), "change 0.1 after 9 sweeps", 1e-8, "more sweeps")
    'not converged in 1 of 2 examples: change 0.1 after 9 sweeps (tol 1e-08); more sweeps may help'
    """
    if converged.all():
        return f"converged: {measure}"
    count = len(converged)
    where = f" in {int(np.sum(~converged))} of {count} examples" if count > 1 else ""
    limit = "" if tol is None else f" (tol {tol:.2g})"
    return f"not converged{where}: {measure}{limit}" + (f"; {advice} may help" if advice else "")
