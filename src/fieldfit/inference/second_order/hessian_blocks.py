"""The pattern of the node system of a graph: order of elimination, blocks, and fill.

All of it depends on the graph alone and is kept as long as the graph lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import BoolArray, FloatArray, IntArray, LongArray
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.structure import next_row
from fieldfit.numeric.cholesky import Symbolic, symbolic
from fieldfit.numeric.compile import kernel

__all__ = [
    "Blocks",
    "NodeMatrix",
    "NodePattern",
    "fill_blocks",
    "node_matrix",
    "slot_entries",
    "widest",
]

# -- Node blocks ---------------------------------------------------------------------------
# Blocks of the node system (see `node_system`): inverse covariances of labels in each factor.


#: Rounding of stiff blocks costs 1e-16 / GUARD of the soft ones' digits, the guard itself GUARD:
#: in the middle one repetition repairs both.
GUARD = 1e-8


class NodePattern(NamedTuple):
    """Where the blocks of the node system lie; unknowns are in the order of elimination."""

    rows: IntArray  # first unknown of each variable
    column_starts: LongArray  # first stored entry of its first column
    column_lengths: IntArray  # stored entries of each of its columns
    block_rows: (
        IntArray  # by factor and two of its positions: where one's rows begin in the other's
    )
    block_offsets: LongArray  # where the positions of each factor begin
    inverse_offsets: LongArray  # where the inverse of each factor's block begins


class Blocks(NamedTuple):
    """The numbers of one system."""

    scale: FloatArray  # sqrt(b) by unary entry, 0 for labels that are impossible
    reference: IntArray  # label of each variable that is left out
    free: BoolArray  # variables that may move
    inverses: FloatArray  # C_a^-1 of every factor, row by row


@kernel
def widest(structure: Any) -> int:
    """Most labels of all variables of one factor together."""
    most = 1
    for factor in range(len(structure.scope_offsets) - 1):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        most = max(most, structure.message_offsets[stop] - structure.message_offsets[first])
    return most


@kernel
def _invert(matrix: FloatArray, n: int, floor: float) -> None:
    """Invert a symmetric matrix in place from its lower triangle, pivots kept above ``floor``."""
    for j in range(n):
        for i in range(j, n):
            total = matrix[i * n + j]
            for k in range(j):
                total -= matrix[i * n + k] * matrix[j * n + k]
            if i > j:
                matrix[i * n + j] = total / matrix[j * n + j]
            else:
                matrix[j * n + j] = np.sqrt(max(total, floor))
    for i in range(n):  # the inverse of the triangle, row by row
        inverse = 1.0 / matrix[i * n + i]
        for j in range(i):
            total = 0.0
            for k in range(j, i):
                total += matrix[i * n + k] * matrix[k * n + j]
            matrix[i * n + j] = -total * inverse
        matrix[i * n + i] = inverse
    for i in range(n):
        for j in range(i + 1):  # the diagonal last: it is needed by all others of the row
            total = 0.0
            for k in range(i, n):
                total += matrix[k * n + i] * matrix[k * n + j]
            matrix[i * n + j] = total
    for i in range(n):
        for j in range(i):
            matrix[j * n + i] = matrix[i * n + j]


@kernel
def _fill_pair(structure: Any, factor: int, compliance: FloatArray, blocks: Any, matrix: FloatArray,
               n: int) -> float:  # fmt: skip
    """Uncentred second moments of two variables, lower triangle; returns the sum of the table."""
    first = structure.scope_offsets[factor]
    left, right = structure.slot_variables[first], structure.slot_variables[first + 1]
    n_left, n_right = structure.cardinalities[left], structure.cardinalities[right]
    left_reference, right_reference = blocks.reference[left], blocks.reference[right]
    entry = structure.table_offsets[factor]
    total = 0.0
    for k in range(n_left):
        u = k - (1 if k > left_reference else 0)
        margin = 0.0
        v = n_left - 1
        for y in range(n_right):
            value = compliance[entry]
            entry += 1
            margin += value
            if y == right_reference:
                continue
            matrix[v * n + v] += value
            if k != left_reference:
                matrix[v * n + u] = value
            v += 1
        if k != left_reference:
            matrix[u * n + u] = margin
        total += margin
    return total


@kernel
def _fill_any(structure: Any, factor: int, compliance: FloatArray, blocks: Any, matrix: FloatArray,
              n: int) -> float:  # fmt: skip
    """The same for any arity."""
    first, last = structure.scope_offsets[factor], structure.scope_offsets[factor + 1] - 1
    digits = np.zeros(last - first + 1, dtype=np.int32)
    places = np.empty(last - first + 1, dtype=np.int64)
    own = structure.slot_variables[last]
    n_last = structure.cardinalities[own]
    total = 0.0
    for row in range(structure.table_offsets[factor], structure.table_offsets[factor + 1], n_last):
        for y in range(n_last):
            value = compliance[row + y]
            total += value
            digits[last - first] = y
            base, count = 0, 0
            for position in range(first, last + 1):
                variable = structure.slot_variables[position]
                label, reference = digits[position - first], blocks.reference[variable]
                if label != reference:
                    places[count] = base + label - (1 if label > reference else 0)
                    count += 1
                base += structure.cardinalities[variable] - 1
            for s in range(count):
                for t in range(s + 1):
                    matrix[places[s] * n + places[t]] += value
        next_row(structure, first, last, digits)
    return total


@kernel
def fill_blocks(structure: Any, pattern: Any, compliance: FloatArray, blocks: Any) -> None:
    """``C_a^-1`` of every factor of arity two or more, in scaled unknowns."""
    scale = np.empty(widest(structure))
    margins = np.empty(widest(structure))
    for factor in range(len(structure.scope_offsets) - 1):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        begin, end = pattern.inverse_offsets[factor], pattern.inverse_offsets[factor + 1]
        if end == begin:
            continue
        matrix = blocks.inverses[begin:end]
        matrix[:] = 0.0
        n = 0
        for slot in range(first, stop):
            variable = structure.slot_variables[slot]
            for y in range(structure.cardinalities[variable]):
                if y != blocks.reference[variable]:
                    scale[n] = blocks.scale[structure.unary_offsets[variable] + y]
                    n += 1
        if stop - first == 2:
            total = _fill_pair(structure, factor, compliance, blocks, matrix, n)
        else:
            total = _fill_any(structure, factor, compliance, blocks, matrix, n)
        for u in range(n):
            margins[u] = matrix[u * n + u]
        # correlations: each row and column divided by its size in scaled unknowns, which `scale`
        # becomes part of
        for u in range(n):
            if scale[u] == 0.0:
                scale[u] = 1.0
                for v in range(n):
                    matrix[max(u, v) * n + min(u, v)] = 0.0
                margins[u] = 0.0
                matrix[u * n + u] = total
            centred = matrix[u * n + u] - margins[u] * (margins[u] / total)
            size = max(centred / scale[u] / scale[u], GUARD * total)
            scale[u] *= np.sqrt(size)
        for u in range(n):
            for v in range(u):
                centred = matrix[u * n + v] - margins[u] * (margins[v] / total)
                matrix[u * n + v] = centred / scale[u] / scale[v]
            matrix[u * n + u] = 1.0
        _invert(matrix, n, GUARD)
        u = 0
        for slot in range(first, stop):
            variable = structure.slot_variables[slot]
            for y in range(structure.cardinalities[variable]):
                if y != blocks.reference[variable]:
                    own = blocks.scale[structure.unary_offsets[variable] + y]
                    scale[u] = own / scale[u] if own > 0.0 else 1.0 / scale[u]
                    u += 1
        for u in range(n):
            for v in range(n):
                matrix[u * n + v] *= scale[u] * scale[v]


# -- The algorithm -------------------------------------------------------------------------


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
