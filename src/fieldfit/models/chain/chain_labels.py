"""Label sequences of chains: class names (strings or integers) to numbers and back."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import LabelArray
from fieldfit.errors import InvalidInputError, Place, TooLargeError

__all__ = [
    "MISSING",
    "is_missing",
    "label_classes",
    "label_kind",
    "number_labels",
    "require_lengths",
]

#: What a missing label becomes.
MISSING = -1
#: Half a gigabyte for each table of pairs; labels that are not classes tend to be many more.
MAX_LABELS = 2**13


def require_lengths(X: Sequence[Any], Y: Sequence[Any]) -> None:
    """Refuse empty lists, and sequences with another number of labels than of tokens."""
    if isinstance(Y, (str, bytes)) or not hasattr(Y, "__len__"):
        raise InvalidInputError(
            f"must be a list of sequences of labels, got {type(Y).__name__}", Place("Y")
        )
    if isinstance(Y, (list, tuple, np.ndarray)) and len(Y) and isinstance(Y[0], (str, Integral)):
        raise InvalidInputError(
            f"must be a list of sequences of labels, got labels, {Y[0]!r:.40}, ...: those of one "
            "sequence are [labels]",
            Place("Y"),
        )
    if len(X) == 0:
        raise InvalidInputError("must hold at least one sequence, got an empty list", Place("X"))
    if len(X) != len(Y):
        raise InvalidInputError(
            f"X and Y must have one entry for each sequence, got {len(X)} and {len(Y)}"
        )
    for index, (x, y) in enumerate(zip(X, Y, strict=True)):
        if isinstance(y, (str, bytes)) or not hasattr(y, "__len__"):
            raise InvalidInputError(
                f"must be a sequence of labels, got {type(y).__name__}", Place("Y", index)
            )
        if not hasattr(x, "__len__") and not hasattr(x, "shape"):
            raise InvalidInputError(
                f"must be a sequence of tokens, got {type(x).__name__}", Place("X", index)
            )
        length = x.shape[0] if hasattr(x, "shape") else len(x)
        if length != len(y):
            raise InvalidInputError(
                f"must have one label for each of the {length} tokens of X[{index}], got {len(y)}",
                Place("Y", index),
            )


def label_classes(Y: Sequence[Sequence[Any]]) -> NDArray[Any]:
    """The class names that occur, sorted; at least two are required."""
    found: set[Any] = set()
    kinds: dict[type, int] = {}
    for index, y in enumerate(Y):
        try:
            names = set(np.unique(y).tolist()) if _is_integers(y) else set(y)
        except TypeError:
            raise InvalidInputError(
                f"labels must be strings or integers, or None for missing, "
                f"got {next(name for name in y if name.__hash__ is None)!r:.60}",
                Place("Y", index),
            ) from None
        for name in names - found:
            if is_missing(name):
                continue
            kind = label_kind(index, name)
            kinds.setdefault(kind, index)
            if len(kinds) > 1:
                raise InvalidInputError(
                    f"must hold strings or integers, not both; got {name!r} in Y[{index}]",
                    Place("Y"),
                )
            found.add(name)
    if len(found) < 2:
        what = f"only {next(iter(found))!r}" if found else "no label at all"
        raise InvalidInputError(
            f"must hold at least two different labels over all {len(Y)} sequences, got {what}",
            Place("Y"),
        )
    if len(found) > MAX_LABELS:
        raise TooLargeError(
            f"Y must hold at most {MAX_LABELS} different labels, because a chain keeps tables of "
            f"all pairs, got {len(found)}"
        )
    return np.array(sorted(found))


def number_labels(Y: Sequence[Sequence[Any]], classes: NDArray[Any], unknown: int) -> LabelArray:
    """Numbers of all labels of all sequences; ``unknown`` for names that are not classes."""
    numbers: dict[Any, int] = {name: number for number, name in enumerate(classes.tolist())}
    flat: list[int] = []
    for index, y in enumerate(Y):
        names = y.tolist() if hasattr(y, "tolist") else y
        try:
            flat.extend([numbers[name] for name in names])
        except KeyError:
            for name in names:
                if is_missing(name):
                    flat.append(MISSING)
                else:
                    label_kind(index, name)
                    flat.append(numbers.get(name, unknown))
    return np.array(flat, dtype=np.int32)


def is_missing(name: Any) -> bool:
    """``None`` or the integer -1."""
    return name is None or (not isinstance(name, str) and name == MISSING)


def _is_integers(y: Any) -> bool:
    return isinstance(y, np.ndarray) and y.dtype.kind in "iu"


def label_kind(index: int, name: Any) -> type:
    """``str`` or ``int``; refuses names that are neither."""
    if isinstance(name, str):
        return str
    if isinstance(name, (int, np.integer, np.bool_)):
        if name < MISSING:
            raise InvalidInputError(
                f"integer labels must be at least -1 (missing), got {name}", Place("Y", index)
            )
        return int
    raise InvalidInputError(
        f"labels must be strings or integers, or None for missing, got {name!r}", Place("Y", index)
    )
