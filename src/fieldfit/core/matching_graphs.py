"""Models of small matchings as factor graphs, to look at and to compare with.

The tables of edge variables have ``2**degree`` entries, and all-different labels have a factor for
each pair; matchings of any size are better handled as matrices (`fieldfit.oracle.assignment`).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Potentials
from fieldfit.errors import InvalidInputError

__all__ = ["checked_weights", "matching_edges", "matching_graph"]

Kind = Literal["bipartite", "general"]
Encoding = Literal["edges", "labels"]


def matching_edges(weights: ArrayLike, kind: Kind = "bipartite") -> NDArray[np.int64]:
    """Row and column of each edge variable of `matching_graph`, shape ``(n_edges, 2)``."""
    array = checked_weights(weights, kind)
    allowed = array > -np.inf
    return np.argwhere(np.triu(allowed, 1) if kind == "general" else allowed)


def matching_graph(
    weights: ArrayLike,
    kind: Kind = "bipartite",
    encoding: Encoding = "edges",
    perfect: bool = True,
) -> tuple[FactorGraph, Potentials]:
    """A model whose labellings are the matchings of a graph, scored by their weights.

    Parameters
    ----------
    weights
        Matrix of log-weights, ``-inf`` for no edge; rows and columns are the two sides of a
        ``"bipartite"`` graph, or both are the nodes of a ``"general"`` one (symmetric, the diagonal
        is not used).
    encoding
        ``"edges"``: a binary variable for each edge, in the order of `matching_edges`, and a factor
        for each node.  ``"labels"``: a variable for each row, whose label is its column, and a
        factor for each pair (bipartite and perfect only, with at least as many columns as rows).
    perfect
        Everybody has a partner, of a rectangular matrix everybody on the smaller side.

    Examples
    --------
    >>> graph, potentials = matching_graph([[1.0, 2.0], [0.0, 5.0]])
    >>> graph.n_variables, potentials.score([1, 0, 0, 1])
    (4, 6.0)
    """
    array = checked_weights(weights, kind)
    if encoding == "labels":
        return _by_labels(array, kind, perfect)
    if encoding != "edges":
        raise InvalidInputError(f"encoding must be 'edges' or 'labels', got {encoding!r}")
    n, m = array.shape
    edges = matching_edges(array, kind)
    if kind == "general":
        required = [perfect] * n
        members = [np.flatnonzero((edges == node).any(axis=1)) for node in range(n)]
    else:
        required = [perfect and n <= m] * n + [perfect and m <= n] * m
        members = [np.flatnonzero(edges[:, 0] == row) for row in range(n)]
        members += [np.flatnonzero(edges[:, 1] == column) for column in range(m)]
    graph = FactorGraph([2] * len(edges), [tuple(scope.tolist()) for scope in members])
    unary = np.zeros((len(edges), 2))
    unary[:, 1] = array[edges[:, 0], edges[:, 1]]
    tables = [_node_table(len(scope), must) for scope, must in zip(members, required, strict=True)]
    return graph, Potentials(graph, unary if len(edges) else None, tables)


def checked_weights(
    weights: ArrayLike, kind: Kind = "bipartite", name: str = "weights"
) -> NDArray[np.float64]:
    """A matrix of numbers below +inf, symmetric (but for the diagonal) for a general graph."""
    if kind not in ("bipartite", "general"):
        raise InvalidInputError(f"kind must be 'bipartite' or 'general', got {kind!r}")
    array = np.asarray(weights)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"{name} must be a numeric matrix, got dtype {array.dtype} and shape {array.shape}"
        )
    array = np.ascontiguousarray(array, dtype=np.float64)
    if array.size and not array.max() < np.inf:
        row, column = np.argwhere(~(array < np.inf))[0]
        raise InvalidInputError(
            f"{name} must be below +inf (-inf is allowed), got {array[row, column]} "
            f"at ({row}, {column})"
        )
    if kind == "general":
        if array.shape[0] != array.shape[1]:
            raise InvalidInputError(f"{name} must be square, got shape {array.shape}")
        different = np.triu(array != array.T, 1)
        if different.any():
            row, column = np.argwhere(different)[0]
            raise InvalidInputError(
                f"{name} must be symmetric, got {array[row, column]} at ({row}, {column}) and "
                f"{array[column, row]} at ({column}, {row})"
            )
    return array


def _node_table(degree: int, required: bool) -> NDArray[np.float64]:
    """Zero where one variable is 1 (or none, unless required), otherwise ``-inf``."""
    if degree > 20:
        raise InvalidInputError(f"every node must have at most 20 edges, got {degree}")
    n_used = np.indices((2,) * degree).sum(axis=0) if degree else np.array(0)
    return np.where((n_used == 1) | ((n_used == 0) & (not required)), 0.0, -np.inf)


def _by_labels(
    weights: NDArray[np.float64], kind: Kind, perfect: bool
) -> tuple[FactorGraph, Potentials]:
    n, m = weights.shape
    if kind != "bipartite" or not perfect or n > m:
        raise InvalidInputError(
            "encoding 'labels' needs a perfect bipartite matching with at least as many columns as "
            f"rows, got kind {kind!r}, perfect {perfect} and shape {weights.shape}"
        )
    graph = FactorGraph.from_edges(n, np.argwhere(np.triu(np.ones((n, n)), 1)), m)
    table = np.where(np.eye(m, dtype=np.bool_), -np.inf, 0.0)
    return graph, Potentials(graph, weights, table if graph.n_factors else None)
