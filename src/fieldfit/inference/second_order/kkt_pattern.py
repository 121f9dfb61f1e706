"""Sparsity pattern of the reduced KKT matrix: elimination order, places of blocks, fill.

The matrix of `hessian_blocks` has one block of rows for each variable and couples the variables of
a factor.  All of this depends on the graph alone and is kept as long as the graph lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from fieldfit._typing import BoolArray, IntArray, LongArray
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.ragged import offsets_of, ranges, rows
from fieldfit.inference.second_order.hessian_blocks import BlockLayout, block_layout
from fieldfit.numeric.cholesky import Symbolic, symbolic

__all__ = ["BlockPlaces", "KktPattern", "batch_pattern", "kkt_pattern", "slot_entries"]

#: Conjugate gradients are used above this many multiplications of the factorisation for each
#: unknown (where the two took the same time on grids) and entries of its factor (480 MB).
MAX_MULTIPLICATIONS = 3e4
MAX_FILL = 4e7


class BlockPlaces(NamedTuple):
    """Where the blocks of factors lie among the stored entries of the matrix."""

    column_starts: LongArray  # first stored entry of the first column of each variable
    column_lengths: IntArray  # stored entries of each of its columns
    # by factor and two of its positions: where one's rows begin in the other's column, or -1
    block_rows: IntArray
    block_offsets: LongArray  # where the positions of each factor begin


@dataclass(frozen=True, eq=False)
class KktPattern:
    """The pattern of a graph's reduced KKT matrix, and of its Cholesky factor.

    ``indptr`` and ``indices`` are those of the upper triangle by columns, unknowns in the order of
    elimination (``layout``).  The factor has blocks if ``k``, a tuple as long as the number of
    labels, is not empty: then ``shape`` is the pattern of its blocks.
    """

    layout: BlockLayout
    places: BlockPlaces
    k: tuple[int, ...]
    indptr: LongArray
    indices: IntArray
    shape: Symbolic
    is_direct: bool

    @property
    def n_unknowns(self) -> int:
        return len(self.indptr) - 1


# weak keys, and values that do not refer to the graph
_kept: WeakKeyDictionary[FactorGraph, KktPattern] = WeakKeyDictionary()
_kept_ranks: WeakKeyDictionary[FactorGraph, LongArray] = WeakKeyDictionary()
_kept_entries: WeakKeyDictionary[FactorGraph, tuple[LongArray, BoolArray]] = WeakKeyDictionary()


def kkt_pattern(graph: FactorGraph) -> KktPattern:
    """The pattern of a graph, kept as long as the graph lives."""
    found = _kept.get(graph)
    if found is None:
        found = _kept[graph] = _build(graph, _elimination_ranks(graph))
    return found


def batch_pattern(batch: Batch) -> KktPattern:
    """The pattern of a batch's union, from the elimination orders of its examples.

    Those are kept for each graph, so that new unions of graphs that have been seen cost little.
    """
    found = _kept.get(batch.graph)
    if found is None:
        ranks = []
        for graph, shift in zip(batch.graphs, batch.variable_offsets[:-1], strict=True):
            own = _kept_ranks.get(graph)
            if own is None:
                own = _kept_ranks[graph] = _elimination_ranks(graph)
            ranks.append(own + shift)
        found = _kept[batch.graph] = _build(batch.graph, np.concatenate(ranks))
    return found


def slot_entries(graph: FactorGraph) -> tuple[LongArray, BoolArray]:
    """The unary entry of every message entry, and which of them are of factors of arity one."""
    found = _kept_entries.get(graph)
    if found is None:
        sizes = np.diff(graph.message_offsets)
        starts = graph.unary_offsets[graph.slot_variables] - graph.message_offsets[:-1]
        entries = np.repeat(starts, sizes) + np.arange(int(graph.message_offsets[-1]))
        is_single = np.repeat(graph.arities[graph.slot_factors] < 2, sizes)
        found = _kept_entries[graph] = (entries, is_single)
    return found


def _build(graph: FactorGraph, ranks: LongArray) -> KktPattern:
    n, sizes = graph.n_variables, graph.cardinalities.astype(np.int64) - 1
    left, right, block_offsets = _slot_pairs(graph)
    order = np.argsort(ranks, kind="stable")
    first_rows = _starts_by_rank(sizes, order).astype(np.int32)
    # one block for each pair of neighbours, in the column of the one that is eliminated later, and
    # one for each variable itself, which comes last because rows ascend
    upper = ranks[left] <= ranks[right]
    keys = np.concatenate([ranks[right[upper]] * n + ranks[left[upper]], ranks * n + ranks])
    blocks, of_key = np.unique(keys, return_inverse=True)
    column, row = (order[index] for index in np.divmod(blocks, max(n, 1)))
    heights = sizes[row]
    lengths = np.bincount(column, heights, minlength=n).astype(np.int64)
    within = np.cumsum(heights) - heights  # blocks are sorted by column, then by row
    within -= _starts_by_rank(lengths, order)[column]
    block_rows = np.full(len(left), -1, dtype=np.int32)
    block_rows[upper] = within[of_key[: int(upper.sum())]]
    indptr = np.concatenate([[0], np.cumsum(np.repeat(lengths[order], sizes[order]))])
    indptr = indptr.astype(np.int64)
    indices = _row_indices(row, heights, sizes, first_rows, order, lengths)
    k = _uniform_labels(graph)
    width = max(len(k) - 1, 1)
    if width == 1:
        shape = symbolic(indptr, indices)
    else:
        block_starts = np.searchsorted(blocks, np.arange(n + 1) * n)
        shape = symbolic(block_starts.astype(np.int64), ranks[row].astype(np.int32))
    counts = width * np.diff(shape.starts).astype(np.float64)  # by column, below the diagonal block
    is_cheap = (counts**2).sum() <= MAX_MULTIPLICATIONS * len(counts)
    places = BlockPlaces(
        column_starts=indptr[np.minimum(first_rows, len(indptr) - 1)],
        column_lengths=lengths.astype(np.int32),
        block_rows=block_rows,
        block_offsets=block_offsets,
    )
    return KktPattern(
        layout=block_layout(graph)._replace(rows=first_rows),
        places=places,
        k=k,
        indptr=indptr,
        indices=indices,
        shape=shape,
        is_direct=bool(is_cheap and width * counts.sum() <= MAX_FILL),
    )


def _starts_by_rank(sizes: LongArray, order: LongArray) -> LongArray:
    """Where each variable begins if variables of these sizes follow each other in some order."""
    starts = np.empty(len(sizes), dtype=np.int64)
    starts[order] = np.cumsum(sizes[order]) - sizes[order]
    return starts


def _uniform_labels(graph: FactorGraph) -> tuple[int, ...]:
    """A tuple as long as the number of labels, if all variables have as many and more than two."""
    cardinality = graph.uniform_cardinality
    return (0,) * cardinality if cardinality is not None and cardinality > 2 else ()


def _slot_pairs(graph: FactorGraph) -> tuple[LongArray, LongArray, LongArray]:
    """All ordered pairs of positions of scopes of arity two or more: variables, and offsets."""
    counts = np.where(graph.arities >= 2, graph.arities.astype(np.int64) ** 2, 0)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    factor = np.repeat(np.arange(graph.n_factors), counts)
    local = np.arange(int(offsets[-1])) - offsets[factor]
    p, q = np.divmod(local, np.maximum(graph.arities[factor], 1))
    first = graph.scope_offsets[factor]
    left = graph.slot_variables[first + p].astype(np.int64)
    right = graph.slot_variables[first + q].astype(np.int64)
    return left, right, offsets


def _row_indices(
    row: LongArray,
    heights: LongArray,
    sizes: LongArray,
    first_rows: IntArray,
    order: LongArray,
    lengths: LongArray,
) -> IntArray:
    """Rows of all stored entries: the rows of a variable's column, once for each of its labels."""
    one_column = ranges(first_rows[row], heights)
    by_rank = np.repeat(np.arange(len(order)), sizes[order])
    return one_column[rows(offsets_of(lengths[order]), by_rank)].astype(np.int32)


def _elimination_ranks(graph: FactorGraph) -> LongArray:
    """When each variable is eliminated: multiple minimum degree, by SuperLU.

    SciPy has no minimum degree ordering apart from the factorisation of SuperLU, so a matrix of
    this pattern, with one unknown for each variable, is factorised once for each graph: 28 ms for a
    grid of 100 x 100.  Reverse Cuthill and McKee's order, which SciPy gives directly in 1 ms, costs
    more in the first of our own factorisations: 4 times the entries and 5 times the
    multiplications.  The weighted min-fill of `greedy_elimination` is for small widths and slower.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.linalg import splu

    n_variables = graph.n_variables
    left, right, _ = _slot_pairs(graph)
    if n_variables == 0:
        return np.zeros(0, dtype=np.int64)
    diagonal = np.arange(n_variables)
    rows, columns = np.concatenate([left, diagonal]), np.concatenate([right, diagonal])
    pattern = coo_array((np.full(len(rows), -1.0), (rows, columns)), (n_variables, n_variables))
    matrix = pattern.tocsc()
    degrees = np.asarray(abs(matrix).sum(axis=0)).ravel()
    matrix.setdiag(2.0 * degrees)
    factors = splu(
        matrix,
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    return np.asarray(factors.perm_c, dtype=np.int64)
