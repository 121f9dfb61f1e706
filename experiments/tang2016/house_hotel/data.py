"""Landmarks of the CMU house and hotel sequences, and features of pairs of landmarks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fieldfit import InvalidInputError

FloatArray = NDArray[np.float64]

FILE = "cmu_house_hotel/house_hotel.npz"
SEQUENCES = ("house", "hotel")
SPLITS = ("train", "validate", "test")

#: Ways to compare the counts of two landmarks, bin by bin.
KINDS = ("squared", "absolute", "chi-square", "root")


@dataclass(frozen=True)
class Pair:
    """Two frames of a sequence; landmark ``k`` of one is landmark ``k`` of the other."""

    first: int
    second: int


@dataclass(frozen=True, eq=False)
class Sequence:
    """Frames of one object: landmarks, their shape contexts, and the list of pairs.

    Rows of ``pairs`` are gap, split (see `SPLITS`), first and second frame.
    """

    name: str
    points: FloatArray
    contexts: FloatArray
    pairs: NDArray[np.int64]

    @property
    def n_landmarks(self) -> int:
        return int(self.points.shape[1])

    def of(self, gap: int, split: str) -> list[Pair]:
        """The pairs of one gap in one split."""
        is_meant = (self.pairs[:, 0] == gap) & (self.pairs[:, 1] == SPLITS.index(split))
        return [Pair(int(i), int(j)) for i, j in self.pairs[is_meant, 2:]]

    def features(self, pair: Pair, kind: str) -> FloatArray:
        """Features of all edges, ``(n, n, bins)``."""
        return edge_features(self.contexts[pair.first], self.contexts[pair.second], kind)


def edge_features(first: FloatArray, second: FloatArray, kind: str) -> FloatArray:
    """Minus the difference of two histograms in every bin, for all pairs of landmarks."""
    a, b = first[:, None], second[None]
    if kind == "squared":
        return -((a - b) ** 2)
    if kind == "absolute":
        return -np.abs(a - b)
    if kind == "chi-square":
        total = a + b
        return -np.divide((a - b) ** 2, total, out=np.zeros_like(total), where=total > 0.0)
    if kind == "root":
        return -((np.sqrt(a) - np.sqrt(b)) ** 2)
    raise InvalidInputError(f"kind must be one of {KINDS}, got {kind!r}")


def read_sequences(folder: Path) -> list[Sequence]:
    """Both sequences."""
    path = folder / FILE
    if not path.exists():
        raise InvalidInputError(f"--data must have the file {FILE}, got {folder}")
    found = []
    with np.load(path, allow_pickle=False) as arrays:
        for name in SEQUENCES:
            points = np.asarray(arrays[f"{name}_points"], dtype=np.float64)
            contexts = np.asarray(arrays[f"{name}_shape_context"], dtype=np.float64)
            pairs = np.asarray(arrays[f"{name}_pairs"], dtype=np.int64)
            if contexts.shape[:2] != points.shape[:2] or pairs.shape[1:] != (4,):
                raise InvalidInputError(
                    f"{path}: arrays of {name} must agree in frames and landmarks, got "
                    f"{points.shape}, {contexts.shape} and pairs {pairs.shape}"
                )
            found.append(Sequence(name, points, contexts, pairs))
    return found
