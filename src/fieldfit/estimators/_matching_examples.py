"""Checks of examples: features of edges, numbers of partners, and that matchings are matchings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.matching_polytope import Capacities, Kind, MatchingPolytope
from fieldfit.errors import InvalidInputError

__all__ = ["agreement", "checked_capacities", "checked_features", "checked_matching"]

FloatArray = NDArray[np.float64]


def agreement(
    found: Sequence[NDArray[np.int32]], given: Sequence[Any], has_capacities: bool
) -> float:
    """Share of rows with the given partner; F1 of the edges if there are capacities."""
    n_right = n_all = 0
    for one, y in zip(found, given, strict=True):
        if has_capacities:
            n_right += 2 * int((one * np.asarray(y)).sum())
            n_all += int(one.sum() + np.asarray(y).sum())
        else:
            n_right += int((one == np.asarray(y)).sum())
            n_all += len(one)
    return n_right / max(n_all, 1)


def checked_features(name: str, x: Any, kind: Kind, perfect: bool) -> FloatArray:
    """Features ``(n, m, K)``, NaN where there is no edge."""
    array = np.asarray(x, dtype=np.float64)
    if array.ndim != 3:
        raise InvalidInputError(f"{name} must have shape (n, m, n_features), got {array.shape}")
    if np.isinf(array[~np.isnan(array).any(axis=2)]).any():
        raise InvalidInputError(f"{name} must be finite, or NaN where there is no edge, got inf")
    if kind == "bipartite":
        return array
    n = len(array)
    is_square = array.shape[1] == n
    off = ~np.eye(n, dtype=bool)
    if not is_square or not np.array_equal(
        array[off], array.transpose(1, 0, 2)[off], equal_nan=True
    ):
        raise InvalidInputError(
            f"{name} must be square and symmetric for kind='general', got shape {array.shape}"
        )
    if perfect and n % 2:
        raise InvalidInputError(
            f"{name} must have an even number of nodes for perfect matchings, got {n}"
        )
    return array


def checked_capacities(
    index: int, given: Any, shape: tuple[int, ...], kind: Kind
) -> Capacities | None:
    """Numbers of partners of an example's rows and columns; ``None`` for one each."""
    if given is None:
        return None
    if kind == "general":
        raise InvalidInputError("capacities must be None for kind='general'")
    pair = given if isinstance(given, (tuple, list)) else (given, given)
    found = []
    for side, count in zip(pair, shape, strict=True):
        array = np.asarray(side)
        if array.dtype.kind not in "iu" or array.shape not in ((), (count,)):
            raise InvalidInputError(
                f"capacities[{index}] must be integers, {shape[0]} of rows and {shape[1]} of "
                f"columns, got shape {array.shape} of {array.dtype}"
            )
        found.append(np.array(np.broadcast_to(array, (count,)), dtype=np.int64))
    return found[0], found[1]


def checked_matching(name: str, y: Any, polytope: MatchingPolytope) -> FloatArray:
    """The edges (0 or 1) of a matching: partners of rows, or a matrix if there are capacities."""
    if polytope.capacities is not None:
        return _edges_of_matrix(name, y, polytope)
    return _edges_of_partners(name, y, polytope)


def _edges_of_matrix(name: str, y: Any, polytope: MatchingPolytope) -> FloatArray:
    matrix = np.asarray(y)
    if matrix.shape != polytope.shape or not np.isin(matrix, (0, 1)).all():
        raise InvalidInputError(
            f"{name} must be a matrix of 0 and 1 of shape {polytope.shape} with capacities, got "
            f"shape {matrix.shape} of {matrix.dtype}"
        )
    edges = polytope.values(matrix.astype(np.float64))
    if edges.sum() != matrix.sum():
        raise InvalidInputError(f"{name} must use edges that X has, got one that does not exist")
    assert polytope.capacities is not None
    capacities = np.concatenate(polytope.capacities)
    degrees = polytope.degrees(edges)
    wrong = degrees != capacities if polytope.perfect else degrees > capacities
    if wrong.any():
        node = int(np.argmax(wrong))
        n_rows = polytope.shape[0]
        who = f"row {node}" if node < n_rows else f"column {node - n_rows}"
        demand = "exactly" if polytope.perfect else "at most"
        raise InvalidInputError(
            f"{name} must have {demand} {capacities[node]} partners of {who}, "
            f"got {int(degrees[node])}"
        )
    return edges


def _edges_of_partners(name: str, y: Any, polytope: MatchingPolytope) -> FloatArray:
    partners = np.asarray(y)
    n_rows, n_columns = polytope.shape
    if partners.shape != (n_rows,) or partners.dtype.kind not in "iu":
        raise InvalidInputError(
            f"{name} must be {n_rows} integers, the partner of each row, got shape "
            f"{partners.shape} of {partners.dtype}"
        )
    if ((partners < -1) | (partners >= n_columns)).any():
        row = int(np.argmax((partners < -1) | (partners >= n_columns)))
        raise InvalidInputError(
            f"{name}[{row}] must be a column below {n_columns} or -1, got {partners[row]}"
        )
    edges = polytope.of_partners(partners)
    n_used = int((partners >= 0).sum())
    if polytope.kind == "general":
        matched = np.flatnonzero(partners >= 0)
        if (partners[partners[matched]] != matched).any():
            raise InvalidInputError(f"{name} must be mutual: the partner of i's partner is i")
        n_used //= 2
    elif len(np.unique(partners[partners >= 0])) != n_used:
        raise InvalidInputError(f"{name} must name no column twice, got {partners.tolist()}")
    if int(edges.sum()) != n_used:
        raise InvalidInputError(f"{name} must use edges that X has, got one that does not exist")
    must = np.ones(polytope.n_nodes, dtype=bool)
    must[polytope.alone] = False
    lonely = np.flatnonzero(must & (polytope.degrees(edges) != 1.0))
    if len(lonely):
        raise InvalidInputError(
            f"{name} must give everybody a partner, node {int(lonely[0])} has none"
        )
    return edges
