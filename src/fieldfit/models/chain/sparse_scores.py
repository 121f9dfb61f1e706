"""Sparse-feature scores of tokens (sparse matrix products), and their gradients.

Attribute ``f`` has weights for *some* labels: those at positions ``offsets[f]`` to ``offsets[f +
1]`` of the weight vector, with the labels in ``labels`` at the same positions.  A token is a list
of attributes (with values, or all 1), and

    score[y] = sum over its attributes f, value * w[position of (f, y)].

Nearly all the time goes into these lists, so each attribute is served in one of three ways:

* *row*: its weights are spread out to all labels, and whole rows are added in vectors
  (`chain_rows`).  Worth it for the attributes that tokens have most often, as long as their rows
  stay in the cache, and for those with weights for most labels anyway;
* *list*: label by label;
* *single*: one label only, as most attributes of a text have; the token then names the weight
  itself, and there is no loop to leave (and to mispredict).

`TokenEntries` holds the tokens with their attributes sorted into these three, in this order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import ByteArray, FloatArray, IntArray, LongArray
from fieldfit.models.chain.chain_rows import RowShape, add_to_rows, row_width, sum_rows
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import load, store

__all__ = [
    "LIST",
    "NONE",
    "ROW",
    "SINGLE",
    "StateIndex",
    "TokenEntries",
    "add_token_gradients",
    "collect_rows",
    "encode_tokens",
    "join_rows",
    "list_pairs",
    "mark_pairs",
    "spread_rows",
    "token_scores",
]


#: How an attribute is served.
NONE, ROW, LIST, SINGLE = 0, 1, 2, 3


class StateIndex(NamedTuple):
    """Which (attribute, label) pairs have a weight, and how attributes are served.

    ``codes`` is what tokens name: the row for `ROW`, the attribute for `LIST`, the position of the
    weight for `SINGLE`.
    """

    offsets: NDArray[np.int64]
    labels: NDArray[np.uint16]
    kinds: NDArray[np.uint8]
    codes: NDArray[np.int32]
    row_attributes: NDArray[np.int32]


class TokenEntries(NamedTuple):
    """What each token has: ``n_rows`` rows, ``n_lists`` lists, then single weights.

    ``values`` is empty if all are 1.
    """

    offsets: NDArray[np.int64]
    n_rows: NDArray[np.int32]
    n_lists: NDArray[np.int32]
    codes: NDArray[np.int32]
    values: FloatArray


# -- Encoding, once for each data set ------------------------------------------------------


@kernel
def mark_pairs(
    offsets: LongArray,
    indices: IntArray,
    labels: IntArray,
    n_words: int,
    marks: NDArray[np.uint64],
) -> None:
    """Set the bit of every (attribute, label) that occurs; ``n_words`` 64-bit words each."""
    for token in range(labels.size):
        label = labels[token]
        if label < 0:
            continue
        word = label >> 6
        bit = np.uint64(1) << np.uint64(label & 63)
        for n in range(offsets[token], offsets[token + 1]):
            marks[np.int64(indices[n]) * n_words + word] |= bit


@kernel
def list_pairs(
    n_labels: int,
    n_words: int,
    marks: NDArray[np.uint64],
    offsets: LongArray,
    labels: NDArray[np.uint16],
) -> None:
    """Labels of every attribute, in order; ``offsets`` filled first, ``labels`` if large enough."""
    position = 0
    n_attributes = offsets.size - 1
    for attribute in range(n_attributes):
        offsets[attribute] = position
        for label in range(n_labels):
            word = marks[attribute * n_words + (label >> 6)]
            if (word >> np.uint64(label & 63)) & np.uint64(1):
                if position < labels.size:
                    labels[position] = label
                position += 1
    offsets[n_attributes] = position


@kernel
def encode_tokens(
    offsets: LongArray,
    indices: IntArray,
    values: FloatArray,
    kinds: ByteArray,
    codes: IntArray,
    entries: TokenEntries,
) -> None:
    """Fill `TokenEntries`; attributes without a weight are dropped.

    ``entries.codes`` and ``entries.values`` may be ``indices`` and ``values`` themselves: a token's
    entries never move beyond where they were.  ``scratch`` keeps the order of the input.
    """
    longest = 0
    for token in range(offsets.size - 1):
        longest = max(longest, offsets[token + 1] - offsets[token])
    scratch_codes = np.empty(longest, dtype=np.int32)
    scratch_values = np.empty(longest)
    weighted = values.size > 0
    position = 0
    for token in range(offsets.size - 1):
        begin, end = offsets[token], offsets[token + 1]
        kept = 0
        for kind in range(ROW, SINGLE + 1):
            before = kept
            for n in range(begin, end):
                attribute = indices[n]
                if kinds[attribute] == kind:
                    scratch_codes[kept] = codes[attribute]
                    if weighted:
                        scratch_values[kept] = values[n]
                    kept += 1
            if kind == ROW:
                entries.n_rows[token] = kept
            elif kind == LIST:
                entries.n_lists[token] = kept - before
        entries.offsets[token] = position
        for n in range(kept):
            entries.codes[position + n] = scratch_codes[n]
            if weighted:
                entries.values[position + n] = scratch_values[n]
        position += kept
    entries.offsets[offsets.size - 1] = position


@kernel
def join_rows(
    offsets: LongArray,
    indices: IntArray,
    values: FloatArray,
    tokens: LongArray,
    n_attributes: int,
    out_offsets: LongArray,
    out_indices: IntArray,
    out_values: FloatArray,
) -> None:
    """The attributes of all tokens in a row of ``tokens``, one after the other, for every row.

    Those from ``n_attributes`` on are left out.  ``out_offsets`` is filled first, the others if
    they are large enough.
    """
    weighted = values.size > 0
    position = 0
    for row in range(tokens.shape[0]):
        out_offsets[row] = position
        for column in range(tokens.shape[1]):
            token = tokens[row, column]
            for n in range(offsets[token], offsets[token + 1]):
                if indices[n] < n_attributes:
                    if position < out_indices.size:
                        out_indices[position] = indices[n]
                        if weighted:
                            out_values[position] = values[n]
                    position += 1
    out_offsets[tokens.shape[0]] = position


# -- Scores and gradients, at every evaluation ---------------------------------------------


@kernel
def spread_rows(states: StateIndex, weights: FloatArray, width: int, rows: FloatArray) -> None:
    """Weights of the row attributes, spread out to ``width`` labels; zero where there is none."""
    for row in range(states.row_attributes.size):
        for k in range(width):
            rows[row * width + k] = 0.0
        attribute = states.row_attributes[row]
        for position in range(states.offsets[attribute], states.offsets[attribute + 1]):
            rows[row * width + states.labels[position]] = weights[position]


@kernel
def collect_rows(states: StateIndex, rows: FloatArray, width: int, gradient: FloatArray) -> None:
    """Add the rows to the gradient and clear them: the transpose of `spread_rows`."""
    for row in range(states.row_attributes.size):
        attribute = states.row_attributes[row]
        for position in range(states.offsets[attribute], states.offsets[attribute + 1]):
            gradient[position] += rows[row * width + states.labels[position]]
        for k in range(width):
            rows[row * width + k] = 0.0


@kernel
def token_scores(
    shape: RowShape,
    entries: TokenEntries,
    states: StateIndex,
    weights: FloatArray,
    rows: FloatArray,
    begin: int,
    end: int,
    out: FloatArray,
) -> None:
    """Scores of the tokens ``begin`` to ``end`` into ``out``, a row for each."""
    width = row_width(shape)
    weighted = entries.values.size > 0
    for token in range(begin, end):
        target = (token - begin) * width
        first = load(entries.offsets, token)
        lists = first + load(entries.n_rows, token)
        singles = lists + load(entries.n_lists, token)
        last = load(entries.offsets, token + 1)
        if weighted:
            sum_rows(shape, rows, entries.codes, entries.values, first, lists, out, target)
        else:
            sum_rows(shape, rows, entries.codes, None, first, lists, out, target)
        for n in range(lists, singles):
            value = load(entries.values, n) if weighted else 1.0
            attribute = load(entries.codes, n)
            for position in range(
                load(states.offsets, attribute), load(states.offsets, attribute + 1)
            ):
                place = target + np.int64(load(states.labels, position))
                store(out, place, load(out, place) + value * load(weights, position))
        for n in range(singles, last):
            value = load(entries.values, n) if weighted else 1.0
            position = load(entries.codes, n)
            place = target + np.int64(load(states.labels, position))
            store(out, place, load(out, place) + value * load(weights, position))


@kernel
def add_token_gradients(
    shape: RowShape,
    entries: TokenEntries,
    states: StateIndex,
    residuals: FloatArray,
    begin: int,
    end: int,
    rows: FloatArray,
    gradient: FloatArray,
) -> None:
    """The transpose of `token_scores`, added to ``rows`` and ``gradient``."""
    width = row_width(shape)
    weighted = entries.values.size > 0
    for token in range(begin, end):
        source = (token - begin) * width
        first = load(entries.offsets, token)
        lists = first + load(entries.n_rows, token)
        singles = lists + load(entries.n_lists, token)
        last = load(entries.offsets, token + 1)
        if weighted:
            add_to_rows(shape, rows, entries.codes, entries.values, first, lists, residuals, source)
        else:
            add_to_rows(shape, rows, entries.codes, None, first, lists, residuals, source)
        for n in range(lists, singles):
            value = load(entries.values, n) if weighted else 1.0
            attribute = load(entries.codes, n)
            for position in range(
                load(states.offsets, attribute), load(states.offsets, attribute + 1)
            ):
                residual = load(residuals, source + np.int64(load(states.labels, position)))
                store(gradient, position, load(gradient, position) + value * residual)
        for n in range(singles, last):
            value = load(entries.values, n) if weighted else 1.0
            position = load(entries.codes, n)
            residual = load(residuals, source + np.int64(load(states.labels, position)))
            store(gradient, position, load(gradient, position) + value * residual)
