"""Samples of pairwise models on disk: a shard is a block of rows, kept as its distinct ones.

Which sums over samples an objective needs decides how data on disk are learned from:

* a sum over the rows (pseudo-likelihood, any objective on copies of the model): shards are
  evaluated one by one, by whoever it may be;
* counts of labels and pairs (likelihoods and their surrogates, of complete samples): one pass over
  the shards, after which the data are not needed any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._arrays import plain_array, real_numbers
from fieldfit._typing import FloatArray, LabelMatrix
from fieldfit._validation import shown
from fieldfit.errors import InvalidInputError, Place
from fieldfit.inference.mean_field.mean_field import MeanField
from fieldfit.io.stored import Stored
from fieldfit.learners.problem import Problem
from fieldfit.models.dispatch import make_problem
from fieldfit.models.pairwise.pairwise_parameters import PairwiseParameters
from fieldfit.models.pairwise.pairwise_problems import SampleData
from fieldfit.models.pairwise.sample_counts import SampleCounts
from fieldfit.models.pairwise.sample_data import (
    MAX_LABELS,
    Samples,
    column_names,
    labels_seen,
    require_labels,
)
from fieldfit.objectives.base import Objective
from fieldfit.shards.reading import Shards
from fieldfit.shards.shard_problem import ShardProblem
from fieldfit.shards.workers import Workers
from fieldfit.shards.writing import Chunks, ShardCoder

__all__ = ["SampleCoder", "shard_sum", "stored_counts", "stored_samples"]

#: Kinds of objectives that need counts of complete samples, and nothing else of them.
COUNTED_KINDS = ("likelihood", "camel", "dual", "moments")

_NO_EDGES = np.zeros((0, 2), dtype=np.int64)


class SampleCoder(ShardCoder):
    """Gathers rows of samples, which the estimator checks, and counts their labels."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator
        self.names: list[str] | None = None
        self._parameters = estimator._parameters if hasattr(estimator, "weights_") else None
        self._n_columns: int | None = getattr(self._parameters, "n_variables", None)
        self._counts: SampleCounts | None = None
        self._seen = np.zeros((1, MAX_LABELS), dtype=bool)
        self._n_read = 0
        self._labels: list[LabelMatrix] = []
        self._weights: list[FloatArray] = []

    def triples(self, examples: Any, shard_size: int) -> Iterator[tuple[Any, Any, Any]]:
        """Blocks of labels with their weights, cut where shards end."""
        for block, given in _blocks(examples):
            with _moved(self._n_read):
                labels = self._checked(block)
            weights = _checked_weights(given, len(labels), self._n_read)
            names = column_names(block)
            self.names = names if self._n_read == 0 else self.names
            begin = 0
            while begin < len(labels):
                room = max(1, (shard_size - self.n_variables) // labels.shape[1])
                if self.n_variables + labels.shape[1] > shard_size:  # the next shard begins
                    room = max(1, shard_size // labels.shape[1])
                end = min(begin + room, len(labels))
                yield labels[begin:end], None, weights[begin:end]
                self._n_read += end - begin
                begin = end

    def _checked(self, block: Any) -> LabelMatrix:
        array = plain_array("", block, Place("samples"))
        labels: LabelMatrix = self.estimator._labels(array[None] if array.ndim == 1 else array)
        if self._n_columns is None:
            self._n_columns = labels.shape[1]
        if labels.shape[1] != self._n_columns:
            raise InvalidInputError(
                f"must have {self._n_columns} columns, got {labels.shape[1]}", Place("samples", 0)
            )
        if self._parameters is not None:
            require_labels(labels, self._parameters.n_labels)
        return labels

    def measure(self, index: int, x: Any) -> int:
        return int(x.size)

    def add(self, index: int, x: Any, y: Any, weight: Any) -> None:
        self._labels.append(x)
        self._weights.append(weight)
        self.n_examples += len(x)
        self.n_variables += x.size
        self.n_missing += int((x < 0).sum())

    def take(self) -> dict[str, NDArray[Any]]:
        samples = Samples.of(np.concatenate(self._labels), np.concatenate(self._weights))
        counts = SampleCounts.of([samples], MAX_LABELS, _NO_EDGES)
        self._seen = self._seen | labels_seen(samples.labels, MAX_LABELS)
        self._counts = counts if self._counts is None else self._counts.plus(counts)
        self._labels, self._weights = [], []
        self.n_examples = self.n_variables = self.n_missing = 0
        is_small = samples.labels.max(initial=0) < np.iinfo(np.int8).max
        return {
            "labels": samples.labels.astype(np.int8) if is_small else samples.labels,
            "weights": samples.weights,
            "squared_weights": samples.squared_weights,
        }

    def model(self, shards: Chunks) -> Stored:
        assert self._counts is not None
        n_seen = int(np.argwhere(self._seen)[:, 1].max(initial=-1)) + 1
        if self._parameters is not None:
            n_seen = self._parameters.n_labels
        return Stored(
            {
                "label_counts": self._counts.unary[:, :n_seen],
                "labels_seen": self._seen[:, :n_seen].astype(np.uint8),
            },
            {
                "n_variables": self._n_columns,
                "names": self.names,
                "total_weight": self._counts.total,
            },
        )


def _blocks(examples: Any) -> Iterator[tuple[Any, Any]]:
    """Tables with their weights, of one table, of several, or of rows."""
    if hasattr(examples, "columns") or (isinstance(examples, np.ndarray) and examples.ndim == 2):
        yield examples, None
        return
    if isinstance(examples, (str, bytes, dict)) or not hasattr(examples, "__iter__"):
        raise InvalidInputError(f"examples must be rows or tables, got {shown(examples)}")
    for given in examples:
        is_pair = isinstance(given, tuple) and len(given) == 2 and np.ndim(given[1]) < 2
        if is_pair and (hasattr(given[0], "__len__") or hasattr(given[0], "columns")):
            yield given
        else:
            yield given, None


def _checked_weights(given: Any, n_rows: int, first: int) -> FloatArray:
    if given is None:
        return np.ones(n_rows)
    weights = np.atleast_1d(real_numbers("weight", given, Place("examples", first)))
    if weights.shape != (n_rows,) or not (np.isfinite(weights) & (weights >= 0)).all():
        raise InvalidInputError(
            f"must have {n_rows} finite weights of at least 0, got {shown(given)}",
            Place("examples", first),
        )
    return weights


@contextmanager
def _moved(first: int) -> Iterator[None]:
    """Errors about row 0, 1, ... of a block become those of the rows from ``first``."""
    try:
        yield
    except InvalidInputError as error:
        if error.place is None or error.place.example is None:
            raise
        place = replace(error.place, example=first + error.place.example)
        raise type(error)(error.requirement, place) from None


# -- from the arrays of a shard to samples -------------------------------------------------


def stored_samples(stored: Stored, n_variables: int, n_labels: int) -> Samples:
    """The distinct rows of a shard."""
    labels = stored.indices("labels", (None, n_variables), -1, n_labels - 1).astype(np.int16)
    return Samples(
        labels,
        stored.array("weights", (len(labels),)),
        stored.array("squared_weights", (len(labels),)),
        int((labels >= 0).all(axis=1).sum()),  # complete rows come first
        np.zeros(0, dtype=np.int64),
    )


def stored_counts(shards: Shards, estimator: Any) -> tuple[SampleCounts, NDArray[np.bool_]]:
    """Counts of single labels, and which labels each column has."""
    shards.manifest.require_options(type(estimator).__name__, estimator._shard_options())
    model = shards.model()
    n_variables = model.integer("n_variables", 1)
    seen = model.array("labels_seen", (n_variables, None), "b").astype(bool)
    counts = model.array("label_counts", seen.shape)
    n_labels = estimator._n_labels(seen.shape[1])
    if n_labels < seen.shape[1]:
        raise InvalidInputError(
            f"shards must have labels 0..{n_labels - 1}, got {seen.shape[1] - 1}"
        )
    missing = ((0, 0), (0, n_labels - seen.shape[1]))
    no_tables = np.zeros((0, n_labels, n_labels))
    n_samples = shards.manifest.n_examples
    total, hidden = model.number("total_weight"), np.all(~seen, axis=1)
    if not total > 0.0:
        raise InvalidInputError(
            "shards must have a sample with a label and a positive weight, got none"
        )
    found = SampleCounts(np.pad(counts, missing), no_tables, total, 0, n_samples, hidden)
    return found, np.pad(seen, missing)


def shard_sum(
    estimator: Any, objective: Objective, shards: Shards, client: Any
) -> AbstractContextManager[Problem]:
    """What a learner minimises; the estimator takes over what shards say of the model."""
    if objective.problem_kind == "chains":
        raise InvalidInputError(
            "objective must be a sum over samples for shards, got contrastive divergence, whose "
            "mini-batches are drawn from all samples"
        )
    if objective.problem_kind not in COUNTED_KINDS:
        return ShardProblem(shards, estimator, objective, client)
    if client is not None and not isinstance(client, Workers):
        Workers(client)  # refuses what is no client
    manifest = shards.manifest
    manifest.require_options(type(estimator).__name__, estimator._shard_options())
    if not manifest.is_complete:
        raise InvalidInputError(
            f"objective must be a sum over samples, such as 'pseudolikelihood', for shards with "
            f"missing entries, got {estimator.objective!r}"
        )
    if isinstance(getattr(objective, "inference", None), MeanField):
        raise InvalidInputError(
            "objective must need counts of labels only, such as 'trw', for shards, got "
            f"{estimator.objective!r}, which starts from the samples themselves"
        )
    estimator._open_shards(shards)
    parameters: PairwiseParameters = estimator._parameters
    everything = _all_samples(shards, parameters)
    counts = SampleCounts.of(everything, parameters.n_labels, parameters.edges)
    counts = replace(counts, n_samples=manifest.n_examples)
    data = SampleData(parameters, [], estimator.n_jobs, counts)
    problem = make_problem("samples", objective, data)
    if client is not None:
        clause = "workers had nothing to do, because the objective needs counts of labels only"
        problem.notes = (*problem.notes, clause)
    return nullcontext(problem)


def _all_samples(shards: Shards, parameters: PairwiseParameters) -> Iterator[Samples]:
    for shard in range(len(shards)):
        yield stored_samples(shards.read(shard), parameters.n_variables, parameters.n_labels)
