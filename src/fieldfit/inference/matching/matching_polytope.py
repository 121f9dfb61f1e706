"""The matching polytope with Bethe-like entropies, and small matchings as factor graphs.

A point has an entry ``t`` for each edge, ``1 - t`` for each edge, and for every node that may stay
alone (unmatched) the probability ``s`` that it does.  With ``rho`` the counting number of nodes,

    H(t) = - sum_e t log t - (1 - 2 rho) sum_e (1 - t) log (1 - t) - rho sum_i s log s

which is Bethe's entropy for ``rho = 1``: a node's belief is a distribution over its edges, an edge
is shared by two nodes.  It is concave over matchings for ``rho <= 1``.  For ``rho = 1/2`` it is
never below the true entropy (Shearer's inequality: every edge is in two nodes), so the surrogate of
the log-partition is an upper bound; for ``rho = 1`` and bipartite graphs it is a lower bound.

With *capacities* (several partners each, a b-matching) nothing is known of the joint behaviour of a
node's edges but their number, and only ``rho = 0`` is used: independent edges.  The entropy of a
distribution is never above the sum of the entropies of its parts, so the surrogate is an upper
bound.

References: Vontobel, "The Bethe permanent of a nonnegative matrix", IEEE Transactions on
Information Theory 59 (2013); Gurvits, "Unleashing the power of Schrijver's permanental inequality
with the help of the Bethe approximation" (2011); Tang et al. (AISTATS 2016) for ``rho``.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._arrays import plain_array
from fieldfit._typing import BoolArray, FloatArray
from fieldfit._validation import require_flag, require_number, require_one_of
from fieldfit.errors import InvalidInputError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.graph.ragged import offsets_of

__all__ = [
    "Capacities",
    "Kind",
    "MatchingPolytope",
    "checked_weights",
    "matching_edges",
    "matching_graph",
    "require_rho",
]

#: Largest difference of two entries that should be equal, relative to their size.
SYMMETRY = 1e-12

# -- Small matchings as factor graphs, to look at and to compare with ----------------------
# The tables of edge variables have ``2**degree`` entries, and all-different labels have a factor
# for each pair; matchings of any size are better handled as matrices
# (`fieldfit.inference.matching.assignment`).


Encoding = Literal["edges", "labels"]


def matching_edges(weights: ArrayLike, kind: Kind = "bipartite") -> NDArray[np.int64]:
    """Row and column of each edge variable of `matching_graph`, shape ``(n_edges, 2)``.

    Parameters
    ----------
    weights
        Matrix of log-weights, ``-inf`` for no edge.
    kind
        ``"bipartite"`` or ``"general"``.

    Returns
    -------
    array
        ``(n_edges, 2)``.

    Examples
    --------
    >>> matching_edges([[1.0, -np.inf], [0.0, 5.0]]).tolist()
    [[0, 0], [1, 0], [1, 1]]
    """
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
    kind
        ``"bipartite"`` or ``"general"``.

    Returns
    -------
    graph, potentials : FactorGraph, Potentials
        The model.

    Examples
    --------
    >>> graph, potentials = matching_graph([[1.0, 2.0], [0.0, 5.0]])
    >>> graph.n_variables, potentials.score([1, 0, 0, 1])
    (4, 6.0)
    """
    array = checked_weights(weights, kind)
    require_one_of("encoding", encoding, ("edges", "labels"))
    require_flag("perfect", perfect)
    if encoding == "labels":
        return _by_labels(array, kind, perfect)
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
    """A matrix of numbers below +inf, symmetric (but for the diagonal) for a general graph.

    Products of matrices differ in their last bits, by processor: two entries that should be equal
    may differ by rounding, and the one above the diagonal counts.
    """
    require_one_of("kind", kind, ("bipartite", "general"))
    array = plain_array(name, weights)
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
        finite = np.where(np.isfinite(array), array, 0.0)
        rounding = SYMMETRY * np.maximum(np.abs(finite), np.abs(finite.T))
        is_rounding = np.abs(finite - finite.T) <= rounding
        different = np.triu(~is_rounding | (np.isfinite(array) != np.isfinite(array.T)), 1)
        if different.any():
            row, column = np.argwhere(different)[0]
            raise InvalidInputError(
                f"{name} must be symmetric, got {array[row, column]} at ({row}, {column}) and "
                f"{array[column, row]} at ({column}, {row})"
            )
        array = np.where(np.tri(len(array), k=-1, dtype=np.bool_), array.T, array)
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


# -- The polytope --------------------------------------------------------------------------


Kind = Literal["bipartite", "general"]
#: Numbers of partners of all rows and of all columns.
Capacities = tuple[NDArray[np.int64], NDArray[np.int64]]


def require_rho(rho: float) -> float:
    """Refuse counting numbers for which the entropy is not concave."""
    require_number("rho", rho, at_least=0, at_most=1)
    return float(rho)


class MatchingPolytope:
    """The edges of one graph, and who may stay alone.

    Parameters
    ----------
    allowed
        Which edges there are: rows and columns of a ``"bipartite"`` graph, or the symmetric matrix
        of a ``"general"`` one (its diagonal is not used).
    perfect
        Everybody has a partner, of a rectangular matrix everybody on the smaller side.
    capacities
        Of a bipartite graph: how many partners everybody has (or may have, if not ``perfect``).
    kind
        ``"bipartite"`` or ``"general"``.

    Examples
    --------
    >>> MatchingPolytope(np.ones((2, 2), dtype=bool)).n_edges
    4
    """

    def __init__(
        self,
        allowed: BoolArray,
        kind: Kind = "bipartite",
        perfect: bool = True,
        capacities: Capacities | None = None,
    ) -> None:
        require_one_of("kind", kind, ("bipartite", "general"))
        require_flag("perfect", perfect)
        allowed = plain_array("allowed", allowed)
        if allowed.ndim != 2 or allowed.dtype.kind != "b":
            raise InvalidInputError(
                f"allowed must be a matrix of truth values, got dtype {allowed.dtype} and shape "
                f"{allowed.shape}"
            )
        self.kind, self.perfect, self.capacities = kind, perfect, capacities
        self.shape = allowed.shape
        used = np.triu(allowed, 1) if kind == "general" else allowed
        self.edges = np.argwhere(used)
        n_rows, n_columns = allowed.shape
        # nodes are numbered rows first; both ends of a general edge are rows
        shift = 0 if kind == "general" else n_rows
        self.ends = self.edges + np.array([0, shift])
        self.n_nodes = n_rows if kind == "general" else n_rows + n_columns
        may_be_alone = np.full(self.n_nodes, not perfect)
        if perfect and kind == "bipartite" and n_rows != n_columns:
            larger = slice(0, n_rows) if n_rows > n_columns else slice(n_rows, None)
            may_be_alone[larger] = True
        if capacities is not None:  # capacity that is left has no entropy
            may_be_alone[:] = False
        self.alone = np.flatnonzero(may_be_alone)

    @property
    def n_edges(self) -> int:
        return len(self.edges)

    @property
    def is_complete(self) -> bool:
        """Whether every edge exists."""
        n_rows, n_columns = self.shape
        n_all = n_rows * (n_rows - 1) // 2 if self.kind == "general" else n_rows * n_columns
        return bool(self.n_edges == n_all)

    def incident(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ends of edges around each node: offsets, and places ``side * n_edges + edge``."""
        nodes = self.ends.T.reshape(-1)
        order = np.argsort(nodes, kind="stable").astype(np.int64)
        counts = np.bincount(nodes, minlength=self.n_nodes)
        return offsets_of(counts), order

    def point(self, t: FloatArray) -> FloatArray:
        """The point whose edges have these probabilities."""
        met = self.degrees(t)
        return np.concatenate([t, 1.0 - t, np.maximum(1.0 - met[self.alone], 0.0)])

    def coefficients(self, rho: float) -> FloatArray:
        """``c`` of the entropy ``- sum c x log x``."""
        return np.concatenate(
            [
                np.ones(self.n_edges),
                np.full(self.n_edges, 1.0 - 2.0 * rho),
                np.full(len(self.alone), rho),
            ]
        )

    def edge_weights(self, slopes: FloatArray) -> tuple[FloatArray, float]:
        """A linear function of points as one weight for each edge, and a constant."""
        n = self.n_edges
        used, unused, unmatched = slopes[:n], slopes[n : 2 * n], slopes[2 * n :]
        cost = np.zeros(self.n_nodes)
        cost[self.alone] = unmatched
        weights = used - unused - cost[self.ends[:, 0]] - cost[self.ends[:, 1]]
        return weights, float(unused.sum() + unmatched.sum())

    def uniform_point(self) -> FloatArray:
        """All edges of a complete graph alike, no entry at its bound."""
        n_rows, n_columns = self.shape
        partners = n_rows - 1 if self.kind == "general" else max(n_rows, n_columns)
        return self.point(np.full(self.n_edges, 1.0 / (partners + (0 if self.perfect else 1))))

    def of_partners(self, partners: NDArray[np.integer]) -> FloatArray:
        """The edges (0 or 1) of a matching that is given by the partner of each row or node."""
        is_used = partners[self.edges[:, 0]] == self.edges[:, 1]
        return np.asarray(is_used, dtype=np.float64)

    def degrees(self, t: FloatArray) -> FloatArray:
        """Sums over the edges of each node."""
        found = np.zeros(self.n_nodes)
        for side in range(2):
            found += np.bincount(self.ends[:, side], weights=t, minlength=self.n_nodes)
        return found

    def matrix(self, values: FloatArray, fill: float = 0.0) -> FloatArray:
        """Values of edges as a matrix, symmetric for a general graph."""
        found = np.full(self.shape, fill)
        rows, columns = self.edges.T
        found[rows, columns] = values
        if self.kind == "general":
            found[columns, rows] = values
        return found

    @classmethod
    def of_weights(
        cls, weights: FloatArray, kind: Kind, perfect: bool, capacities: Capacities | None = None
    ) -> MatchingPolytope:
        """The graph of a matrix of weights, ``-inf`` for no edge."""
        return cls(checked_weights(weights, kind) > -np.inf, kind, perfect, capacities)

    def values(self, matrix: FloatArray) -> FloatArray:
        """Entries of a matrix at the edges."""
        return np.ascontiguousarray(matrix[self.edges[:, 0], self.edges[:, 1]])
