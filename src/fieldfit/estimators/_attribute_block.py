"""Weights of (attribute, label) pairs on tokens, and of (attribute, pair of labels) on edges.

A table with attributes ``x_r`` gets ``th_r(s) = sum_f x_r[f] w(f, g(s))``, as `Block` has it with
sparse features; but here an attribute has weights only for the labels that its layout lists, and
the products are those of the chain kernels, which need no values where all of them are 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.template import Block
from fieldfit.estimators._chain_layout import AttributeLayout
from fieldfit.estimators._chain_tokens import EncodedRows
from fieldfit.kernels.chain_features import (
    add_token_gradients,
    collect_rows,
    spread_rows,
    token_scores,
)
from fieldfit.kernels.tying import add_tied, gather_tied

__all__ = ["AttributeBlock"]

FloatArray = NDArray[np.float64]


class _Entries(NamedTuple):
    """A block's features for `TemplateProblem.fingerprint`, as a CSR matrix would show them."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    data: FloatArray


@dataclass(frozen=True)
class AttributeBlock(Block):
    """Weights of the pairs in a layout, on tables that have the encoded ``rows`` from ``begin``."""

    rows: EncodedRows | None = None
    begin: int = 0

    @classmethod
    def of(
        cls,
        name: str,
        part: Literal["unary", "factors"],
        starts: NDArray[np.int64],
        groups: NDArray[np.int64],
        rows: EncodedRows,
        begin: int,
    ) -> AttributeBlock:
        """The block of the tables at ``starts``; ``groups`` are labels of the rows' layout."""
        offsets = rows.entries.offsets
        end = begin + len(starts)
        first, last = offsets[begin], offsets[end]
        features = _Entries(
            offsets[begin : end + 1],
            rows.entries.codes[first:last],
            rows.entries.values[first:last],
        )
        return cls(name, part, starts, groups, features, rows=rows, begin=begin)

    @property
    def _rows(self) -> EncodedRows:
        assert self.rows is not None
        return self.rows

    @property
    def layout(self) -> AttributeLayout:
        return self._rows.layout

    @property
    def n_weights(self) -> int:
        return self.layout.n_states

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """A table if every pair has a weight, otherwise one row."""
        return self.layout.state_shape

    def add_potentials(self, weights: FloatArray, vector: FloatArray) -> None:
        """Add the scores of the rows to their tables."""
        states, width = self._rows.states, self.layout.width
        weights = np.ascontiguousarray(weights)
        spread = np.empty(len(states.row_attributes) * width)
        spread_rows(states, weights, width, spread)
        scores = np.empty((len(self.starts), width))
        token_scores(
            self.layout.row_shape, self._rows.entries, states, weights, spread,
            self.begin, self.begin + len(self.starts), scores.reshape(-1),
        )  # fmt: skip
        add_tied(scores, self.groups, self.starts, vector)

    def gradient(self, vector: FloatArray) -> FloatArray:
        """The transpose of `add_potentials`."""
        states, width = self._rows.states, self.layout.width
        residuals = np.zeros((len(self.starts), width))
        gather_tied(vector, self.groups, self.starts, residuals)
        spread = np.zeros(len(states.row_attributes) * width)
        gradient = np.zeros(self.layout.n_states)
        add_token_gradients(
            self.layout.row_shape, self._rows.entries, states, residuals.reshape(-1),
            self.begin, self.begin + len(self.starts), spread, gradient,
        )  # fmt: skip
        collect_rows(states, spread, width, gradient)
        return gradient
