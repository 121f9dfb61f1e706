"""Ragged arrays: rows of different lengths in one flat array, with the offsets of the rows.

Row ``r`` is ``values[offsets[r] : offsets[r + 1]]``; ``offsets`` has one entry more than there are
rows. Variables have rows of labels, factors rows of table entries, examples of a batch rows of all
of these.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._typing import FloatArray, LongArray

__all__ = ["expand", "offsets_of", "ranges", "reduce_rows", "row_numbers", "rows"]

Scalar = TypeVar("Scalar", bound=np.generic)
Offsets = NDArray[np.integer[Any]]


def offsets_of(lengths: ArrayLike) -> LongArray:
    """Offsets of rows of given lengths.

    Examples
    --------
    >>> offsets_of([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def expand(values: NDArray[Scalar], offsets: Offsets) -> NDArray[Scalar]:
    """One value for each row, repeated for each of its entries.

    Examples
    --------
    >>> expand(np.array([5.0, 6.0, 7.0]), np.array([0, 2, 2, 3])).tolist()
    [5.0, 5.0, 7.0]
    """
    expanded: NDArray[Scalar] = np.repeat(values, np.diff(offsets))
    return expanded


def row_numbers(offsets: Offsets) -> LongArray:
    """The row of each entry."""
    return np.repeat(np.arange(len(offsets) - 1, dtype=np.int64), np.diff(offsets))


def reduce_rows(combine: np.ufunc, values: FloatArray, offsets: Offsets) -> FloatArray:
    """Combine each row by itself, 0 if it is empty: a running sum over all would lose digits.

    Examples
    --------
    >>> reduce_rows(np.add, np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2, 3])).tolist()
    [3.0, 0.0, 4.0]
    """
    begins = offsets[:-1]
    is_filled = begins != offsets[1:]
    if is_filled.all() and len(begins):  # nearly always, and small models ask often
        return np.asarray(combine.reduceat(values, begins), dtype=np.float64)
    combined = np.zeros(len(begins))
    if is_filled.any():
        combined[is_filled] = combine.reduceat(values, begins[is_filled])
    return combined


def ranges(starts: ArrayLike, lengths: ArrayLike) -> LongArray:
    """All of ``starts[r], ..., starts[r] + lengths[r] - 1``, one ``r`` after the other.

    Examples
    --------
    >>> ranges([7, 0], [2, 3]).tolist()
    [7, 8, 0, 1, 2]
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    shifts = np.asarray(starts, dtype=np.int64) - (np.cumsum(lengths) - lengths)
    return np.repeat(shifts, lengths) + np.arange(int(lengths.sum()), dtype=np.int64)


def rows(offsets: Offsets, chosen: NDArray[np.integer[Any]]) -> LongArray:
    """Positions of all entries of the chosen rows, one row after the other."""
    return ranges(offsets[chosen], np.diff(offsets)[chosen])
