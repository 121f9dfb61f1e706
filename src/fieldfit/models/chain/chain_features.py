"""Sequences of feature dictionaries, lists of attributes or matrices as one sparse array.

Dictionaries are read as python-crfsuite reads them: ``{"word": "the"}`` is the attribute
``"word:the"`` with value 1; numbers and booleans keep their value; a list or set of strings under
a key is one attribute for each, and nested dictionaries are prefixed with ``"key:"``.  A token
may also be a list of attribute names.  An attribute with value 0 is the same as no attribute.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray
from fieldfit.errors import InvalidInputError, Place

__all__ = ["TokenFeatures", "Vocabulary", "is_matrix", "read_items", "read_matrices"]


@dataclass(frozen=True)
class TokenFeatures:
    """Attributes of all tokens of all sequences (CSR); ``values`` is empty if all are 1."""

    sequence_offsets: NDArray[np.int64]
    offsets: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: FloatArray
    n_attributes: int

    @property
    def n_tokens(self) -> int:
        return len(self.offsets) - 1


class Vocabulary(dict[str, int]):
    """Attribute names and their numbers; unknown names get the next number when looked up."""

    def __missing__(self, name: str) -> int:
        number = len(self)
        self[name] = number
        return number


def is_matrix(x: Any) -> bool:
    """Whether a sequence is given as numbers (dense, sparse, or nested lists of them)."""
    if hasattr(x, "tocsr") or (isinstance(x, np.ndarray) and x.dtype.kind in "fiub"):
        return True
    if isinstance(x, (list, tuple)) and len(x) and isinstance(x[0], (list, tuple, np.ndarray)):
        return (
            len(x[0]) > 0
            and isinstance(x[0][0], (Real, np.generic))
            and not isinstance(x[0][0], str)
        )
    return False


# -- dictionaries ---------------------------------------------------------------------------


def read_items(
    X: Iterable[Sequence[Any]], vocabulary: dict[str, int], grow: bool = False
) -> TokenFeatures:
    """Feature dictionaries (or lists of attribute names) with the numbers of a vocabulary.

    Names that it does not have are left out, or added with ``grow`` (to a `Vocabulary`).
    """
    collected = _Collected(vocabulary.__getitem__ if grow else vocabulary.get)
    sequences = array("q", [0])
    for index, x in enumerate(X):
        if isinstance(x, (str, bytes, Mapping)) or not hasattr(x, "__len__"):
            raise InvalidInputError(
                f"must be a list of feature dictionaries, got {type(x).__name__}", Place("X", index)
            )
        for position, token in enumerate(x):
            try:
                collected.add_token(token)
            except (TypeError, ValueError) as error:
                raise InvalidInputError(f"{error}", Place("X", index, position)) from None
        sequences.append(len(collected.offsets) - 1)
    return TokenFeatures(
        sequence_offsets=np.frombuffer(sequences, dtype=np.int64),
        offsets=np.frombuffer(collected.offsets, dtype=np.int64),
        indices=np.frombuffer(collected.indices, dtype=np.int32),
        values=np.frombuffer(collected.values or array("d"), dtype=np.float64),
        n_attributes=len(vocabulary),
    )


class _Collected:
    """Compact arrays that grow token by token; values appear with the first that is not 1."""

    def __init__(self, number_of: Callable[[str], int | None]) -> None:
        self.number_of = number_of
        self.offsets = array("q", [0])
        self.indices = array("i")
        self.values: array[float] | None = None

    def add_token(self, token: Any) -> None:
        append, number_of = self.indices.append, self.number_of
        if isinstance(token, dict):
            for key, value in token.items():
                # the commonest cases first, without a call
                if type(key) is str and type(value) is str:
                    number = number_of(f"{key}:{value}")
                    if number is not None:
                        append(number)
                elif type(key) is str and (
                    value is True or (type(value) is float and value == 1.0)
                ):
                    number = number_of(key)
                    if number is not None:
                        append(number)
                else:
                    for name, amount in _attributes(key, value):
                        self.add(name, amount)
        elif isinstance(token, (list, tuple, set, frozenset)):
            for name in _in_order(token):
                number = number_of(name)
                if number is not None:
                    append(number)
        else:
            raise TypeError(
                "a token must be a dictionary of features or a list of attribute names, "
                f"got {type(token).__name__}"
            )
        if self.values is not None:
            self._fill_values()
        self.offsets.append(len(self.indices))

    def add(self, name: str, value: float) -> None:
        if value == 0.0:
            return
        number = self.number_of(name)
        if number is None:
            return
        if value != 1.0 and self.values is None:
            self.values = array("d")
        if self.values is not None:
            self._fill_values()
            self.values.append(value)
        self.indices.append(number)

    def _fill_values(self) -> None:
        assert self.values is not None
        missing = len(self.indices) - len(self.values)
        if missing:
            self.values.extend([1.0] * missing)


def _attributes(key: Any, value: Any) -> Iterator[tuple[str, float]]:
    """Attribute names and values of one entry of a feature dictionary."""
    name = _text(key)
    if isinstance(value, str):
        yield f"{name}:{value}", 1.0
    elif isinstance(value, bytes):
        yield f"{name}:{value.decode()}", 1.0
    elif isinstance(value, dict):
        for inner_key, inner in value.items():
            for inner_name, amount in _attributes(inner_key, inner):
                yield f"{name}:{inner_name}", amount
    elif isinstance(value, (list, tuple, set, frozenset)):
        for inner in _in_order(value):
            yield f"{name}:{inner}", 1.0
    elif isinstance(value, (Real, np.bool_)):
        amount = float(value)
        if not math.isfinite(amount):
            raise ValueError(f"feature {name!r} must be finite, got {amount}")
        yield name, amount
    else:
        raise TypeError(
            f"feature {name!r} must be a string, a number, a boolean, a list of strings or a "
            f"dictionary, got {type(value).__name__}"
        )


def _in_order(names: Iterable[Any]) -> list[str]:
    """Attribute names; those of sets sorted, because their own order differs from run to run."""
    texts = [_text(name) for name in names]
    return sorted(texts) if isinstance(names, (set, frozenset)) else texts


def _text(name: Any) -> str:
    if isinstance(name, str):
        return name
    if isinstance(name, bytes):
        return name.decode()
    raise TypeError(f"names of features must be strings, got {type(name).__name__} {name!r}")


# -- matrices -------------------------------------------------------------------------------


def read_matrices(
    X: Sequence[Any], n_features: int | None, fit_intercept: bool
) -> tuple[TokenFeatures, bool]:
    """Dense or sparse matrices ``(T, F)``, and whether they were dense.

    ``fit_intercept`` adds a last attribute that every token has.  ``n_features`` is what the fit
    saw.
    """
    lengths, blocks = [], []
    dense = True
    for index, x in enumerate(X):
        sparse = hasattr(x, "tocsr")
        dense = dense and not sparse
        counts, columns, values, width = _sparse_rows(index, x) if sparse else _dense_rows(index, x)
        if n_features is None:
            n_features = width
        if width is not None and width != n_features:
            raise InvalidInputError(
                f"must have {n_features} features as the first sequence of the fit, got {width}",
                Place("X", index),
            )
        if not np.isfinite(values).all():
            raise InvalidInputError(
                "features must be finite, got NaN or infinity", Place("X", index)
            )
        lengths.append(len(counts))
        blocks.append((counts, columns, values))
    counts = np.concatenate([block[0] for block in blocks])
    indices = np.concatenate([block[1] for block in blocks])
    values = np.concatenate([block[2] for block in blocks])
    n_features = n_features or 0
    if fit_intercept:
        ends = np.cumsum(counts)
        indices = np.insert(indices, ends, n_features)
        values = np.insert(values, ends, 1.0)
        counts = counts + 1
    if np.all(values == 1.0):
        values = np.zeros(0)
    features = TokenFeatures(
        sequence_offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        indices=indices.astype(np.int32, copy=False),
        values=values,
        n_attributes=n_features + int(fit_intercept),
    )
    return features, dense


_Rows = tuple[NDArray[np.int64], NDArray[np.int32], FloatArray, int | None]


def _sparse_rows(index: int, x: Any) -> _Rows:
    """Entries of each row, their columns and values, and the number of columns."""
    matrix = x.tocsr()
    values = np.asarray(matrix.data, dtype=np.float64)
    columns = matrix.indices.astype(np.int32, copy=False)
    counts = np.diff(matrix.indptr).astype(np.int64)
    kept = values != 0.0
    if not kept.all():
        rows = np.repeat(np.arange(len(counts)), counts)[kept]
        counts = np.bincount(rows, minlength=len(counts)).astype(np.int64)
        values, columns = values[kept], columns[kept]
    return counts, columns, values, int(matrix.shape[1])


def _dense_rows(index: int, x: Any) -> _Rows:
    try:
        matrix = np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"must be a matrix (T, F) of numbers like the first sequence, got {error}",
            Place("X", index),
        ) from None
    if matrix.size == 0 and matrix.ndim == 1:  # an empty list: a sequence without tokens
        return np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0), None
    if matrix.ndim != 2:
        raise InvalidInputError(
            f"must be a matrix (T, F) of features, got shape {matrix.shape}", Place("X", index)
        )
    rows, columns = np.nonzero(matrix)
    counts = np.bincount(rows, minlength=matrix.shape[0]).astype(np.int64)
    return counts, columns.astype(np.int32), matrix[rows, columns], int(matrix.shape[1])
