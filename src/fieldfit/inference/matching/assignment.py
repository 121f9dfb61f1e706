"""Linear assignment (Hungarian method): maximum-weight bipartite matching and b-matching.

    max_x sum_ij w_ij x_ij    over x_ij in {0, 1} with sums of rows and columns as demanded

One partner each is solved by shortest augmenting paths in SciPy, several partners each (b-matching,
degree constraints) by successive shortest paths (`match_within_capacities`).  As a MAP search on a
factor graph the class recognises models that encode a bipartite matching
(`fieldfit.inference.matching.matching_encoding`).

References: Kuhn, "The Hungarian method for the assignment problem", Naval Research Logistics 2
(1955); Jonker and Volgenant, "A shortest augmenting path algorithm for dense and sparse linear
assignment problems", Computing 38 (1987).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._arrays import integers
from fieldfit._typing import BoolArray, FloatArray, IntArray, LongArray
from fieldfit._validation import require_flag, require_list, shown
from fieldfit.errors import InvalidInputError, ZeroWeightError
from fieldfit.graph.batch import Batch
from fieldfit.graph.potentials import Potentials
from fieldfit.graph.result import MapResult
from fieldfit.inference.base import Evidence, Progress, require_model
from fieldfit.inference.map.base import MapSearch, optimal_result
from fieldfit.inference.matching.matching_encoding import ENCODES_A_MATCHING, Matching, recognize
from fieldfit.inference.matching.matching_polytope import checked_weights
from fieldfit.numeric.compile import kernel

__all__ = ["Assignment", "Match", "match_within_capacities"]

# -- Matchings of a matrix of weights ------------------------------------------------------


@dataclass(frozen=True)
class Match:
    """A matching of largest score.

    Attributes
    ----------
    edges
        Which edges are used, a boolean array of the shape of the weights (symmetric for a general
        graph).
    score
        Sum of the weights of the used edges, each counted once.
    """

    edges: BoolArray
    score: float

    @property
    def partners(self) -> IntArray:
        """Partner of each row (of each node in a general graph), -1 where there is none."""
        counts = self.edges.sum(axis=1)
        if counts.max(initial=0) > 1:
            row = int(np.argmax(counts))
            raise InvalidInputError(
                f"partners must be unique, got {counts[row]} for row {row}: read edges instead"
            )
        if self.edges.shape[1] == 0:
            return np.full(len(counts), -1, dtype=np.int32)
        found = np.where(counts == 1, self.edges.argmax(axis=1), -1)
        return np.asarray(found, dtype=np.int32)


Capacity = int | Sequence[int] | NDArray[np.integer]


@dataclass(frozen=True, kw_only=True)
class Assignment(MapSearch):
    """Maximum-weight matching of rows with columns.

    `run` reads from the tables of a model who must have a partner; the two options are for `match`.

    Parameters
    ----------
    perfect
        Match every row and every column, or of a rectangular matrix every member of the smaller
        side.  Otherwise only edges that raise the score are used.
    capacity
        Number of partners: one integer for all, or a pair (of rows, of columns) of integers or
        integer arrays; ``None`` is 1.  With ``perfect`` each has exactly so many partners,
        otherwise at most.  No edge is used twice.

    Examples
    --------
    >>> match = Assignment().match([[1.0, 2.0], [0.0, 5.0]])
    >>> match.partners.tolist(), match.score
    ([0, 1], 6.0)
    >>> Assignment(perfect=False).match([[-1.0, 2.0], [0.0, 5.0]]).partners.tolist()
    [-1, 1]
    """

    perfect: bool = field(default=True, kw_only=False)
    capacity: int | tuple[Capacity, Capacity] | None = None

    def __post_init__(self) -> None:
        require_flag("perfect", self.perfect)
        if self.capacity is not None:
            _capacity_pair(self.capacity)

    def match(self, weights: ArrayLike) -> Match:
        """The best matching of a matrix of weights; ``-inf`` forbids an edge."""
        return self._match(checked_weights(weights))

    def match_batch(self, weights: Sequence[ArrayLike] | FloatArray) -> list[Match]:
        """The same for many matrices, which may differ in shape."""
        require_list("weights", weights, "matrices")
        found = []
        for example, matrix in enumerate(weights):
            try:
                found.append(self._match(checked_weights(matrix, name=f"weights[{example}]")))
            except ZeroWeightError as error:
                raise ZeroWeightError(f"weights[{example}]: {error}") from None
        return found

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: Evidence = None,
        progress: Progress | None = None,
    ) -> MapResult:
        """The same for the union of many graphs; ``scores`` has one entry for each."""
        require_model(batch, potentials, progress)
        if self.capacity is not None:
            raise InvalidInputError(
                f"capacity must be None to run on a factor graph, got {self.capacity!r}"
            )
        models = recognize(batch, potentials, observed)
        labels = [model.labels_of(_solve(model, example)) for example, model in enumerate(models)]
        return optimal_result(
            batch, potentials, np.concatenate(labels), how=ENCODES_A_MATCHING, method="Assignment"
        )

    def _match(self, weights: FloatArray) -> Match:
        if self.capacity is not None:
            edges = _match_several(weights, self.capacity, self.perfect)
        elif self.perfect:
            edges = _match_smaller_side(weights)
        else:
            edges = _match_gains(weights)
        return Match(edges, float(weights[edges].sum()))


# -- One partner each ----------------------------------------------------------------------


def _match_smaller_side(weights: FloatArray) -> BoolArray:
    """Every row has a partner, or every column if there are fewer of these."""
    from scipy.optimize import linear_sum_assignment

    edges = np.zeros(weights.shape, dtype=np.bool_)
    if min(weights.shape) == 0:
        return edges
    try:
        edges[linear_sum_assignment(weights, maximize=True)] = True
    except ValueError:  # what is left after the checks: no assignment avoids -inf
        raise ZeroWeightError(_reason(weights > -np.inf)) from None
    return edges


def _match_gains(weights: FloatArray) -> BoolArray:
    """Edges of weight zero stand for no partner, so a best full matching of the rest is best."""
    edges = _match_smaller_side(np.maximum(weights, 0.0))
    return edges & (weights > 0.0)


def _reason(allowed: BoolArray) -> str:
    """Members of the smaller side that have fewer possible partners than they are.

    By Hall's theorem there are some; those on alternating paths from an unmatched one are.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    side, other = "rows", "columns"
    if allowed.shape[0] > allowed.shape[1]:
        side, other, allowed = other, side, allowed.T
    partner = maximum_bipartite_matching(csr_array(allowed), perm_type="column")
    owner = np.full(allowed.shape[1], -1)
    owner[partner[partner >= 0]] = np.flatnonzero(partner >= 0)
    reached = np.zeros(len(partner), dtype=np.bool_)
    reached[np.flatnonzero(partner < 0)[0]] = True
    while True:
        neighbors = allowed[reached].any(axis=0)
        wider = reached.copy()
        wider[owner[neighbors]] = True  # every neighbour is matched, or a path would augment
        if (wider == reached).all():
            break
        reached = wider
    members = ", ".join(str(index) for index in np.flatnonzero(reached)[:10])
    more = ", ..." if reached.sum() > 10 else ""
    return (
        f"weights must allow a perfect matching, but the {reached.sum()} {side} "
        f"[{members}{more}] have only {neighbors.sum()} possible {other}"
    )


# -- Several partners each: capacities -----------------------------------------------------


def _match_several(
    weights: FloatArray, capacity: int | tuple[Capacity, Capacity], perfect: bool
) -> BoolArray:
    pair = _capacity_pair(capacity)
    rows = _checked_capacity("rows", pair[0], weights.shape[0])
    columns = _checked_capacity("columns", pair[1], weights.shape[1])
    if perfect and rows.sum() != columns.sum():
        raise InvalidInputError(
            "capacity must have equal sums over rows and columns for a perfect matching, "
            f"got {rows.sum()} and {columns.sum()}"
        )
    edges = np.empty(weights.shape, dtype=np.bool_)
    match_within_capacities(weights, rows, columns, not perfect, edges)
    if perfect and rows.any():
        row, column = int(np.argmax(rows > 0)), int(np.argmax(columns > 0))
        raise ZeroWeightError(
            "weights must allow a matching that fills all capacities, but in the largest one row "
            f"{row} lacks {rows[row]} and column {column} lacks {columns[column]}"
        )
    return edges


def _capacity_pair(capacity: Any) -> tuple[Any, Any]:
    """Capacities of rows and columns, each a number or an array of them."""
    pair = capacity if isinstance(capacity, tuple) else (capacity, capacity)
    if len(pair) != 2:
        raise InvalidInputError(f"capacity must be one integer or a pair, got {shown(capacity)}")
    for side, given in zip(("rows", "columns"), pair, strict=True):
        integers(f"capacity of the {side}", given)
    return pair


def _checked_capacity(side: str, capacity: Capacity, count: int) -> LongArray:
    array = integers(f"capacity of the {side}", capacity)
    if array.shape not in ((), (count,)) or (array < 0).any():
        raise InvalidInputError(
            f"capacity of the {side} must be an integer of at least 0, or {count} of them, "
            f"got {shown(capacity)}"
        )
    return np.array(np.broadcast_to(array, (count,)), dtype=np.int64)


# -- Factor graphs that encode a matching --------------------------------------------------


def _solve(model: Matching, example: int) -> LongArray:
    """Indices of the edges of a best matching of a recognised model."""
    sides = model.sides()
    if sides is None:
        raise InvalidInputError(
            f"the matching of example {example} must be bipartite for Assignment, got an odd "
            "cycle: use PerfectMatching"
        )
    weights, required_rows, required_columns, edge_of = model.matrix(sides)
    n, m = weights.shape
    rows_alone = required_rows.all() and n <= m and (n == m or not required_columns.any())
    columns_alone = required_columns.all() and m <= n and (n == m or not required_rows.any())
    try:
        if not required_rows.any() and not required_columns.any():
            edges = _match_gains(weights)
        elif rows_alone or columns_alone:
            edges = _match_smaller_side(weights)
        else:
            edges = _match_required(weights, required_rows, required_columns)
    except ZeroWeightError as error:
        raise ZeroWeightError(
            f"the model of example {example} has total weight zero: {error}"
        ) from None
    return edge_of[edges]


def _match_required(weights: FloatArray, rows: BoolArray, columns: BoolArray) -> BoolArray:
    """Some on both sides need a partner: twice the graph, with an edge from each other to its twin.

    A perfect matching of the double graph is two matchings that leave the same members out.  The
    better one, taken twice, is no worse, so both are best.
    """
    n, m = weights.shape
    double = np.full((n + m, m + n), -np.inf)
    double[:n, :m] = weights
    double[n:, m:] = weights.T
    double[:n, m:][np.diag_indices(n)] = np.where(rows, -np.inf, 0.0)
    double[n:, :m][np.diag_indices(m)] = np.where(columns, -np.inf, 0.0)
    try:
        edges: BoolArray = _match_smaller_side(double)[:n, :m]
    except ZeroWeightError:
        raise ZeroWeightError(
            f"no matching has partners for the {rows.sum() + columns.sum()} that need one"
        ) from None
    return edges


# -- b-matching by successive shortest augmenting paths ------------------------------------
#     max sum_ij w_ij x_ij    over x_ij in {0, 1},
#     sum_j x_ij <= a_i,  sum_i x_ij <= b_j
#
# is a flow from a source through rows and columns to a sink, in which every edge has capacity one.
# Paths of least cost ``-w`` are found by Dijkstra's algorithm; the distances of earlier rounds
# make all costs non-negative (``c + d(tail) - d(head)``).  Each flow on the way is the best of its
# size, and gains fall from path to path.  So the best matching of any size is reached where the
# gain vanishes, and the best of the largest size where no path is left.  A path costs ``O((n +
# m)^2)``, and there are ``sum a`` of them at most.
#
# Reference: Ahuja, Magnanti and Orlin, "Network Flows" (1993), section 9.7.


@kernel
def match_within_capacities(
    weights: FloatArray,
    row_capacity: LongArray,
    column_capacity: LongArray,
    only_gains: bool,
    used: BoolArray,
) -> int:
    """Fill ``used``; number of its edges.  The capacities are counted down to what is left.

    Edges of weight ``-inf`` are never used.  ``only_gains`` stops at the best matching of any
    size, otherwise the best of the largest size is found.
    """
    n, m = weights.shape
    used[:] = False
    row_distance = np.zeros(n)
    column_distance = np.zeros(m)
    sink_distance = np.inf
    for j in range(m):
        largest = -np.inf
        for i in range(n):
            largest = max(largest, weights[i, j])
        if largest > -np.inf:
            column_distance[j] = -largest
            if column_capacity[j] > 0:
                sink_distance = min(sink_distance, -largest)
    row_length = np.empty(n)  # of the shortest path in this round, by reduced costs
    column_length = np.empty(m)
    row_done = np.empty(n, dtype=np.bool_)
    column_done = np.empty(m, dtype=np.bool_)
    from_column = np.empty(n, dtype=np.int64)  # -1: from the source
    from_row = np.empty(m, dtype=np.int64)
    n_used = 0
    while sink_distance < np.inf:
        row_done[:] = False
        column_done[:] = False
        column_length[:] = np.inf
        for i in range(n):
            from_column[i] = -1
            # rounding may leave a reduced cost a hair below zero, here and below
            row_length[i] = max(0.0, -row_distance[i]) if row_capacity[i] > 0 else np.inf
        end, end_length = -1, np.inf
        while True:
            nearest, is_row, length = -1, True, end_length
            for i in range(n):
                if not row_done[i] and row_length[i] < length:
                    nearest, length = i, row_length[i]
            for j in range(m):
                if not column_done[j] and column_length[j] < length:
                    nearest, is_row, length = j, False, column_length[j]
            if nearest < 0:
                break
            if is_row:
                i = nearest
                row_done[i] = True
                for j in range(m):
                    if column_done[j] or used[i, j] or weights[i, j] == -np.inf:
                        continue
                    cost = row_distance[i] - column_distance[j] - weights[i, j]
                    reached = length + max(0.0, cost)
                    if reached < column_length[j]:
                        column_length[j] = reached
                        from_row[j] = i
            else:
                j = nearest
                column_done[j] = True
                if column_capacity[j] > 0:
                    reached = length + max(0.0, column_distance[j] - sink_distance)
                    if reached < end_length:
                        end, end_length = j, reached
                for i in range(n):
                    if used[i, j] and not row_done[i]:
                        cost = column_distance[j] - row_distance[i] + weights[i, j]
                        reached = length + max(0.0, cost)
                        if reached < row_length[i]:
                            row_length[i] = reached
                            from_column[i] = j
        if end < 0:
            break
        sink_distance += end_length
        if only_gains and sink_distance >= 0.0:
            break
        for i in range(n):
            row_distance[i] += min(row_length[i], end_length)
        for j in range(m):
            column_distance[j] += min(column_length[j], end_length)
        column_capacity[end] -= 1
        j = end
        while j >= 0:
            i = from_row[j]
            used[i, j] = True
            j = from_column[i]
            if j >= 0:
                used[i, j] = False
        row_capacity[i] -= 1
        n_used += 1
    return n_used
