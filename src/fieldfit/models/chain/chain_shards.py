"""Sequences as arrays of a shard: a vocabulary that grows while they are written, labels by name.

Attributes are numbered in the order in which they occur, as in memory, so one pass writes the
tokens.  Which (attribute, label) pairs have weights is known when all have been seen; a second pass
over the shards finds them.  Labels are stored by the order in which they occur, and sorted when a
shard is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import LabelArray
from fieldfit.errors import InvalidInputError, Place
from fieldfit.io.stored import Stored
from fieldfit.models.chain.chain_features import TokenFeatures, Vocabulary
from fieldfit.models.chain.chain_labels import is_missing, label_kind
from fieldfit.shards.writing import Chunks, ShardCoder

__all__ = ["ChainCoder", "StoredSequences", "part_of", "stored_sequences"]

#: What a missing label, and one that a fitted model does not know, is stored as.
MISSING, UNSEEN = -1, -2


class ChainCoder(ShardCoder):
    """Gathers sequences of a `ChainCRF`, which reads them."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator
        self.is_fitted = hasattr(estimator, "weights_")
        self.vocabulary = Vocabulary()
        self.classes: dict[Any, int] = {}
        if self.is_fitted:
            self.classes = {name: k for k, name in enumerate(estimator.classes_.tolist())}
        self.is_matrix: bool | None = None
        self.is_dense = True
        self.n_features: int | None = None
        self._n_before = 0
        self._reset()

    def _reset(self) -> None:
        self._x: list[Any] = []
        self._labels: list[int] = []
        self._weights: list[float] = []
        self._is_weighted = False
        self.n_examples = self.n_variables = self.n_edges = self.n_missing = 0

    def measure(self, index: int, x: Any) -> int:
        length = self._length(index, x)
        return length + max(length - 1, 0)

    def _length(self, index: int, x: Any) -> int:
        if isinstance(x, (str, bytes, dict)) or not (hasattr(x, "__len__") or hasattr(x, "shape")):
            raise InvalidInputError(
                f"must be a sequence of tokens, got {type(x).__name__}", Place("X", index)
            )
        return int(x.shape[0]) if hasattr(x, "shape") else len(x)

    def add(self, index: int, x: Any, y: Any, weight: Any) -> None:
        with _moved(index):
            self.estimator._require_examples([x], [y])
            numbers = numbered(y, self.classes, grow=not self.is_fitted)
        length = self._length(index, x)
        self._x.append(x)
        self._labels += numbers
        self._is_weighted |= weight is not None
        self._weights.append(1.0 if weight is None else weight)
        self.n_examples += 1
        self.n_variables += length
        self.n_edges += max(length - 1, 0)
        self.n_missing += sum(number == MISSING for number in numbers)

    def take(self) -> dict[str, NDArray[Any]]:
        with _moved(self._n_before):
            features = self.estimator._read_shard(self._x, self)
        arrays: dict[str, NDArray[Any]] = {
            "sequence_offsets": features.sequence_offsets,
            "token_offsets": features.offsets,
            "attributes": features.indices,
            "values": features.values,
            "labels": np.array(self._labels, dtype=np.int32),
        }
        if self._is_weighted:
            arrays["example_weights"] = np.array(self._weights)
        self._n_before += self.n_examples
        self._reset()
        return arrays

    def model(self, shards: Chunks) -> Stored:
        return self.estimator._model_of_shards(self, shards)


def numbered(y: Any, classes: dict[Any, int], grow: bool) -> list[int]:
    """Numbers of label names; new names are added with ``grow``, and `UNSEEN` otherwise."""
    numbers = []
    for name in y.tolist() if hasattr(y, "tolist") else y:
        if is_missing(name):
            numbers.append(MISSING)
            continue
        if name not in classes and grow:
            kind = label_kind(0, name)
            if classes and kind is not label_kind(0, next(iter(classes))):
                raise InvalidInputError(
                    f"must hold strings or integers, not both; got {name!r}", Place("Y", 0)
                )
            classes[name] = len(classes)
        numbers.append(classes.get(name, UNSEEN))
    return numbers


def part_of(features: TokenFeatures, begin: int, end: int) -> TokenFeatures:
    """The sequences from ``begin`` up to ``end``."""
    first, last = features.sequence_offsets[[begin, end]]
    entries = slice(features.offsets[first], features.offsets[last])
    return TokenFeatures(
        features.sequence_offsets[begin : end + 1] - first,
        features.offsets[first : last + 1] - entries.start,
        features.indices[entries],
        features.values[entries] if features.values.size else features.values,
        features.n_attributes,
    )


class _moved:  # noqa: N801  (used like a function)
    """Errors about example 0, 1, ... of a few become those of the examples from ``first``."""

    def __init__(self, first: int) -> None:
        self.first = first

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        place = getattr(error, "place", None)
        if isinstance(error, InvalidInputError) and place is not None:
            example = self.first + (place.example or 0)
            raise type(error)(error.requirement, replace(place, example=example)) from None


@dataclass(frozen=True)
class StoredSequences:
    """Sequences of a shard, as `ChainCRF` takes them for prediction."""

    features: TokenFeatures

    def __len__(self) -> int:
        return len(self.features.sequence_offsets) - 1

    def __iter__(self) -> Iterator[None]:
        return iter([None] * len(self))


def stored_sequences(
    stored: Stored, n_attributes: int, ranks: NDArray[np.int32]
) -> tuple[TokenFeatures, LabelArray]:
    """Tokens and labels of a shard; ``ranks`` has the place of each label name in their order."""
    n_tokens = stored.integer("n_variables", 0)
    sequences = stored.offsets("sequence_offsets", n_tokens)
    attributes = stored.indices("attributes", (None,), 0, n_attributes - 1)
    offsets = stored.offsets("token_offsets", len(attributes))
    values = stored.array("values", (None,))
    if len(offsets) != n_tokens + 1 or len(values) not in (0, len(attributes)):
        stored.offsets("token_offsets", -1)  # refuses
    labels = stored.indices("labels", (n_tokens,), UNSEEN, len(ranks) - 1)
    known = np.where(labels >= 0, ranks[labels], labels).astype(np.int32)
    return TokenFeatures(sequences, offsets, attributes, values, n_attributes), known
