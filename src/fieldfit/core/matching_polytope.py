"""Matchings as points of a polytope with an entropy, without tables.

A point has an entry ``t`` for each edge, ``1 - t`` for each edge, and for every node that may stay
alone the share ``s`` of the time that it does.  With ``rho`` the counting number of nodes,

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
from numpy.typing import NDArray

from fieldfit.core.matching_graphs import checked_weights
from fieldfit.errors import InvalidInputError

__all__ = ["Capacities", "Kind", "MatchingPolytope", "require_rho"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Kind = Literal["bipartite", "general"]
#: Numbers of partners of all rows and of all columns.
Capacities = tuple[NDArray[np.int64], NDArray[np.int64]]


def require_rho(rho: float) -> float:
    """Refuse counting numbers for which the entropy is not concave."""
    is_number = isinstance(rho, (int, float, np.integer, np.floating))
    if not is_number or not 0.0 <= rho <= 1.0:
        raise InvalidInputError(
            f"rho must be between 0 and 1, where the entropy of matchings is concave, got {rho!r}"
        )
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
    """

    def __init__(
        self,
        allowed: BoolArray,
        kind: Kind = "bipartite",
        perfect: bool = True,
        capacities: Capacities | None = None,
    ) -> None:
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
        if capacities is not None:  # how many places are free has no entropy
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
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), order

    def point(self, t: FloatArray) -> FloatArray:
        """The point of edges with these shares."""
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
        used, unused, lonely = slopes[:n], slopes[n : 2 * n], slopes[2 * n :]
        cost = np.zeros(self.n_nodes)
        cost[self.alone] = lonely
        weights = used - unused - cost[self.ends[:, 0]] - cost[self.ends[:, 1]]
        return weights, float(unused.sum() + lonely.sum())

    def uniform_point(self) -> FloatArray:
        """All edges of a complete graph alike, nobody's share at its bound."""
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
