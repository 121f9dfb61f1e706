"""Best matchings of rows with columns.

    max_x sum_ij w_ij x_ij    over x_ij in {0, 1} with sums of rows and columns as demanded

One partner each is solved by shortest augmenting paths in SciPy, several partners each
(b-matching) by `fieldfit.kernels.capacitated_assignment`.  As a MAP search on a factor graph the
class recognises models that encode a bipartite matching (`fieldfit.oracle._matching_model`).

References: Kuhn, "The Hungarian method for the assignment problem", Naval Research Logistics 2
(1955); Jonker and Volgenant, "A shortest augmenting path algorithm for dense and sparse linear
assignment problems", Computing 38 (1987).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit.core.batch import Batch
from fieldfit.core.matching_graphs import checked_weights
from fieldfit.core.potentials import Potentials
from fieldfit.core.result import MapResult
from fieldfit.errors import InvalidInputError, ZeroWeightError
from fieldfit.oracle._base import MapSearch
from fieldfit.oracle._match import Match
from fieldfit.oracle._matching_model import Matching, map_result, recognize

__all__ = ["Assignment", "Match"]

FloatArray = NDArray[np.float64]
Capacity = int | Sequence[int] | NDArray[np.integer]


@dataclass(frozen=True)
class Assignment(MapSearch):
    """Maximum-weight matching of rows with columns.

    Parameters
    ----------
    perfect
        Match every row and every column, or of a rectangular matrix every member of the smaller
        side.  Otherwise only edges that raise the score are used.
    capacity
        Number of partners: one integer for all, or a pair (of rows, of columns) of integers or
        integer arrays; ``None`` is 1.  With ``perfect`` each has exactly so many partners,
        otherwise at most.  No edge is used twice.

    `run` reads from the tables of a model who must have a partner; the two options are for `match`.

    Examples
    --------
    >>> match = Assignment().match([[1.0, 2.0], [0.0, 5.0]])
    >>> match.partners.tolist(), match.score
    ([0, 1], 6.0)
    >>> Assignment(perfect=False).match([[-1.0, 2.0], [0.0, 5.0]]).partners.tolist()
    [-1, 1]
    """

    perfect: bool = True
    capacity: int | tuple[Capacity, Capacity] | None = None

    def match(self, weights: ArrayLike) -> Match:
        """The best matching of a matrix of weights; ``-inf`` forbids an edge."""
        return self._match(checked_weights(weights))

    def match_batch(self, weights: Sequence[ArrayLike] | FloatArray) -> list[Match]:
        """The same for many matrices, which may differ in shape."""
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
        observed: dict[int, int] | ArrayLike | None = None,
    ) -> MapResult:
        """The same for the union of many graphs; ``scores`` has one entry for each."""
        if self.capacity is not None:
            raise InvalidInputError(
                f"capacity must be None to run on a factor graph, got {self.capacity!r}"
            )
        models = recognize(batch, potentials, observed)
        labels = [model.labels_of(_solve(model, example)) for example, model in enumerate(models)]
        return map_result(batch, potentials, labels, "Assignment")

    def _match(self, weights: FloatArray) -> Match:
        if self.capacity is not None:
            edges = _match_several(weights, self.capacity, self.perfect)
        elif self.perfect:
            edges = _match_smaller_side(weights)
        else:
            edges = _match_gains(weights)
        return Match(edges, float(weights[edges].sum()))


# -- one partner each ---------------------------------------------------------------------


def _match_smaller_side(weights: FloatArray) -> NDArray[np.bool_]:
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


def _match_gains(weights: FloatArray) -> NDArray[np.bool_]:
    """Edges of weight zero stand for no partner, so a best full matching of the rest is best."""
    edges = _match_smaller_side(np.maximum(weights, 0.0))
    return edges & (weights > 0.0)


def _reason(allowed: NDArray[np.bool_]) -> str:
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


# -- several partners each ----------------------------------------------------------------


def _match_several(
    weights: FloatArray, capacity: int | tuple[Capacity, Capacity], perfect: bool
) -> NDArray[np.bool_]:
    from fieldfit.kernels.capacitated_assignment import match_within_capacities

    pair = capacity if isinstance(capacity, tuple) else (capacity, capacity)
    if len(pair) != 2:
        raise InvalidInputError(f"capacity must be one integer or a pair, got {capacity!r}")
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


def _checked_capacity(side: str, capacity: Capacity, count: int) -> NDArray[np.int64]:
    array = np.asarray(capacity)
    if array.dtype.kind not in "iu" or array.shape not in ((), (count,)) or (array < 0).any():
        raise InvalidInputError(
            f"capacity of the {side} must be an integer of at least 0, or {count} of them, "
            f"got {capacity!r}"
        )
    return np.array(np.broadcast_to(array, (count,)), dtype=np.int64)


# -- models -------------------------------------------------------------------------------


def _solve(model: Matching, example: int) -> NDArray[np.int64]:
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


def _match_required(
    weights: FloatArray, rows: NDArray[np.bool_], columns: NDArray[np.bool_]
) -> NDArray[np.bool_]:
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
        edges: NDArray[np.bool_] = _match_smaller_side(double)[:n, :m]
    except ZeroWeightError:
        raise ZeroWeightError(
            f"no matching has partners for the {rows.sum() + columns.sum()} that need one"
        ) from None
    return edges
