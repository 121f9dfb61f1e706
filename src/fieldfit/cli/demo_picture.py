"""The picture of ``fieldfit demo``, its noise, and the random field that restores it.

Every pixel ``i`` has a label ``y_i`` (0 = paper, 1 = ink) and was seen as ``x_i = y_i + noise``.
The posterior of the labels is a grid model with

    th_i(y) = -(x_i - y)^2 / (2 noise^2),    th_ij(y, y') = coupling [y = y'].
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Potentials

__all__ = ["NOISE", "Restoration", "draw_picture"]

FloatArray = NDArray[np.float64]
LabelArray = NDArray[np.int32]

#: Standard deviation of the noise: alone, a pixel is then wrong about every fourth time.
NOISE = 0.8

# Five rows by three columns of bits for each letter, most significant bit on the left.
_LETTERS = {
    "f": (0b011, 0b010, 0b111, 0b010, 0b010),
    "i": (0b010, 0b000, 0b010, 0b010, 0b010),
    "e": (0b111, 0b101, 0b111, 0b100, 0b111),
    "l": (0b010, 0b010, 0b010, 0b010, 0b011),
    "d": (0b001, 0b001, 0b111, 0b101, 0b111),
    "t": (0b010, 0b111, 0b010, 0b010, 0b011),
}


def draw_picture(size: int) -> LabelArray:
    """A square picture: two words, a ring, a disc and a wavy line.

    Below 48 pixels strokes would be a pixel wide, which no smoothing survives: one large ring.
    """
    middle = (np.arange(size) + 0.5) / size
    y, x = np.meshgrid(middle, middle, indexing="ij")
    if size < 48:
        distance = np.hypot(x - 0.5, y - 0.5)
        return ((distance < 0.4) & (distance > 0.18)).astype(np.int32)
    ink = _word("field", x, y, left=0.07, top=0.08, cell=0.046)
    ink |= _word("fit", x, y, left=0.07, top=0.40, cell=0.046)
    distance = np.hypot(x - 0.78, y - 0.56)
    ink |= (distance > 0.12) & (distance < 0.17)
    ink |= distance < 0.055
    ink |= np.abs(y - 0.86 - 0.04 * np.sin(4 * np.pi * x)) < 0.035
    return ink.astype(np.int32)


def _word(
    word: str, x: FloatArray, y: FloatArray, left: float, top: float, cell: float
) -> NDArray[np.bool_]:
    """Which points of the unit square are ink of a word; four cells of width for each letter."""
    rows = np.floor((y - top) / cell).astype(int)
    columns = np.floor((x - left) / cell).astype(int)
    bits = np.zeros((5, 4 * len(word)), dtype=bool)
    for place, letter in enumerate(word):
        for row, pattern in enumerate(_LETTERS[letter]):
            bits[row, 4 * place : 4 * place + 3] = [pattern >> k & 1 for k in (2, 1, 0)]
    inside = (rows >= 0) & (rows < bits.shape[0]) & (columns >= 0) & (columns < bits.shape[1])
    return inside & bits[np.where(inside, rows, 0), np.where(inside, columns, 0)]


@dataclass(frozen=True)
class Restoration:
    """One noisy picture, the truth, and the strength with which neighbours agree."""

    clean: LabelArray
    noisy: FloatArray
    coupling: float

    @classmethod
    def generate(cls, size: int, seed: int, coupling: float) -> Restoration:
        """The picture with fresh noise."""
        clean = draw_picture(size)
        noise = np.random.default_rng(seed).normal(scale=NOISE, size=clean.shape)
        return cls(clean, clean + noise, coupling)

    def patch(self, size: int) -> Restoration:
        """A square around the left edge of the ring, or all of a smaller picture."""
        height, width = self.clean.shape
        top = max(0, int(0.56 * height) - size // 2)
        left = max(0, int(0.64 * width) - size // 2)
        rows, columns = slice(top, top + size), slice(left, left + size)
        return replace(self, clean=self.clean[rows, columns], noisy=self.noisy[rows, columns])

    def with_coupling(self, coupling: float) -> Restoration:
        return replace(self, coupling=coupling)

    def model(self) -> tuple[FactorGraph, Potentials]:
        """The posterior of the labels."""
        height, width = self.clean.shape
        graph = FactorGraph.grid(height, width, n_labels=2)
        unary = self.log_likelihood().reshape(-1, 2)
        table = self.coupling * np.eye(2)
        return graph, Potentials(graph, unary, table)

    def log_likelihood(self) -> FloatArray:
        """``th_i``, shape (height, width, 2)."""
        deviations: FloatArray = self.noisy[:, :, None] - np.array([0.0, 1.0])
        return -0.5 * (deviations / NOISE) ** 2

    def n_wrong(self, ink: FloatArray) -> int:
        """Pixels whose more probable label is wrong, given the probability of ink."""
        return int(((ink > 0.5) != (self.clean == 1)).sum())

    def log_loss(self, ink: FloatArray) -> float:
        """Mean of ``-log p(true label)``; log 2 is the loss of knowing nothing."""
        truth = np.where(self.clean == 1, ink, 1.0 - ink)
        return float(-np.log(np.maximum(truth, 1e-300)).mean())
