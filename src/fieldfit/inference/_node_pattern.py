"""The pattern of the node system of a graph: order of elimination, blocks, and fill.

All of it depends on the graph alone and is kept as long as the graph lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.graph import FactorGraph
from fieldfit.kernels.node_blocks import NodePattern
from fieldfit.kernels.sparse_factor import Symbolic, symbolic

__all__ = ["NodeMatrix", "node_matrix", "slot_entries"]

LongArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: Conjugate gradients are used above this many multiplications of the factorisation for each
#: unknown (where the two took the same time on grids) and entries of its factor (480 MB).
MAX_MULTIPLICATIONS = 3e4
MAX_FILL = 4e7


@dataclass(frozen=True, eq=False)
class NodeMatrix:
    """The pattern of a graph's system, and of its factor.

    The factor has blocks if ``labels``, a tuple as long as the number of labels, is not empty:
    then ``shape`` is the pattern of its blocks.
    """

    pattern: NodePattern
    labels: tuple[int, ...]
    indptr: LongArray
    indices: NDArray[np.int32]
    shape: Symbolic
    is_direct: bool


# weak keys, and values that do not refer to the graph
_kept: WeakKeyDictionary[FactorGraph, NodeMatrix] = WeakKeyDictionary()
_kept_entries: WeakKeyDictionary[FactorGraph, tuple[LongArray, BoolArray]] = WeakKeyDictionary()


def node_matrix(graph: FactorGraph) -> NodeMatrix:
    """The pattern of a graph's system, kept as long as the graph lives."""
    found = _kept.get(graph)
    if found is None:
        found = _kept[graph] = _build(graph)
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


def _build(graph: FactorGraph) -> NodeMatrix:
    sizes = graph.cardinalities.astype(np.int64) - 1
    pairs, left, right, block_offsets = _slot_pairs(graph)
    ranks = _elimination_ranks(graph.n_variables, left, right)
    order = np.argsort(ranks, kind="stable")
    rows = np.zeros(graph.n_variables + 1, dtype=np.int64)
    rows[1:] = np.cumsum(sizes[order])
    first_rows = np.empty(graph.n_variables, dtype=np.int32)
    first_rows[order] = rows[:-1]
    # one block for each pair of neighbours, in the column of the one that is eliminated later, and
    # one for each variable itself, which comes last because rows ascend
    upper = ranks[left] <= ranks[right]
    keys = np.concatenate([ranks[right[upper]] * graph.n_variables + ranks[left[upper]],
                           ranks * graph.n_variables + ranks])  # fmt: skip
    blocks, of_key = np.unique(keys, return_inverse=True)
    column, row = (order[index] for index in np.divmod(blocks, max(graph.n_variables, 1)))
    heights = sizes[row]
    lengths = np.bincount(column, heights, minlength=graph.n_variables).astype(np.int64)
    within = np.cumsum(heights) - heights  # blocks are sorted by column, then by row
    begins = np.cumsum(lengths[order]) - lengths[order]
    column_begins = np.empty(graph.n_variables, dtype=np.int64)
    column_begins[order] = begins
    within -= column_begins[column]
    block_rows = np.full(len(pairs), -1, dtype=np.int32)
    block_rows[upper] = within[of_key[: int(upper.sum())]]
    indptr = np.concatenate([[0], np.cumsum(np.repeat(lengths[order], sizes[order]))])
    column_starts = indptr[np.minimum(first_rows, len(indptr) - 1)].astype(np.int64)
    indices = _row_indices(column, row, heights, sizes, first_rows, order, lengths)
    labels = _block_labels(graph)
    width = max(len(labels) - 1, 1)
    if width == 1:
        shape = symbolic(indptr.astype(np.int64), indices)
    else:
        block_starts = np.searchsorted(blocks, np.arange(graph.n_variables + 1) * graph.n_variables)
        shape = symbolic(block_starts.astype(np.int64), ranks[row].astype(np.int32))
    counts = width * np.diff(shape.starts).astype(np.float64)  # by column, below the diagonal block
    pattern = NodePattern(
        rows=first_rows,
        column_starts=column_starts,
        column_lengths=lengths.astype(np.int32),
        block_rows=block_rows,
        block_offsets=block_offsets,
        inverse_offsets=_inverse_offsets(graph, sizes),
    )
    is_cheap = (counts**2).sum() <= MAX_MULTIPLICATIONS * len(counts)
    is_direct = bool(is_cheap and width * counts.sum() <= MAX_FILL)
    return NodeMatrix(pattern, labels, indptr.astype(np.int64), indices, shape, is_direct)


def _block_labels(graph: FactorGraph) -> tuple[int, ...]:
    """A tuple as long as the number of labels, if all variables have as many and more than two."""
    cardinality = graph.uniform_cardinality
    return (0,) * cardinality if cardinality is not None and cardinality > 2 else ()


def _slot_pairs(graph: FactorGraph) -> tuple[Any, LongArray, LongArray, LongArray]:
    """All ordered pairs of positions of each scope of arity two or more: rows and columns."""
    counts = np.where(graph.arities >= 2, graph.arities.astype(np.int64) ** 2, 0)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    factor = np.repeat(np.arange(graph.n_factors), counts)
    local = np.arange(int(offsets[-1])) - offsets[factor]
    p, q = np.divmod(local, np.maximum(graph.arities[factor], 1))
    first = graph.scope_offsets[factor]
    left = graph.slot_variables[first + p].astype(np.int64)
    right = graph.slot_variables[first + q].astype(np.int64)
    return local, left, right, offsets


def _inverse_offsets(graph: FactorGraph, sizes: LongArray) -> LongArray:
    dims = np.bincount(graph.slot_factors, sizes[graph.slot_variables], graph.n_factors)
    dims = np.where(graph.arities >= 2, dims, 0).astype(np.int64)
    return np.concatenate([[0], np.cumsum(dims**2)])


def _row_indices(
    column: LongArray,
    row: LongArray,
    heights: LongArray,
    sizes: LongArray,
    first_rows: NDArray[np.int32],
    order: LongArray,
    lengths: LongArray,
) -> NDArray[np.int32]:
    """Rows of all stored entries: the rows of a variable's column, once for each of its labels."""
    starts = first_rows[row] - (np.cumsum(heights) - heights)
    one_column = np.repeat(starts, heights) + np.arange(int(heights.sum()))
    begins = np.cumsum(lengths[order]) - lengths[order]  # in `one_column`, by rank
    repeats = sizes[order]
    owner = np.repeat(np.arange(len(order)), repeats)
    sizes_of = lengths[order][owner]
    offsets = np.cumsum(sizes_of) - sizes_of
    source = np.repeat(begins[owner] - offsets, sizes_of) + np.arange(int(sizes_of.sum()))
    return one_column[source].astype(np.int32)


def _elimination_ranks(n_variables: int, left: LongArray, right: LongArray) -> LongArray:
    """When each variable is eliminated: minimum degree, by scipy's factorisation of the pattern."""
    from scipy.sparse import coo_array
    from scipy.sparse.linalg import splu

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
