"""Encoded sequences of a linear-chain model: marginals and Viterbi labels of fitted weights.

Attributes of tokens are sorted by how the kernels of `sparse_scores` serve them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fieldfit._parallel import n_threads, ordered_map
from fieldfit._typing import FloatArray, LabelArray
from fieldfit.models.chain.chain_features import TokenFeatures
from fieldfit.models.chain.chain_layout import AttributeLayout, ChainLayout
from fieldfit.models.chain.forward_backward import (
    ChainModel,
    ChainScratch,
    best_labels,
    chain_marginals,
)
from fieldfit.models.chain.sparse_scores import (
    LIST,
    NONE,
    ROW,
    SINGLE,
    StateIndex,
    TokenEntries,
    encode_tokens,
    spread_rows,
)

__all__ = ["EncodedRows", "EncodedTokens", "encode"]

#: Rows of weights kept spread out because tokens have them often: together a megabyte, so that
#: they and their gradients stay in the second-level cache.
ROW_BYTES = 2**20


@dataclass(frozen=True)
class EncodedRows:
    """Attributes of tokens, or of edges, in the form that kernels read (see `chain_features`)."""

    layout: AttributeLayout
    states: StateIndex
    entries: TokenEntries


@dataclass(frozen=True)
class EncodedTokens(EncodedRows):
    """All tokens of some sequences, for one layout."""

    layout: ChainLayout
    sequence_offsets: NDArray[np.int64]

    @classmethod
    def of(cls, layout: ChainLayout, features: TokenFeatures) -> EncodedTokens:
        """Choose how each attribute is served, and sort every token's attributes accordingly."""
        return cls(layout, *encode(layout, features), features.sequence_offsets)

    @property
    def n_weights(self) -> int:
        """Of the model that these tokens are for."""
        return self.layout.n_weights

    @property
    def n_sequences(self) -> int:
        return len(self.sequence_offsets) - 1

    def model(self, weights: FloatArray) -> ChainModel:
        """Weights as the kernels read them."""
        layout = self.layout
        width = layout.width
        _, pairs, start, end = layout.split(weights)
        rows = np.empty(len(self.states.row_attributes) * width)
        spread_rows(self.states, weights, width, rows)
        transition = np.zeros((width, width))
        square = np.zeros((layout.n_labels, layout.n_labels))
        chosen = layout.transitions >= 0
        square[chosen] = pairs[layout.transitions[chosen]]
        transition[: layout.n_labels, : layout.n_labels] = square
        top = float(square.max())
        exponentials = np.zeros((width, width))
        with np.errstate(over="ignore"):  # differences beyond the range of doubles: exp is 0
            exponentials[: layout.n_labels, : layout.n_labels] = np.exp(square - top)
        return ChainModel(
            weights=weights,
            rows=rows,
            transition=transition.ravel(),
            exp_transition=exponentials.ravel(),
            exp_transposed=exponentials.T.ravel(),
            transition_top=top,
            start=layout.padded(start),
            end=layout.padded(end),
        )

    def scratch(self, n_weights: int) -> ChainScratch:
        """Zeroed memory for one thread."""
        width = self.layout.width
        longest = int(np.diff(self.sequence_offsets).max(initial=0))
        per_token = longest * width
        return ChainScratch(
            scores=np.zeros(per_token),
            unary=np.zeros(per_token),
            forward=np.zeros(per_token),
            backward=np.zeros(per_token),
            marginals=np.zeros(per_token),
            observed_marginals=np.zeros(per_token),
            tops=np.zeros(longest),
            inverse_scales=np.zeros(longest),
            outer=np.zeros(width * width),
            observed_outer=np.zeros(width * width),
            counts=np.zeros(width * width),
            observed_counts=np.zeros(width * width),
            start=np.zeros(width),
            end=np.zeros(width),
            rows=np.zeros(len(self.states.row_attributes) * width),
            gradient=np.zeros(n_weights),
        )

    def groups(self, n_groups: int) -> NDArray[np.int64]:
        """Boundaries of groups of sequences with about equal work."""
        work = np.concatenate([[0.0], np.cumsum(self.sequence_work())])
        bounds = np.searchsorted(work, np.linspace(0.0, work[-1], n_groups + 1)[1:-1])
        return np.unique(np.concatenate([[0], bounds, [self.n_sequences]])).astype(np.int64)

    def sequence_work(self) -> FloatArray:
        """Multiplications that each sequence costs, roughly."""
        n_labels = self.layout.n_labels
        starts = self.entries.offsets[self.sequence_offsets]
        return 3.0 * n_labels**2 * np.diff(self.sequence_offsets) + 2.0 * n_labels * np.diff(starts)

    def marginals(self, weights: FloatArray, n_jobs: int | None) -> FloatArray:
        """``(n_tokens, n_labels)``."""
        model = self.model(weights)
        out = np.empty((int(self.sequence_offsets[-1]), self.layout.n_labels))

        def run(first: int, last: int) -> None:
            chain_marginals(
                self.layout.row_shape, self.layout.n_labels, self.entries, self.states, model,
                self.sequence_offsets, first, last, self.scratch(0), out.reshape(-1),
            )  # fmt: skip

        self._run_groups(run, n_jobs)
        return out

    def best_labels(self, weights: FloatArray, n_jobs: int | None) -> tuple[LabelArray, FloatArray]:
        """Labels of all tokens that are jointly best, and each sequence's score."""
        model = self.model(weights)
        labels = np.empty(int(self.sequence_offsets[-1]), dtype=np.int32)
        scores = np.zeros(self.n_sequences)
        width = self.layout.width
        longest = int(np.diff(self.sequence_offsets).max(initial=0))

        def run(first: int, last: int) -> None:
            best_labels(
                self.layout.row_shape, self.layout.n_labels, self.entries, self.states, model,
                self.sequence_offsets, first, last, np.empty(longest * width),
                np.empty(longest * width, dtype=np.int32), labels, scores,
            )  # fmt: skip

        self._run_groups(run, n_jobs)
        return labels, scores

    def _run_groups(self, run: Callable[[int, int], None], n_jobs: int | None) -> None:
        threads = n_threads(n_jobs)
        bounds = self.groups(4 * threads if threads > 1 else 1)
        ordered_map(lambda group: run(*group), pairwise(bounds.tolist()), threads)


def encode(layout: AttributeLayout, features: TokenFeatures) -> tuple[StateIndex, TokenEntries]:
    """How each attribute is served, and the rows' attributes sorted accordingly."""
    visits = np.bincount(features.indices, minlength=layout.n_attributes)
    states = _state_index(layout, visits)
    kept = len(features.indices) - int(visits[states.kinds == NONE].sum())
    entries = TokenEntries(
        offsets=np.empty(features.n_tokens + 1, dtype=np.int64),
        n_rows=np.empty(features.n_tokens, dtype=np.int32),
        n_lists=np.empty(features.n_tokens, dtype=np.int32),
        codes=np.empty(kept, dtype=np.int32),
        values=np.empty(kept if features.values.size else 0),
    )
    encode_tokens(
        features.offsets, features.indices, features.values, states.kinds, states.codes, entries
    )
    return states, entries


def _state_index(layout: AttributeLayout, visits: NDArray[np.int64]) -> StateIndex:
    """Rows for attributes with most labels, and for as many frequent ones as fit the cache."""
    counts = np.diff(layout.state_offsets)
    kinds = np.full(len(counts), LIST, dtype=np.uint8)
    kinds[counts == 0] = NONE
    kinds[counts == 1] = SINGLE
    several = np.flatnonzero(counts >= 2)
    order = several[np.argsort(-visits[several], kind="stable")]
    order = order[visits[order] > 1]
    kinds[order[: ROW_BYTES // (8 * layout.width)]] = ROW
    kinds[several[2 * counts[several] >= layout.n_labels]] = ROW
    rows = np.flatnonzero(kinds == ROW)
    codes = np.arange(len(counts), dtype=np.int32)
    codes[kinds == SINGLE] = layout.state_offsets[:-1][kinds == SINGLE]
    codes[rows] = np.arange(len(rows))
    return StateIndex(
        offsets=layout.state_offsets,
        labels=layout.state_labels,
        kinds=kinds,
        codes=codes,
        row_attributes=rows.astype(np.int32),
    )
