"""Graphs with features and labels as JSON, one example on each line.

    {"nodes": [[0.5, 1], [0.1, 2]], "edges": [[0, 1]], "edge_features": [[0.3]], "labels": [0, 1]}

``nodes`` has a list of features for each node, ``edges`` pairs of nodes counted from 0;
``edge_features`` (one list for each edge) may be left out.  Factors of more nodes stand under the
names of their types, as lists of nodes or, where they have features, as an object:

    {"nodes": ..., "factors": {"triples": [[0, 1, 2]],
                               "squares": {"scopes": [[0, 1, 2, 3]], "features": [[0.5]]}}}

``edges`` may then be left out.  A label that is missing is ``null`` or -1.  Blank lines are
skipped.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import LabelArray
from fieldfit._validation import shown
from fieldfit.errors import FileFormatError
from fieldfit.io._text import Source, read_bytes

__all__ = ["LabelledGraphs", "read_graphs"]


_KEYS = ("nodes", "edges", "edge_features", "factors", "labels")
_FACTOR_KEYS = ("scopes", "features")
#: What has the features under a key.
_OWNERS = {"edge_features": "edge", "features": "factor"}


@dataclass(frozen=True)
class LabelledGraphs:
    """Graphs as `GraphCRF` takes them, their labels (``None`` if not asked for) and places."""

    graphs: list[tuple[Any, ...]]
    labels: list[LabelArray] | None
    places: list[str]


def read_graphs(source: Source, *, with_labels: bool = True) -> LabelledGraphs:
    """Read a file of graphs, plain or gzip."""
    name, data = read_bytes(source)
    graphs, labels, places = [], [], []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        place = f"{name}, line {number}"
        example = _example(place, line)
        nodes = _numbers(place, example, "nodes", np.float64)
        graphs.append(_graph(place, example, nodes))
        places.append(place)
        if with_labels:
            labels.append(_labels(place, example, len(nodes)))
    if not graphs:
        raise FileFormatError(f"{name}: the file is empty, expected one JSON object on each line")
    return LabelledGraphs(graphs, labels if with_labels else None, places)


def _graph(place: str, example: dict[str, Any], nodes: NDArray[Any]) -> tuple[Any, ...]:
    """Features of nodes, and edges with their features, or factors by the name of their type."""
    if "factors" in example and "edges" not in example and "edge_features" not in example:
        return nodes, _factors(place, example["factors"])
    edges = _numbers(place, example, "edges", np.int64, width=2)
    features = None
    if "edge_features" in example:
        features = _numbers(place, example, "edge_features", np.float64, length=len(edges))
    if "factors" in example:
        return nodes, {"edges": (edges, features), **_factors(place, example["factors"])}
    return (nodes, edges) if features is None else (nodes, edges, features)


def _factors(place: str, given: Any) -> dict[str, Any]:
    """Scopes by the name of their type, or pairs of scopes and features."""
    wanted = "'factors' to be an object from the names of types to lists of nodes"
    if not isinstance(given, dict):
        raise FileFormatError(f"{place}: expected {wanted}, found {shown(given)}")
    if "edges" in given:
        raise FileFormatError(
            f"{place}: expected 'edges' beside 'factors', found them as a type of 'factors'"
        )
    found: dict[str, Any] = {}
    for name, own in given.items():
        if not isinstance(own, dict):
            found[name] = _numbers(place, {name: own}, name, np.int64)
            continue
        unknown = sorted(set(own) - set(_FACTOR_KEYS))
        if unknown:
            raise FileFormatError(
                f"{place}: expected the keys {', '.join(_FACTOR_KEYS)} of the type {name!r}, "
                f"found {shown(unknown[0])}"
            )
        scopes = _numbers(place, own, "scopes", np.int64)
        features = None
        if "features" in own:
            features = _numbers(place, own, "features", np.float64, length=len(scopes))
        found[name] = (scopes, features)
    return found


def _example(place: str, line: bytes) -> dict[str, Any]:
    try:
        example = json.loads(line)
    except (RecursionError, ValueError) as error:  # bad text encoding is one too
        raise FileFormatError(f"{place}: expected a JSON object, found {error}") from None
    if not isinstance(example, dict):
        raise FileFormatError(f"{place}: expected a JSON object, found {type(example).__name__}")
    unknown = sorted(set(example) - set(_KEYS))
    if unknown:
        raise FileFormatError(
            f"{place}: expected the keys {', '.join(_KEYS)}, found {shown(unknown[0])}"
        )
    return example


def _numbers(
    place: str,
    example: dict[str, Any],
    key: str,
    dtype: type[Any],
    width: int | None = None,
    length: int | None = None,
) -> NDArray[Any]:
    """A list of equally long lists of numbers."""
    kind = "integers" if dtype is np.int64 else "numbers"
    wanted = f"{key!r} to be a list of lists of {width or 'equally many'} {kind}"
    if key not in example:
        raise FileFormatError(f"{place}: expected {wanted}, found no {key!r}")
    try:
        array = np.array(example[key])
    except (OverflowError, RecursionError, ValueError):
        raise FileFormatError(f"{place}: expected {wanted}, found another shape") from None
    if array.size == 0:
        array = np.zeros((len(array), width or 0), dtype=dtype)
    if array.ndim != 2 or (width is not None and array.shape[1] != width):
        raise FileFormatError(f"{place}: expected {wanted}, found shape {array.shape}")
    if array.dtype.kind not in ("iu" if dtype is np.int64 else "iuf"):
        raise FileFormatError(f"{place}: expected {wanted}, found other values")
    if length is not None and len(array) != length:
        raise FileFormatError(
            f"{place}: expected {key!r} to have {length} lists, one for each {_OWNERS[key]}, "
            f"found {len(array)}"
        )
    return array.astype(dtype)


def _labels(place: str, example: dict[str, Any], n_nodes: int) -> LabelArray:
    given = example.get("labels")
    if not isinstance(given, list) or len(given) != n_nodes:
        found = f"{len(given)}" if isinstance(given, list) else "none"
        raise FileFormatError(
            f"{place}: expected 'labels' to be a list of {n_nodes} labels, one for each node, "
            f"found {found}"
        )
    labels = [-1 if label is None else label for label in given]
    for label in labels:
        if not isinstance(label, int) or isinstance(label, bool) or not -1 <= label < 2**31:
            raise FileFormatError(
                f"{place}: expected labels to be integers of at least -1, found {shown(label)}"
            )
    return np.array(labels, dtype=np.int32)
