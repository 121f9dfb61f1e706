"""The sequences of ``domke-chains``: three sources, of which a chain describes one exactly.

* *well-specified*: ``x`` uniform, ``y`` drawn from a chain with random parameters (exactly, where
  the thesis used Markov chain Monte Carlo);
* *semi-misspecified*: runs of ten zeros and ten ones in turns, 60 % of ``x`` random;
* *misspecified*: all labels the same but for five, 75 % of ``x`` random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
LabelArray = NDArray[np.int32]
#: ``draw(n_sequences, length, rng) -> (y, x)``.
Source = Callable[[int, int, np.random.Generator], tuple[LabelArray, LabelArray]]

RUN = 10
N_CHANGED = 5
SEMI_NOISE, NOISE = 0.6, 0.75
#: Standard deviation of the parameters of a random chain.
SPREAD = 1.0


@dataclass(frozen=True)
class Sequences:
    """Labels and what is seen, ``(n_sequences, length)``, both 0 or 1."""

    labels: LabelArray
    seen: LabelArray

    def __getitem__(self, chosen: slice) -> Sequences:
        return Sequences(self.labels[chosen], self.seen[chosen])


def draw_sequences(name: str, count: int, length: int, rng: np.random.Generator) -> Sequences:
    """Sequences of a source; parameters of a random chain are drawn first."""
    return Sequences(*SOURCES[name](count, length, rng))


def draw_chain_labels(unary: FloatArray, table: FloatArray, rng: np.random.Generator) -> LabelArray:
    """Labels of chains, exactly: sums from the right, then labels from the left.

    ``unary`` is ``(n_sequences, length, 2)``; ``table`` is shared by all pairs.
    """
    count, length, n_labels = unary.shape
    message = np.zeros((count, length, n_labels))
    for place in range(length - 2, -1, -1):
        after = unary[:, place + 1] + message[:, place + 1]
        message[:, place] = np.logaddexp.reduce(table[None] + after[:, None, :], axis=2)
    labels = np.empty((count, length), dtype=np.int32)
    before = np.zeros((count, n_labels))
    uniform = rng.random((length, count))
    for place in range(length):
        scores = unary[:, place] + message[:, place] + before
        ink = np.exp(scores[:, 1] - np.logaddexp.reduce(scores, axis=1))
        labels[:, place] = uniform[place] < ink
        before = table[labels[:, place]]
    return labels


def _well_specified(
    count: int, length: int, rng: np.random.Generator
) -> tuple[LabelArray, LabelArray]:
    emission, table = SPREAD * rng.normal(size=(2, 2)), SPREAD * rng.normal(size=(2, 2))
    seen = rng.integers(0, 2, size=(count, length)).astype(np.int32)
    return draw_chain_labels(emission[seen], table, rng), seen


def _semi_misspecified(
    count: int, length: int, rng: np.random.Generator
) -> tuple[LabelArray, LabelArray]:
    # where a run begins is left open: a chain does not know its places anyway
    shifts = rng.integers(0, 2 * RUN, size=(count, 1))
    labels = ((np.arange(length) + shifts) // RUN % 2).astype(np.int32)
    return labels, _noisy(labels, SEMI_NOISE, rng)


def _misspecified(
    count: int, length: int, rng: np.random.Generator
) -> tuple[LabelArray, LabelArray]:
    labels = np.repeat(rng.integers(0, 2, size=(count, 1)), length, axis=1).astype(np.int32)
    changed = rng.random((count, length)).argsort(axis=1)[:, :N_CHANGED]
    np.put_along_axis(labels, changed, 1 - np.take_along_axis(labels, changed, 1), 1)
    return labels, _noisy(labels, NOISE, rng)


def _noisy(labels: LabelArray, noise: float, rng: np.random.Generator) -> LabelArray:
    is_random = rng.random(labels.shape) < noise
    return np.where(is_random, rng.integers(0, 2, size=labels.shape), labels).astype(np.int32)


SOURCES: dict[str, Source] = {
    "well-specified": _well_specified,
    "semi-misspecified": _semi_misspecified,
    "misspecified": _misspecified,
}
