"""Matchings with features on their edges: NumPy archives and tables of edges (CSV), plain or gzip.

An archive (``.npz``) holds

* ``features`` ``(M, n, m, K)``, or ``(N, K)`` with all edges of all examples, row by row, and then
  ``shapes`` ``(M, 2)``, the numbers of rows and columns of each example;
* ``partners`` ``(M, n)`` (flat if there are ``shapes``): the partner of each row, -1 for none; or
  ``matched``, 0 or 1 for each edge, where there may be several.

Edges with a feature that is not a number do not exist.

A table has a first line of names and then one edge on each line::

    example,row,column,matched,first feature,second feature,...

``matched`` is 0 or 1.  Rows and columns have any names, counted in the order in which they come;
edges that are not listed do not exist.  In a general graph both ends are nodes of one set, and an
edge is listed once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import BoolArray, FloatArray
from fieldfit._validation import shown
from fieldfit.errors import FileFormatError
from fieldfit.io._archive import opened_archive
from fieldfit.io._text import Source, read_bytes
from fieldfit.io.samples import csv_rows

__all__ = ["MatchingExamples", "read_matchings"]


_ENDS = ("example", "row", "column")
_ZIP = b"PK\x03\x04"


@dataclass(frozen=True)
class MatchingExamples:
    """Features ``(n, m, K)`` of each example, its edges (``None`` if not asked for), and names.

    ``features`` are NaN where there is no edge; matrices of a general graph are symmetric.
    """

    features: list[FloatArray]
    matched: list[BoolArray] | None
    places: list[str]
    feature_names: tuple[str, ...]
    names: list[str] = field(default_factory=list)
    row_names: list[list[str]] = field(default_factory=list)
    column_names: list[list[str]] = field(default_factory=list)


def read_matchings(
    source: Source, *, general: bool = False, with_labels: bool = True
) -> MatchingExamples:
    r"""Read an archive or a table, whichever it is.

    Examples
    --------
    >>> import io
    >>> table = b"example,row,column,matched,age\n0,a,x,1,0.5\n0,a,y,0,2\n0,b,y,1,1\n"
    >>> found = read_matchings(io.BytesIO(table))
    >>> found.features[0][..., 0].tolist(), found.matched[0].tolist()
    ([[0.5, 2.0], [nan, 1.0]], [[True, False], [False, True]])
    """
    name, data = read_bytes(source)
    if data[:4] == _ZIP:
        return _read_archive(name, data, general, with_labels)
    return _read_table(name, data, general, with_labels)


# -- archives -----------------------------------------------------------------------------


def _read_archive(name: str, data: bytes, general: bool, with_labels: bool) -> MatchingExamples:
    with opened_archive(name, data) as archive:
        arrays = {key: archive[key] for key in archive.files}
    if "features" not in arrays:
        raise FileFormatError(
            f"{name}: expected the array 'features', found {', '.join(sorted(arrays)) or 'nothing'}"
        )
    values = arrays["features"]
    if values.dtype.kind not in "biuf":
        raise FileFormatError(
            f"{name}: expected numbers as 'features', found an array of {values.dtype}"
        )
    shapes = _shapes(name, values, arrays.get("shapes"))
    ends = np.cumsum([n * m for n, m in shapes])[:-1]
    flat = values.astype(np.float64).reshape(-1, values.shape[-1])
    features = [
        part.reshape(n, m, -1)
        for part, (n, m) in zip(np.split(flat, ends), shapes, strict=True)
    ]  # fmt: skip
    matched = _matched(name, arrays, shapes, general) if with_labels else None
    return MatchingExamples(
        features=features,
        matched=matched,
        places=[f"{name}, example {index}" for index in range(len(shapes))],
        feature_names=tuple(f"feature {k}" for k in range(values.shape[-1])),
        names=[str(index) for index in range(len(shapes))],
        row_names=[[str(row) for row in range(n)] for n, _ in shapes],
        column_names=[[str(column) for column in range(m)] for _, m in shapes],
    )


def _shapes(name: str, features: NDArray[Any], given: NDArray[Any] | None) -> list[tuple[int, int]]:
    if given is None:
        if features.ndim != 4 or 0 in features.shape:
            raise FileFormatError(
                f"{name}: expected 'features' of shape (examples, rows, columns, features), none "
                f"of them 0, or (edges, features) with 'shapes', found {features.shape}"
            )
        return [(features.shape[1], features.shape[2])] * features.shape[0]
    if given.ndim != 2 or given.shape[1] != 2 or given.dtype.kind not in "iu" or not len(given):
        raise FileFormatError(
            f"{name}: expected 'shapes' of two integers for each example, found {given.shape} of "
            f"{given.dtype}"
        )
    shapes = [(int(n), int(m)) for n, m in given]
    n_edges = sum(n * m for n, m in shapes)
    if min(min(pair) for pair in shapes) < 1 or features.ndim != 2 or len(features) != n_edges:
        raise FileFormatError(
            f"{name}: expected 'features' of shape ({n_edges}, features) by its 'shapes', found "
            f"{features.shape}"
        )
    return shapes


def _matched(
    name: str, arrays: dict[str, NDArray[Any]], shapes: list[tuple[int, int]], general: bool
) -> list[BoolArray]:
    if "matched" in arrays:
        given = arrays["matched"]
        if given.size != sum(n * m for n, m in shapes) or not np.isin(given, (0, 1)).all():
            raise FileFormatError(
                f"{name}: expected 'matched' with 0 or 1 for each edge, found {given.shape} of "
                f"{given.dtype}"
            )
        ends = np.cumsum([n * m for n, m in shapes])[:-1]
        parts = np.split(given.reshape(-1).astype(bool), ends)
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
    if "partners" not in arrays:
        raise FileFormatError(
            f"{name}: expected the array 'partners' or 'matched', found {', '.join(sorted(arrays))}"
        )
    given = arrays["partners"]
    n_rows = sum(n for n, _ in shapes)
    if given.size != n_rows or given.dtype.kind not in "iu":
        raise FileFormatError(
            f"{name}: expected 'partners' with an integer for each of {n_rows} rows, found "
            f"{given.shape} of {given.dtype}"
        )
    found = []
    rows = np.split(given.reshape(-1).astype(np.int64), np.cumsum([n for n, _ in shapes])[:-1])
    for index, (partners, shape) in enumerate(zip(rows, shapes, strict=True)):
        if ((partners < -1) | (partners >= shape[1])).any():
            row = int(np.argmax((partners < -1) | (partners >= shape[1])))
            raise FileFormatError(
                f"{name}, example {index}: expected the partner of row {row} below {shape[1]}, or "
                f"-1, found {partners[row]}"
            )
        matrix = np.zeros(shape, dtype=np.bool_)
        has_one = np.flatnonzero(partners >= 0)
        matrix[has_one, partners[has_one]] = True
        if general and not np.array_equal(matrix, matrix.T):
            raise FileFormatError(
                f"{name}, example {index}: expected partners that name each other in 'partners'"
            )
        found.append(matrix)
    return found


# -- tables -------------------------------------------------------------------------------


class _Edges:
    """The edges of one example while they are read."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.rows: dict[str, int] = {}
        self.columns: dict[str, int] = {}
        self.values: dict[tuple[int, int], list[float]] = {}
        self.matched: list[tuple[int, int]] = []


def _read_table(name: str, data: bytes, general: bool, with_labels: bool) -> MatchingExamples:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{name}: expected text in UTF-8, found {error}") from None
    header: list[str] | None = None
    examples: dict[str, _Edges] = {}
    feature_names: tuple[str, ...] = ()
    for line, row in csv_rows(name, text):
        entries = [entry.strip() for entry in row]
        if not any(entries):
            continue
        place = f"{name}, line {line}"
        if header is None:
            header = _header(place, entries, with_labels)
            feature_names = tuple(entry for entry in header if entry not in (*_ENDS, "matched"))
            continue
        if len(entries) != len(header):
            raise FileFormatError(f"{place}: expected {len(header)} values, found {len(entries)}")
        values = dict(zip(header, entries, strict=True))
        edges = examples.setdefault(values["example"], _Edges(line))
        _add_edge(place, values, feature_names, edges, general, with_labels)
    if header is None:
        raise FileFormatError(f"{name}: the file is empty, expected a table of edges")
    if not examples:
        raise FileFormatError(f"{name}: expected at least one edge after the names of columns")
    features, matched = [], []
    for edges in examples.values():
        columns = edges.rows if general else edges.columns
        array = np.full((len(edges.rows), len(columns), len(feature_names)), np.nan)
        used = np.zeros(array.shape[:2], dtype=np.bool_)
        for (i, j), numbers in edges.values.items():
            array[i, j] = numbers
            if general:
                array[j, i] = numbers
        for i, j in edges.matched:
            used[i, j] = True
            if general:
                used[j, i] = True
        features.append(array)
        matched.append(used)
    return MatchingExamples(
        features=features,
        matched=matched if with_labels else None,
        places=[
            f"{name}, example {shown(example)} from line {edges.line}"
            for example, edges in examples.items()
        ],
        feature_names=feature_names,
        names=list(examples),
        row_names=[list(edges.rows) for edges in examples.values()],
        column_names=[
            list(edges.rows if general else edges.columns) for edges in examples.values()
        ],
    )


def _header(place: str, entries: list[str], with_labels: bool) -> list[str]:
    wanted = (*_ENDS, "matched") if with_labels else _ENDS
    missing = [entry for entry in wanted if entry not in entries]
    if missing:
        raise FileFormatError(
            f"{place}: expected the columns {', '.join(wanted)} and features, without "
            f"{missing[0]!r} found {', '.join(entries)[:80]!r}"
        )
    if len(set(entries)) < len(entries):
        twice = next(entry for entry in entries if entries.count(entry) > 1)
        raise FileFormatError(f"{place}: the column {shown(twice)} is named twice")
    if not set(entries) - {*_ENDS, "matched"}:
        raise FileFormatError(f"{place}: expected at least one column of features, found none")
    return entries


def _add_edge(
    place: str,
    values: dict[str, str],
    feature_names: tuple[str, ...],
    edges: _Edges,
    general: bool,
    with_labels: bool,
) -> None:
    first, second = values["row"], values["column"]
    columns = edges.rows if general else edges.columns
    if general and first == second:
        raise FileFormatError(f"{place}: expected two different nodes, found {shown(first)} twice")
    i = edges.rows.setdefault(first, len(edges.rows))
    j = columns.setdefault(second, len(columns))
    if (i, j) in edges.values or (general and (j, i) in edges.values):
        raise FileFormatError(
            f"{place}: expected every edge once, found that of {shown(first)} and {shown(second)} "
            "again"
        )
    numbers = []
    for name in feature_names:
        try:
            number = float(values[name].replace("_", "x"))  # Python reads 1_000 as a number
        except ValueError:
            number = np.nan
        if not np.isfinite(number):
            raise FileFormatError(
                f"{place}: expected a finite number in column {shown(name)}, found "
                f"{shown(values[name])}"
            )
        numbers.append(number)
    edges.values[i, j] = numbers
    if with_labels:
        if values["matched"] not in ("0", "1"):
            raise FileFormatError(
                f"{place}: expected 0 or 1 in column 'matched', found {shown(values['matched'])}"
            )
        if values["matched"] == "1":
            edges.matched.append((i, j))
