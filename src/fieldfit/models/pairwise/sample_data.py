"""Label samples of a Markov random field: checked, with equal rows put together.

A row is one joint observation of all variables, ``-1`` where a label is missing.  Rows that are
equal are kept once; ``weights`` are the sums of their weights ``v`` (the objective is linear in
them) and ``squared_weights`` the sums of ``v**2`` (what the variance of a weighted sum needs).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._arrays import plain_array, real_numbers
from fieldfit._typing import FloatArray, LabelMatrix
from fieldfit.errors import InvalidInputError, Place
from fieldfit.models.base import example_weights

__all__ = [
    "MAX_LABELS",
    "Samples",
    "checked_labels",
    "checked_sample_weight",
    "column_names",
    "columns_by_name",
    "labels_seen",
    "require_joined",
    "require_labels",
    "require_some_label",
]

#: Kernels keep labels in one byte.
MAX_LABELS = 255


@dataclass(frozen=True)
class Samples:
    """Distinct rows, those without a missing label first.

    ``labels`` has shape (n_rows, n_variables); ``inverse`` says which row each given sample became
    (``-1`` for a sample without any label, which says nothing about the model); it is empty if that
    is not known.  ``first`` is the number of the first sample, where these are some of many.
    """

    labels: LabelMatrix
    weights: FloatArray
    squared_weights: FloatArray
    n_complete: int
    inverse: NDArray[np.int64]
    first: int = 0

    @classmethod
    def of(cls, labels: LabelMatrix, weights: FloatArray) -> Samples:
        """Put equal rows together."""
        distinct, inverse = np.unique(labels, axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        n_missing = (distinct < 0).sum(axis=1)
        # complete rows, then by the number of missing labels; rows without any label go last
        order = np.argsort(n_missing, kind="stable")
        kept = order[n_missing[order] < labels.shape[1]]
        place = np.full(len(distinct), -1)
        place[kept] = np.arange(len(kept))
        inverse = place[inverse]
        used = inverse >= 0
        return cls(
            labels=np.ascontiguousarray(distinct[kept]),
            weights=_sums(inverse[used], weights[used], len(kept)),
            squared_weights=_sums(inverse[used], weights[used] ** 2, len(kept)),
            n_complete=int((n_missing == 0).sum()),
            inverse=inverse,
        )

    @classmethod
    def none(cls, n_variables: int) -> Samples:
        """No samples at all, where sums over them are known."""
        nothing = np.zeros(0)
        labels = np.zeros((0, n_variables), dtype=np.int16)
        return cls(labels, nothing, nothing, 0, nothing.astype(np.int64))

    @classmethod
    def merged(cls, shards: Sequence[Samples]) -> Samples:
        """Samples of several shards as one."""
        if len(shards) == 1:
            return shards[0]
        found = cls.of(
            np.concatenate([shard.labels for shard in shards]),
            np.concatenate([shard.weights for shard in shards]),
        )
        squares = np.concatenate([shard.squared_weights for shard in shards])
        places = np.split(found.inverse, np.cumsum([shard.n_rows for shard in shards])[:-1])
        inverse = [
            np.append(place, -1)[shard.inverse]  # a sample without labels takes the last entry
            for place, shard in zip(places, shards, strict=True)
        ]
        return replace(
            found,
            squared_weights=_sums(found.inverse, squares, found.n_rows),
            inverse=np.concatenate(inverse),
        )

    @property
    def n_rows(self) -> int:
        return len(self.labels)

    @property
    def n_variables(self) -> int:
        return int(self.labels.shape[1])

    @property
    def max_missing(self) -> int:
        """Largest number of missing labels of a row (rows without any label do not count)."""
        return int((self.labels[-1] < 0).sum()) if self.n_rows else 0

    def take(self, rows: slice) -> Samples:
        """Some of the rows, as samples of their own."""
        begin, end, _ = rows.indices(self.n_rows)
        return Samples(
            labels=self.labels[begin:end],
            weights=self.weights[begin:end],
            squared_weights=self.squared_weights[begin:end],
            n_complete=min(max(self.n_complete - begin, 0), end - begin),
            inverse=np.arange(end - begin),
        )


def column_names(samples: Any) -> list[str] | None:
    """Names of the columns of a data frame, if it is one with text names."""
    columns = getattr(samples, "columns", None)
    if columns is None or not all(isinstance(name, str) for name in columns):
        return None
    return [str(name) for name in columns]


@contextmanager
def columns_by_name(samples: Any) -> Iterator[None]:
    """What is wrong inside with a column of samples is said with its name, if it has one."""
    try:
        yield
    except InvalidInputError as error:
        names = column_names(samples)
        if error.place is None or error.place.column is None or names is None:
            raise
        place = replace(error.place, name=names[error.place.column])
        raise type(error)(error.requirement, place) from None


def checked_labels(samples: Any, values: tuple[int, ...] | None = None) -> LabelMatrix:
    """Labels ``0..K-1`` with ``-1`` for missing (NaN or ``None``, and -1 unless it is a value).

    ``values`` are the observable values in the order of their labels; ``None`` means that the
    samples are labels already.
    """
    array = _numbers(samples)
    missing = np.isnan(array) if array.dtype.kind == "f" else np.zeros(array.shape, dtype=bool)
    if values is None or -1 not in values:
        missing |= array == -1
    labels = np.full(array.shape, -1, dtype=np.int16)
    allowed = missing.copy()
    if values is None:
        fine = (array >= 0) & (array < MAX_LABELS)
        if array.dtype.kind == "f":
            fine &= array == np.floor(array)
        labels[fine] = array[fine]
        allowed |= fine
        wanted = f"integers 0..{MAX_LABELS - 1}, -1 or NaN where missing"
    else:
        for label, value in enumerate(values):
            equal = array == value
            labels[equal] = label
            allowed |= equal
        hint = "NaN" if -1 in values else "-1 or NaN"
        wanted = f"{' or '.join(map(str, values))}, {hint} where missing"
    if not allowed.all():
        row, column = np.argwhere(~allowed)[0]
        raise InvalidInputError(
            f"must be {wanted}, got {array[row, column].item()!r}",
            Place("samples", int(row), column=int(column)),
        )
    labels[missing] = -1
    return labels


def require_labels(labels: LabelMatrix, n_labels: int) -> None:
    """Refuse labels that a model does not have."""
    if labels.max() >= n_labels:
        row, column = np.argwhere(labels >= n_labels)[0]
        raise InvalidInputError(
            f"must have labels 0..{n_labels - 1}, got {labels[row, column]}",
            Place("samples", int(row), column=int(column)),
        )


def checked_sample_weight(weight: ArrayLike | None, n_samples: int) -> FloatArray:
    """One finite factor of at least 0 for each sample, not all 0."""
    if weight is None:
        return np.ones(n_samples)
    found = example_weights(weight, n_samples)
    assert found is not None
    return found


def _sums(places: NDArray[np.int64], values: FloatArray, n_places: int) -> FloatArray:
    return np.bincount(places, values, minlength=n_places).astype(np.float64)


def _numbers(samples: Any) -> NDArray[Any]:
    array = plain_array("", samples, Place("samples"))
    if array.ndim != 2:
        raise InvalidInputError(
            f"must have two axes (samples, variables), got shape {array.shape}", Place("samples")
        )
    if array.size == 0:
        raise InvalidInputError(
            f"must have at least one row and one column, got shape {array.shape}", Place("samples")
        )
    if array.dtype.kind == "b":
        return array.astype(np.int64)
    if array.dtype.kind in "iuf":
        return array
    if array.dtype.kind == "O":  # of a table with missing entries
        return real_numbers("", array, Place("samples"))
    raise InvalidInputError(f"must be numbers, got dtype {array.dtype}", Place("samples"))


def labels_seen(labels: LabelMatrix, n_labels: int) -> NDArray[np.bool_]:
    """Which labels each column has, shape (n_variables, n_labels)."""
    counts = [np.bincount(column + 1, minlength=n_labels + 1) for column in labels.T]
    return np.array(counts)[:, 1:] > 0  # a missing label is in the first place


def require_some_label(seen: NDArray[np.bool_]) -> None:
    """Refuse samples in which everything is missing."""
    if not seen.any():
        raise InvalidInputError("must hold at least one label, got none", Place("samples"))


def require_joined(seen: NDArray[np.bool_], edges: Any) -> None:
    """Refuse columns without a single value, unless edges say that hidden variables are meant."""
    hidden = np.flatnonzero(~seen.any(axis=1))
    if len(hidden) and edges is None:
        raise InvalidInputError(
            "must have a label in every column unless edges are given (latent variables), got none",
            Place("samples", column=int(hidden[0])),
        )
