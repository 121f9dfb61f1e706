"""Weight layout of a linear-chain model: which (attribute, label) and (label, label) pairs it has.

As in CRFsuite, a pair (attribute, label) or (label, next label) has a weight only if it occurs in
the training data, unless all are asked for: most attributes of a text go with one or two labels,
and a model with all pairs would be many times as large.  A pair that does not occur scores 0.
The edges of a skip-chain may have attributes too; what goes for labels of tokens then goes for the
parameters of a table of two labels (`AttributeLayout`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray, LabelArray
from fieldfit.errors import FileFormatError
from fieldfit.io.stored import Stored
from fieldfit.models.chain.chain_features import TokenFeatures
from fieldfit.models.chain.chain_rows import row_shape
from fieldfit.models.chain.sparse_scores import list_pairs, mark_pairs
from fieldfit.numeric.matrix_vector import LANES

__all__ = [
    "AttributeLayout",
    "ChainLayout",
    "attribute_layout",
    "build_layout",
    "build_layout_of_chunks",
]


@dataclass(frozen=True)
class AttributeLayout:
    """Which (attribute, label) pairs have a weight: those in the order of their weights.

    ``state_offsets`` and ``state_labels`` list each attribute's labels.
    """

    n_labels: int
    state_offsets: NDArray[np.int64]
    state_labels: NDArray[np.uint16]

    @staticmethod
    def restored_states(
        stored: Stored, n_labels: int, prefix: str = "state"
    ) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
        """``state_offsets`` and ``state_labels`` of a model file; kernels follow them unchecked."""
        labels = stored.indices(f"{prefix}_labels", (None,), 0, n_labels - 1)
        offsets = stored.offsets(f"{prefix}_offsets", len(labels))
        return offsets.astype(np.int64), labels.astype(np.uint16)

    @property
    def n_attributes(self) -> int:
        return len(self.state_offsets) - 1

    @property
    def n_states(self) -> int:
        return len(self.state_labels)

    @property
    def state_shape(self) -> tuple[int, ...]:
        """Shape that the weights are shown in: a table where every pair has one."""
        if self.n_states == self.n_attributes * self.n_labels:
            return (self.n_attributes, self.n_labels)
        return (self.n_states,)

    def pair(self, position: int) -> tuple[int, int]:
        """Attribute and label of a weight."""
        attribute = int(np.searchsorted(self.state_offsets, position, side="right")) - 1
        return attribute, int(self.state_labels[position])

    @property
    def row_shape(self) -> Any:
        """What kernels take to know the width of a row."""
        return row_shape(max(self.n_labels, 1))

    @property
    def width(self) -> int:
        """Labels in a row of the kernels, with the padding."""
        vectors, tiles = self.row_shape
        return LANES * len(vectors) * len(tiles)


@dataclass(frozen=True)
class ChainLayout(AttributeLayout):
    """Which weights a chain model has, and where they lie in the weight vector.

    ``transitions`` has for every (label, next label) its position among the transition weights,
    ``-1`` for none.
    """

    transitions: NDArray[np.int64]
    boundary: bool = False

    @classmethod
    def restored(cls, stored: Stored, n_labels: int, boundary: bool) -> ChainLayout:
        """The layout of a model file, checked: kernels do not look at its indices again."""
        offsets, labels = cls.restored_states(stored, n_labels)
        transitions = stored.indices("transitions", (n_labels, n_labels), -1, n_labels**2 - 1)
        used = np.sort(transitions[transitions >= 0])
        if not np.array_equal(used, np.arange(len(used))):
            raise FileFormatError("expected 'transitions' to number weights from 0, each once")
        return cls(n_labels, offsets, labels, transitions.astype(np.int64), boundary)

    @property
    def n_transitions(self) -> int:
        return int(self.transitions.max(initial=-1)) + 1

    @property
    def n_weights(self) -> int:
        return self.n_states + self.n_transitions + (2 * self.n_labels if self.boundary else 0)

    def split(self, weights: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Views: states, transitions, start, end."""
        first = self.n_states
        second = first + self.n_transitions
        third = second + (self.n_labels if self.boundary else 0)
        return weights[:first], weights[first:second], weights[second:third], weights[third:]

    def block_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the blocks of weights: tables where every pair has a weight."""
        n_labels = self.n_labels
        shapes = {"state": self.state_shape}
        shapes["transition"] = (self.n_transitions,)
        if self.n_transitions == n_labels**2:
            shapes["transition"] = (n_labels, n_labels)
        if self.boundary:
            shapes["start"] = shapes["end"] = (n_labels,)
        return shapes

    def padded(self, values: FloatArray) -> FloatArray:
        """Values of the labels with zeros up to `width`."""
        row = np.zeros(self.width)
        row[: len(values)] = values
        return row


#: Tokens with their labels, in pieces that can be gone through several times.
Chunks = Callable[[], Iterable[tuple[TokenFeatures, LabelArray]]]


def build_layout(
    features: TokenFeatures,
    labels: LabelArray,
    n_labels: int,
    *,
    all_possible_states: bool = False,
    all_possible_transitions: bool = False,
    min_freq: float = 0.0,
    boundary: bool = False,
) -> ChainLayout:
    """The pairs that occur at least ``min_freq`` times (attributes count with their values)."""
    return build_layout_of_chunks(
        lambda: [(features, labels)],
        features.n_attributes,
        n_labels,
        all_possible_states=all_possible_states,
        all_possible_transitions=all_possible_transitions,
        min_freq=min_freq,
        boundary=boundary,
    )


def build_layout_of_chunks(
    chunks: Chunks,
    n_attributes: int,
    n_labels: int,
    *,
    all_possible_states: bool,
    all_possible_transitions: bool,
    min_freq: float,
    boundary: bool,
) -> ChainLayout:
    """`build_layout` of tokens that are not all in memory."""
    states = _attribute_layout(chunks, n_attributes, n_labels, all_possible_states, min_freq)
    pair_counts = np.zeros(n_labels**2, dtype=np.int64)
    for features, labels in chunks():
        pair_counts += _transition_counts(features, labels, n_labels)
    has_transition = pair_counts >= max(min_freq, 0 if all_possible_transitions else 1)
    transitions = np.full(n_labels**2, -1, dtype=np.int64)
    transitions[has_transition] = np.arange(int(has_transition.sum()))
    return ChainLayout(
        n_labels,
        states.state_offsets,
        states.state_labels,
        transitions.reshape(n_labels, n_labels),
        boundary,
    )


def attribute_layout(
    features: TokenFeatures,
    labels: LabelArray,
    n_labels: int,
    *,
    all_possible: bool = False,
    min_freq: float = 0.0,
) -> AttributeLayout:
    """Pairs of attribute and label that occur at least ``min_freq`` times, or all possible ones."""
    return _attribute_layout(
        lambda: [(features, labels)], features.n_attributes, n_labels, all_possible, min_freq
    )


def _attribute_layout(
    chunks: Chunks, n_attributes: int, n_labels: int, all_possible: bool, min_freq: float
) -> AttributeLayout:
    offsets, state_labels = (
        _all_states(n_attributes, n_labels)
        if all_possible
        else _seen_states(chunks, n_attributes, n_labels)
    )
    if min_freq > 0:
        offsets, state_labels = _frequent_states(chunks, n_labels, offsets, state_labels, min_freq)
    return AttributeLayout(n_labels, offsets, state_labels)


def _all_states(n_attributes: int, n_labels: int) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
    offsets = np.arange(n_attributes + 1, dtype=np.int64) * n_labels
    return offsets, np.tile(np.arange(n_labels, dtype=np.uint16), n_attributes)


def _seen_states(
    chunks: Chunks, n_attributes: int, n_labels: int
) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
    """Pairs that occur, by one bit for each possible pair."""
    n_words = -(-n_labels // 64)
    marks = np.zeros(n_attributes * n_words, dtype=np.uint64)
    for features, labels in chunks():
        mark_pairs(features.offsets, features.indices, labels, n_words, marks)
    offsets = np.zeros(n_attributes + 1, dtype=np.int64)
    list_pairs(n_labels, n_words, marks, offsets, np.zeros(0, dtype=np.uint16))
    state_labels = np.zeros(int(offsets[-1]), dtype=np.uint16)
    list_pairs(n_labels, n_words, marks, offsets, state_labels)
    return offsets, state_labels


def _frequent_states(
    chunks: Chunks,
    n_labels: int,
    offsets: NDArray[np.int64],
    state_labels: NDArray[np.uint16],
    min_freq: float,
) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
    """Those of the given pairs whose values add up to at least ``min_freq``."""
    n_attributes = len(offsets) - 1
    attributes = np.repeat(np.arange(n_attributes), np.diff(offsets))
    pairs = attributes * n_labels + state_labels  # sorted: attribute by attribute
    amounts = np.zeros(len(pairs))
    for features, labels in chunks():
        entry_labels = np.repeat(labels, np.diff(features.offsets))
        known = entry_labels >= 0
        keys = features.indices[known].astype(np.int64) * n_labels + entry_labels[known]
        given = features.values[known] if features.values.size else None
        amounts += np.bincount(np.searchsorted(pairs, keys), weights=given, minlength=len(pairs))
    frequent = amounts >= min_freq
    counts = np.bincount(attributes[frequent], minlength=n_attributes)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), state_labels[frequent]


def _transition_counts(
    features: TokenFeatures, labels: LabelArray, n_labels: int
) -> NDArray[np.int64]:
    """How often each label follows each label, flat."""
    if len(labels) < 2:
        return np.zeros(n_labels**2, dtype=np.int64)
    inside = np.ones(len(labels), dtype=bool)  # whether a token has one before it
    starts = features.sequence_offsets[:-1]
    inside[starts[starts < len(labels)]] = False
    chosen = inside[1:] & (labels[1:] >= 0) & (labels[:-1] >= 0)
    pairs = labels[:-1][chosen].astype(np.int64) * n_labels + labels[1:][chosen]
    return np.bincount(pairs, minlength=n_labels**2)
