"""Answers of `predict`: a list of arrays that scikit-learn can join where their shapes differ."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["AnswerList"]


class AnswerList(list[NDArray[Any]]):
    """A list of arrays, one for each example.

    It is a list in every respect.  Where NumPy makes an array of it, arrays of one shape are
    stacked, as those of any list, and arrays of different shapes become the entries of an array of
    objects, which NumPy refuses for other lists.  Several such lists are joined before that, so
    that ``cross_val_predict`` of scikit-learn works on sequences of different lengths and pictures
    of different sizes, however the folds fall.

    Examples
    --------
    >>> np.asarray(AnswerList([np.zeros(2), np.zeros(2)])).shape
    (2, 2)
    >>> np.asarray(AnswerList([np.zeros(2), np.zeros(3)]))
    array([array([0., 0.]), array([0., 0., 0.])], dtype=object)
    >>> np.concatenate([AnswerList([np.zeros(2)]), AnswerList([np.zeros(3)])]).shape
    (2,)
    """

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        plain = list(self)
        if len({answer.shape for answer in plain}) <= 1:
            return np.array(plain, dtype=dtype)
        joined = np.empty(len(plain), dtype=object)
        joined[:] = plain
        return joined if dtype is None else joined.astype(dtype)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Join lists before they become arrays; all other functions see arrays."""
        is_join = function is np.concatenate and len(args) == 1 and not kwargs
        if is_join and all(isinstance(part, AnswerList) for part in args[0]):
            return np.asarray(AnswerList(answer for part in args[0] for answer in part))
        return function(*_as_arrays(args), **_as_arrays(kwargs))


def _as_arrays(given: Any) -> Any:
    """The same arguments with arrays in place of lists of answers."""
    if isinstance(given, AnswerList):
        return np.asarray(given)
    if isinstance(given, dict):
        return {name: _as_arrays(value) for name, value in given.items()}
    if type(given) in (list, tuple):
        return type(given)(_as_arrays(value) for value in given)
    return given
