"""One example of a graph model, checked: features of nodes, and factors by the name of their type.

    (node_features, edges)
    (node_features, edges, edge_features)
    (node_features, {type: scopes, type: (scopes, features), ...})

The first two are the third with the only type ``"edges"``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fieldfit._arrays import integers, real_numbers
from fieldfit._typing import FloatArray
from fieldfit._validation import shown
from fieldfit.errors import InvalidInputError, Place
from fieldfit.graph.factor_graph import checked_pairs

__all__ = ["EDGES", "GraphExample", "Scopes", "read_graph_example", "require_type_name"]

#: The type whose factors are pairs.
EDGES = "edges"
#: Names of other blocks of weights.
_TAKEN = ("unary", "intercept")


class Scopes(NamedTuple):
    """Factors of one type: nodes ``(S, n)`` of each, and features ``(S, D)`` or ``None``."""

    scopes: NDArray[np.int64]
    features: FloatArray | None


class GraphExample(NamedTuple):
    """Features of nodes (dense or CSR), and factors by the name of their type."""

    nodes: Any
    factors: dict[str, Scopes]

    @property
    def n_nodes(self) -> int:
        return int(self.nodes.shape[0])

    def pairs(self) -> NDArray[np.int64]:
        """All pairs of nodes that a factor joins, for drawings."""
        found = [np.zeros((0, 2), dtype=np.int64)]
        for scopes, _ in self.factors.values():
            first, second = np.triu_indices(scopes.shape[1], k=1)
            found.append(np.stack([scopes[:, first], scopes[:, second]], axis=2).reshape(-1, 2))
        return np.concatenate(found)


def read_graph_example(index: int, x: Any) -> GraphExample:
    """Example ``index``; refuses what is none in one sentence."""
    place = Place("X", index)
    if not (isinstance(x, (tuple, list)) and len(x) in (2, 3)):
        raise InvalidInputError(
            "must be (node_features, edges), (node_features, edges, edge_features) or "
            f"(node_features, {{type: scopes}}), got {type(x).__name__}",
            place,
        )
    nodes = _checked_nodes(x[0], place)
    n_nodes = int(nodes.shape[0])
    if not isinstance(x[1], Mapping):
        given = (x[1], x[2] if len(x) == 3 else None)
        return GraphExample(nodes, {EDGES: _checked_type(EDGES, given, n_nodes, place)})
    if len(x) == 3:
        raise InvalidInputError(
            "features of factors must be in the dictionary, as {type: (scopes, features)}, got "
            f"a third entry {shown(x[2])}",
            place,
        )
    return GraphExample(
        nodes, {name: _checked_type(name, given, n_nodes, place) for name, given in x[1].items()}
    )


def require_type_name(name: Any, place: Place | None = None) -> None:
    """Refuse names of types that other blocks of weights have, or that cannot be told apart."""
    is_good = (
        isinstance(name, str)
        and name.strip() == name != ""
        and "," not in name
        and name not in _TAKEN
        and not name.endswith("_features")
        and not name.startswith("entropy of")
    )
    if not is_good:
        raise InvalidInputError(
            "types of factors must be texts without a comma, other than 'unary' and 'intercept', "
            f"that do not end with '_features' or begin with 'entropy of', got {shown(name)}",
            place,
        )


def _checked_nodes(given: Any, place: Place) -> Any:
    is_sparse = hasattr(given, "tocsr")
    nodes = given.tocsr() if is_sparse else real_numbers("node features", given, place)
    if nodes.ndim != 2 or nodes.shape[0] == 0:
        raise InvalidInputError(
            f"node features must have shape (N, F) with at least one node, got {nodes.shape}",
            place,
        )
    return nodes


def _checked_type(name: Any, given: Any, n_nodes: int, place: Place) -> Scopes:
    """Factors of one type: ``scopes`` (a list or an array), or a pair with their features."""
    require_type_name(name, place)
    has_features = isinstance(given, tuple) and len(given) == 2
    scopes, features = given if has_features else (given, None)
    if name == EDGES:
        checked = checked_pairs(scopes, n_nodes, place, "nodes").astype(np.int64)
    else:
        checked = _checked_scopes(name, scopes, n_nodes, place)
    return _with_features(name, checked, features, place)


def _checked_scopes(name: str, given: Any, n_nodes: int, place: Place) -> NDArray[np.int64]:
    what = f"scopes of {name!r}"
    scopes = integers(what, given, place)
    if scopes.size == 0:
        width = scopes.shape[1] if scopes.ndim == 2 and scopes.shape[1] >= 2 else 2
        return np.zeros((0, width), dtype=np.int64)
    if scopes.ndim != 2 or scopes.shape[1] < 2:
        raise InvalidInputError(
            f"{what} must be an array or a list of shape (n_factors, n_nodes) with at least 2 "
            f"nodes, or a pair of that and features, got shape {scopes.shape}",
            place,
        )
    outside = np.flatnonzero(((scopes < 0) | (scopes >= n_nodes)).any(axis=1))
    if len(outside):
        raise InvalidInputError(
            f"{what} must name nodes 0..{n_nodes - 1}, got {scopes[outside[0]].tolist()} at "
            f"{outside[0]}",
            place,
        )
    ordered = np.sort(scopes, axis=1)
    repeated = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    if len(repeated):
        raise InvalidInputError(
            f"{what} must join different nodes, got {scopes[repeated[0]].tolist()} at "
            f"{repeated[0]}",
            place,
        )
    return scopes.astype(np.int64)


def _with_features(name: str, scopes: NDArray[np.int64], given: Any, place: Place) -> Scopes:
    if given is None:
        return Scopes(scopes, None)
    what = "edge features" if name == EDGES else f"features of {name!r}"
    features = real_numbers(what, given, place)
    if not len(scopes) and features.size == 0:
        return Scopes(scopes, None)
    if features.ndim != 2 or features.shape[0] != len(scopes):
        raise InvalidInputError(
            f"{what} must have shape ({len(scopes)}, D), got {features.shape}", place
        )
    if not np.isfinite(features).all():
        raise InvalidInputError(f"{what} must be finite, got NaN or infinity", place)
    return Scopes(scopes, features)
