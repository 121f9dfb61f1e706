"""Viterbi's algorithm: the best labelling of each sequence, by maxima of scores.

    d_t(y) = s_t(y) + max_x (d_{t-1}(x) + T(x, y)),    the maximising x is kept for the way back

Of several best labellings the one is returned whose labels, from the last token backwards, are
lowest.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from fieldfit.kernels.chain_features import token_scores
from fieldfit.kernels.chain_rows import row_width

__all__ = ["best_labels"]


@njit(cache=True, nogil=True, error_model="numpy")
def best_labels(
    shape: Any,
    n_labels: int,
    entries: Any,
    states: Any,
    model: Any,
    sequence_offsets: Any,
    first: int,
    last: int,
    scores: Any,
    previous: Any,
    out: Any,
    best_scores: Any,
) -> None:
    """Labels of the sequences ``first`` to ``last``, and the scores of these labellings.

    ``scores`` (doubles) and ``previous`` (int32) have a row for each token of
    the longest sequence.
    """
    width = row_width(shape)
    for sequence in range(first, last):
        begin, end = sequence_offsets[sequence], sequence_offsets[sequence + 1]
        length = end - begin
        best_scores[sequence] = 0.0
        if length == 0:
            continue
        token_scores(shape, entries, states, model.weights, model.rows, begin, end, scores)
        for y in range(n_labels):
            scores[y] += model.start[y]
            scores[(length - 1) * width + y] += model.end[y]
        for t in range(1, length):
            row = t * width
            before = row - width
            for y in range(n_labels):
                top = scores[before] + model.transition[y]
                chosen = 0
                for x in range(1, n_labels):
                    value = scores[before + x] + model.transition[x * width + y]
                    if value > top:
                        top = value
                        chosen = x
                scores[row + y] += top
                previous[row + y] = chosen
        row = (length - 1) * width
        label = 0
        for y in range(1, n_labels):
            if scores[row + y] > scores[row + label]:
                label = y
        best_scores[sequence] = scores[row + label]
        for t in range(length - 1, -1, -1):
            out[begin + t] = label
            if t > 0:
                label = previous[t * width + label]
