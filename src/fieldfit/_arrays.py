"""Checks of arrays that users hand in: plain arrays, real numbers, integers.

NumPy turns texts, dates, complex numbers and masked entries into numbers without a word where it is
told a type.  Here it is not told one before the values have been looked at, so that what is refused
is refused in one sentence, and nothing is rounded, cut off or unmasked in silence.
"""

from __future__ import annotations

import numbers
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray, LongArray
from fieldfit._validation import shown
from fieldfit.errors import InvalidInputError, Place

__all__ = ["integers", "plain_array", "real_numbers"]


def plain_array(name: str, given: Any, place: Place | None = None) -> NDArray[Any]:
    """An array of any type, in which every entry counts.

    ``name`` is the subject of the complaint, ``""`` if that is the place.

    Examples
    --------
    >>> plain_array("start", [[1], [2, 3]])
    Traceback (most recent call last):
    ...
    fieldfit.errors.InvalidInputError: start must be an array, got rows of different lengths
    """
    try:
        array = np.asarray(given)
    except (TypeError, ValueError):
        _refuse(name, "an array, got rows of different lengths", place)
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):
        count = int(np.ma.getmaskarray(given).sum())
        _refuse(name, f"an array in which every entry counts, got {count} masked entries", place)
    return array


def real_numbers(name: str, given: Any, place: Place | None = None) -> FloatArray:
    """A contiguous array of doubles; the array itself if it is one.

    Whole numbers and truth values are real numbers; texts, dates and complex numbers are not.
    ``None`` and the missing value of pandas inside an array of objects are NaN, as in a table with
    missing entries.

    Examples
    --------
    >>> real_numbers("start", ["1.5"])
    Traceback (most recent call last):
    ...
    fieldfit.errors.InvalidInputError: start must be an array of real numbers, got list ['1.5']
    """
    if type(given) is np.ndarray and given.dtype == np.float64:
        return given if given.flags.c_contiguous else given.copy(order="C")
    array = plain_array(name, given, place)
    if array.dtype.kind == "O" and all(map(_is_real_or_missing, array.flat)):
        array = array.copy()
        array[np.vectorize(_is_missing, otypes=[bool])(array)] = None
    elif array.dtype.kind not in "fiub":
        _refuse(name, f"an array of real numbers, got {type(given).__name__} {shown(given)}", place)
    return np.ascontiguousarray(array, dtype=np.float64).reshape(array.shape)


def integers(
    name: str, given: Any, place: Place | None = None, *, allow_whole_floats: bool = False
) -> NDArray[np.signedinteger[Any]]:
    """An array of signed integers; the array itself if it is one, of any width.

    Examples
    --------
    >>> integers("edges", [[0, 1.5]], allow_whole_floats=True)
    Traceback (most recent call last):
    ...
    fieldfit.errors.InvalidInputError: edges must be integers, got dtype float64
    """
    array = plain_array(name, given, place)
    if array.dtype.kind == "i":
        return array
    if array.size == 0 and array.dtype.kind in "fO":  # what an empty list becomes
        return np.zeros(array.shape, dtype=np.int64)
    is_whole = array.dtype.kind == "u" or (
        allow_whole_floats and array.dtype.kind == "f" and bool(np.all(array == np.floor(array)))
    )
    if not is_whole:
        _refuse(name, f"integers, got dtype {array.dtype}", place)
    largest = array.max(initial=0)
    if not float(array.min(initial=0)) >= -(2.0**63) or float(largest) >= 2.0**63:
        _refuse(name, f"integers of 64 bits, got {largest}", place)
    wide: LongArray = array.astype(np.int64)
    return wide


def _is_missing(entry: Any) -> bool:
    return entry is None or type(entry).__name__ == "NAType"  # pandas need not be installed


def _is_real_or_missing(entry: Any) -> bool:
    return isinstance(entry, numbers.Real) or _is_missing(entry)


def _refuse(name: str, wanted: str, place: Place | None) -> NoReturn:
    raise InvalidInputError(f"{name} must be {wanted}".lstrip(), place) from None
