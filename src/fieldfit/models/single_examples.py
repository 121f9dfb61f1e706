"""One example where a list of them is needed, and pictures with channels first: what to write.

These mistakes of a first day would otherwise be told by what they look like further inside, a
picture whose rows are taken for pictures.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, NoReturn

import numpy as np

from fieldfit.errors import InvalidInputError, Place

__all__ = ["refuse_one_graph", "refuse_one_picture", "refuse_one_sequence"]

#: What to do about channels first.
_MOVED = "np.moveaxis(picture, 0, -1)"


def refuse_one_picture(X: Any, Y: Any = None, n_features: int | None = None) -> None:
    """Refuse one picture (or its labels) without a list around it, and channels first.

    Labels tell which axes are those of the picture; without them the number of features does.
    """
    shape, labels = _shape(X), _shape(Y)
    first, first_labels = _shape(X, 0), _shape(Y, 0)
    if len(shape) == 2 or len(first) == 1:
        _refuse("pictures", "one of rows and columns: one picture is [picture]")
    if len(shape) == 3 and Y is not None:
        _refuse_axes(shape, labels)
        if hasattr(Y, "__len__") and len(Y) == 1 != len(X):
            _refuse_axes(shape, first_labels)
    elif len(shape) == 3 and n_features is not None and n_features > 1:
        _refuse_axes(shape, shape[:2] if shape[2] == n_features else shape[1:])
    if len(first) != 3:
        return
    if labels == first[:2] and len(X) == 1:
        raise InvalidInputError(
            f"must be a list of label pictures, got one of shape {labels}: one picture is [labels]",
            Place("Y"),
        )
    is_moved = first[1:] == first_labels != first[:2]
    if Y is None:
        is_moved = first[0] == n_features != first[2]
    if is_moved:
        raise InvalidInputError(
            f"must have its channels last, got shape {first}: {_MOVED} moves them", Place("X", 0)
        )


def _refuse_axes(shape: tuple[int, ...], labels: tuple[int, ...]) -> None:
    """Refuse an array of three axes that is one picture with labels of the given shape."""
    if labels == shape[:2]:
        _refuse("pictures", f"one of shape {shape}: one picture is [picture]")
    if labels == shape[1:]:
        _refuse("pictures with channels last", f"one of shape {shape}: one picture is [{_MOVED}]")


def refuse_one_graph(X: Any) -> None:
    """Refuse ``(node_features, edges)`` without a list around it."""
    if isinstance(X, (tuple, list)) and len(X) in (2, 3) and _is_matrix(X[0]):
        _refuse("graphs", "the parts of one: one graph is [(node_features, edges)]")


def refuse_one_sequence(X: Any) -> None:
    """Refuse the tokens of one sequence without a list around them."""
    if len(_shape(X)) == 2:
        _refuse("sequences", f"one of shape {_shape(X)}: one sequence is [tokens]")
    if isinstance(X, (list, tuple)) and X and isinstance(X[0], (Mapping, str)):
        _refuse("sequences", f"tokens, {X[0]!r:.40}, ...: one sequence is [tokens]")


def _refuse(wanted: str, found: str) -> NoReturn:
    raise InvalidInputError(f"must be a list of {wanted}, got {found}", Place("X"))


def _shape(given: Any, index: int | None = None) -> tuple[int, ...]:
    """Shape of an array of numbers, or of one of the entries of a list; ``()`` if it is none.

    Lists are not converted: those of pictures may be large.
    """
    try:
        array = given if index is None else np.asarray(given[index])
    except (TypeError, ValueError, IndexError, KeyError):
        return ()
    is_numbers = isinstance(array, np.ndarray) and array.dtype.kind in "biuf"
    return tuple(array.shape) if is_numbers else ()


def _is_matrix(given: Any) -> bool:
    if hasattr(given, "shape"):
        return len(given.shape) == 2
    try:
        return isinstance(given[0][0], Real)
    except (TypeError, IndexError, KeyError):
        return False
