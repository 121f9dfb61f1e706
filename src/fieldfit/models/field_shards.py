"""Grids and graphs as arrays of a shard: how examples with features are stored and taken out again.

Features keep the type that they were given in, so pictures of bytes take a byte; they become
doubles when a part is made of them, as they do in memory.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import LabelArray
from fieldfit.errors import InvalidInputError, Place
from fieldfit.graph.ragged import offsets_of
from fieldfit.io._container import TYPES
from fieldfit.io.stored import Stored
from fieldfit.models.base import are_log_probabilities, checked_labels, count_labels
from fieldfit.shards.writing import Chunks, ShardCoder

__all__ = ["FieldCoder", "stored_graphs", "stored_grids", "stored_labels"]


class FieldCoder(ShardCoder):
    """Gathers examples of a `FactorGraphCRF`, which checks them."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator
        self.n_features: int | None = None
        self._types = estimator._type_coder()
        self._labels_seen: set[int] = set()
        self._are_log_probabilities = True
        self._reset()

    def _reset(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._labels: list[LabelArray] = []
        self._weights: list[float] = []
        self._is_weighted = False
        self.n_examples = self.n_variables = self.n_edges = self.n_missing = 0

    def measure(self, index: int, x: Any) -> int:
        size = self.estimator._measure(index, x)
        return int(size.n_variables + size.n_edges)

    def add(self, index: int, x: Any, y: Any, weight: Any) -> None:
        estimator = self.estimator
        size = estimator._measure(index, x)
        n_labels = getattr(estimator, "n_labels_", estimator.n_labels)
        labels = checked_labels(Place("Y", index), y, size.shape, n_labels, estimator.ignore_label)
        row = estimator._stored_example(index, x, self)
        self._are_log_probabilities &= are_log_probabilities(row["features"])
        self._rows.append(row)
        self._labels.append(labels)
        self._labels_seen.update(np.unique(labels).tolist())
        self._is_weighted |= weight is not None
        self._weights.append(1.0 if weight is None else weight)
        self.n_examples += 1
        self.n_variables += len(labels)
        self.n_edges += size.n_edges
        self.n_missing += int((labels < 0).sum())

    def take(self) -> dict[str, NDArray[Any]]:
        rows = self._rows
        counts = [len(labels) for labels in self._labels]
        arrays: dict[str, NDArray[Any]] = {
            "variable_offsets": offsets_of(counts),
            "labels": np.concatenate(self._labels),
            **_packed_features([row["features"] for row in rows]),
        }
        if self._is_weighted:
            arrays["example_weights"] = np.array(self._weights)
        if "shape" in rows[0]:
            arrays["shapes"] = np.array([row["shape"] for row in rows], dtype=np.int64)
        else:
            for name, kind in self.types().items():
                given = [row["factors"].get(name) for row in rows]
                arrays |= _packed_factors(name, kind.arity, kind.n_features, given)
        self._reset()
        return arrays

    def types(self) -> dict[str, Any]:
        """Types of factors that examples have shown so far; grids have none of their own."""
        return {} if self._types is None else dict(self._types.types())

    @property
    def version(self) -> int:
        """Readers of the first version know edges only, and would leave out all other factors."""
        return 2 if set(self.types()) - {"edges"} else 1

    def model(self, shards: Chunks) -> Stored:
        seen = np.array(sorted(self._labels_seen), dtype=np.int32)
        n_labels = getattr(self.estimator, "n_labels_", None)  # of a fitted model
        types = self.types()
        numbers: dict[str, Any] = {
            "n_labels": n_labels or count_labels([seen], self.estimator.n_labels),
            "n_features_in": self.n_features,
            "n_edge_features": types["edges"].n_features if "edges" in types else 0,
            "log_probabilities": self._are_log_probabilities,
        }
        if self._types is not None:
            self._types.require_names()
        if self._types is not None and list(types) != ["edges"]:
            self._types.require_affordable(numbers["n_labels"])
            # the form of tables is for a fit to choose, like that of edges
            numbers["factor_scopes"] = [
                [name, kind.arity, kind.n_features] for name, kind in types.items()
            ]
        return Stored({}, numbers)

    # -- called by the estimator while it checks an example --------------------------------

    def require_features(self, index: int, features: Any) -> None:
        """Refuse another number of features than the first example has, and what is not finite."""
        values = features.data if hasattr(features, "tocsr") else features
        if not np.isfinite(values).all():
            raise InvalidInputError(
                "features must be finite, got NaN or infinity", Place("X", index)
            )
        if self.n_features is None:
            self.n_features = int(features.shape[1])
        if features.shape[1] != self.n_features:
            raise InvalidInputError(
                f"there must be {self.n_features} features as in the first example, got "
                f"{features.shape[1]}",
                Place("X", index),
            )

    def require_factors(self, index: int, factors: dict[str, Any]) -> None:
        """Refuse another arity or number of features than the first example of a type has."""
        assert self._types is not None
        self._types.see(factors)
        self._types.require(factors, Place("X", index))


def _packed_factors(
    name: str, arity: int, n_features: int, given: list[Any]
) -> dict[str, NDArray[Any]]:
    """Factors of one type of all examples; ``None`` or no scopes where an example has none."""
    own = [() if one is None else one.scopes for one in given]
    prefix = _prefix(name)
    empty = np.zeros((0, arity), dtype=np.int64)
    arrays: dict[str, NDArray[Any]] = {
        f"{prefix}s": np.concatenate([empty, *(one for one in own if len(one))]),
        f"{prefix}_offsets": offsets_of([len(one) for one in own]),
    }
    if n_features:
        rows = [one.features for one in given if one is not None and one.features is not None]
        arrays[f"{prefix}_features"] = np.concatenate([np.zeros((0, n_features)), *rows])
    return arrays


def _prefix(name: str) -> str:
    """Of the names of a type's arrays: ``edges``, ``edge_offsets``; ``factor NAME_offsets``."""
    return "edge" if name == "edges" else f"factor {name} scope"


def _packed_features(features: list[Any]) -> dict[str, NDArray[Any]]:
    """Rows of all examples: one dense array, or the three arrays of a CSR matrix."""
    if not any(hasattr(one, "tocsr") for one in features):
        types = {one.dtype for one in features}
        is_plain = len(types) == 1 and next(iter(types)).name in TYPES
        return {"features": np.concatenate(features, dtype=None if is_plain else np.float64)}
    from scipy.sparse import vstack

    rows = vstack(features, format="csr")
    return {
        "feature_indptr": rows.indptr.astype(np.int64),
        "feature_indices": rows.indices,
        "feature_data": rows.data.astype(np.float64),
    }


# -- from the arrays of a shard to examples ------------------------------------------------


def stored_labels(stored: Stored, n_labels: int) -> list[LabelArray]:
    """Labels of each example."""
    offsets = _offsets(stored)
    flat = stored.indices("labels", (int(offsets[-1]),), -1, n_labels - 1)
    return np.split(flat, offsets[1:-1])


def stored_grids(stored: Stored, n_features: int) -> list[Any]:
    """Grids ``(height, width, features)``."""
    offsets = _offsets(stored)
    shapes = stored.indices("shapes", (len(offsets) - 1, 2), 1, int(offsets[-1]))
    if not np.array_equal(shapes.prod(axis=1), np.diff(offsets)):
        stored.offsets("shapes", -1)  # refuses
    features = _dense(stored, int(offsets[-1]), n_features)
    rows = np.split(features, offsets[1:-1])
    return [
        one.reshape(*shape, n_features) for one, shape in zip(rows, shapes.tolist(), strict=True)
    ]


def stored_graphs(stored: Stored, n_features: int) -> list[Any]:
    """Graphs ``(node_features, factors)`` with factors by the name of their type."""
    offsets = _offsets(stored)
    n_nodes = int(offsets[-1])
    if "features" in stored.arrays:
        nodes: list[Any] = np.split(_dense(stored, n_nodes, n_features), offsets[1:-1])
    else:
        rows = _sparse(stored, n_nodes, n_features)
        nodes = [rows[a:b] for a, b in pairwise(offsets.tolist())]
    factors = [dict[str, Any]() for _ in nodes]
    for name in _stored_types(stored):
        for own, found in zip(factors, _stored_factors(stored, name, n_nodes), strict=True):
            own[name] = found
    return list(zip(nodes, factors, strict=True))


def _stored_types(stored: Stored) -> list[str]:
    """Names of the types whose factors a shard holds."""
    begin, end = "factor ", " scopes"
    others = [
        name.removeprefix(begin).removesuffix(end)
        for name in stored.arrays
        if name.startswith(begin) and name.endswith(end)
    ]
    return [*(["edges"] if "edges" in stored.arrays else []), *others]


def _stored_factors(stored: Stored, name: str, n_nodes: int) -> list[tuple[Any, Any]]:
    """Scopes of each example, and their features or ``None``."""
    prefix = _prefix(name)
    scopes = stored.array(f"{prefix}s", (None, None), "i")
    stored.indices(f"{prefix}s", scopes.shape, 0, n_nodes - 1)
    offsets = stored.offsets(f"{prefix}_offsets", len(scopes))
    split = np.split(scopes, offsets[1:-1])
    if f"{prefix}_features" not in stored.arrays:
        return [(one, None) for one in split]
    features = stored.array(f"{prefix}_features", (len(scopes), None))
    return list(zip(split, np.split(features, offsets[1:-1]), strict=True))


def _offsets(stored: Stored) -> NDArray[Any]:
    return stored.offsets("variable_offsets", stored.integer("n_variables", 1))


def _dense(stored: Stored, n_rows: int, n_features: int) -> NDArray[Any]:
    kind = stored.arrays["features"].dtype.kind if "features" in stored.arrays else "f"
    if kind == "b":
        return stored.arrays["features"].reshape(n_rows, n_features)
    return stored.array("features", (n_rows, n_features), "i" if kind in "iu" else "f")


def _sparse(stored: Stored, n_rows: int, n_features: int) -> Any:
    from scipy.sparse import csr_matrix

    data = stored.array("feature_data", (None,))
    indptr = stored.offsets("feature_indptr", len(data))
    indices = stored.indices("feature_indices", (len(data),), 0, n_features - 1)
    return csr_matrix((data, indices, indptr), shape=(n_rows, n_features))
