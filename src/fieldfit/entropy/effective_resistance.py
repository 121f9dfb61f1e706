"""Effective resistances: the probability of every edge in a uniform random spanning tree.

By the matrix-tree theorem (Kirchhoff 1847) the probability of edge ``e = (u, v)`` is its
effective resistance when every edge is a unit resistor::

    P(e) = Z[u, u] + Z[v, v] - 2 Z[u, v],      Z = inverse of the Laplacian, one node grounded

Parallel edges add up in the Laplacian and each keeps this probability.  Only entries of ``Z`` on
edges are needed; they come from a sparse factorisation by the recurrence of
`fieldfit.numeric.selected_inverse`.  Edges on no cycle (bridges) are in every tree and are taken
out first: what is left is factorised with one node grounded in each component.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fieldfit._typing import FloatArray, IntArray
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.spanning_forests import find_bridges, label_components
from fieldfit.numeric.cholesky import factorise, symbolic
from fieldfit.numeric.selected_inverse import elimination_cost, resistances, selected_inverse

__all__ = ["edge_probabilities"]


def edge_probabilities(graph: FactorGraph, max_cost: float) -> FloatArray | None:
    """Spanning-tree probability of each pairwise factor; 0 for factors of lower arity.

    Parameters
    ----------
    graph
        No factor may have an arity above two.
    max_cost
        Largest number of multiplications of the factorisation (estimated beforehand, so that
        neither time nor memory is spent in vain).

    Returns
    -------
    Array ``(n_factors,)``, or ``None`` if the cost is too high or rounding spoilt the result.
    """
    bridges = np.zeros(graph.n_factors, dtype=np.bool_)
    find_bridges(graph.structure, bridges)
    probabilities = bridges.astype(np.float64)
    on_cycles = (graph.arities == 2) & ~bridges
    if not on_cycles.any():
        return probabilities
    labels = np.empty(graph.n_variables, dtype=np.int32)
    n_components = int(
        label_components(graph.scope_offsets, graph.slot_variables, on_cycles, labels)
    )
    first = graph.scope_offsets[:-1][on_cycles]
    ends = np.stack([graph.slot_variables[first], graph.slot_variables[first + 1]], axis=1)
    nodes, n_nodes = _numbered(ends, labels, n_components)
    values = _resistances(nodes[ends], n_nodes, max_cost)
    # every spanning forest has the same number of edges, which is the sum of the probabilities
    rank = graph.n_variables - n_components
    if values is None or not abs(values.sum() - rank) <= 1e-9 * rank:
        return None
    probabilities[on_cycles] = np.clip(values, np.finfo(np.float64).tiny, 1.0)
    return probabilities


def _numbered(ends: IntArray, labels: IntArray, n_components: int) -> tuple[IntArray, int]:
    """Number the nodes that are not grounded; -1 for the ground.

    In each component the node of highest degree is grounded: it would cause the most fill, and
    the potentials of all others stay small, which keeps the differences accurate.
    """
    degrees = np.bincount(ends.ravel(), minlength=len(labels))
    by_degree = np.argsort(degrees, kind="stable")
    ground = np.empty(n_components, dtype=np.int64)
    ground[labels[by_degree]] = by_degree  # the last one written has the highest degree
    inner = np.ones(len(labels), dtype=np.bool_)
    inner[ground] = False
    nodes = np.where(inner, np.cumsum(inner) - 1, -1).astype(np.int32)
    return nodes, int(inner.sum())


def _resistances(ends: IntArray, n_nodes: int, max_cost: float) -> FloatArray | None:
    """Effective resistance between the ends of each edge; node -1 is the ground."""
    from scipy.sparse.linalg import splu

    laplacian = _laplacian(ends, n_nodes)
    if not elimination_cost(laplacian.indptr, laplacian.indices, max_cost) <= max_cost:
        return None
    # Diagonal pivots are safe (the matrix is positive definite) and keep A = L D L'.
    factors = splu(
        laplacian,
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    ranks = factors.perm_c.astype(np.int32)
    factor = _below_diagonal(factors)
    del factors  # several times the memory of what follows
    inverse = _inverse_entries(factor)
    if inverse is None:
        # Every update of an off-diagonal entry is negative, so no fill cancels; but along a path
        # of hundreds of nodes it becomes less than 1e-308, and SciPy leaves out what is zero.
        factor = _with_all_fill(laplacian, ranks)
        inverse = _inverse_entries(factor)
        assert inverse is not None
    result = np.empty(len(ends))
    positions = np.append(ranks, np.int32(-1))  # [-1] is the ground
    resistances(factor.starts, factor.rows, *inverse, positions[ends], result)
    return result


class _Factor(NamedTuple):
    """``L`` below its diagonal of ones, by columns, and the pivots ``D``."""

    starts: IntArray
    rows: IntArray
    values: FloatArray
    pivots: FloatArray


def _below_diagonal(factors: Any) -> _Factor:
    """The factorisation of SuperLU."""
    lower, pivots = factors.L, factors.U.diagonal()
    lower.sort_indices()
    below_diagonal = np.ones(lower.nnz, dtype=np.bool_)
    below_diagonal[lower.indptr[:-1]] = False
    starts = lower.indptr - np.arange(len(lower.indptr), dtype=np.int32)
    return _Factor(starts, lower.indices[below_diagonal], lower.data[below_diagonal], pivots)


def _with_all_fill(laplacian: Any, ranks: IntArray) -> _Factor:
    """The same factorisation with every entry that may differ from zero, in the same order."""
    from scipy.sparse import coo_array

    entries = laplacian.tocoo()
    row, column = ranks[entries.row], ranks[entries.col]
    upper = row <= column
    matrix = coo_array((entries.data[upper], (row[upper], column[upper])), laplacian.shape).tocsc()
    indptr = matrix.indptr.astype(np.int64)
    shape = symbolic(indptr, matrix.indices)
    rows, values = np.empty(shape.starts[-1], dtype=np.int32), np.empty(shape.starts[-1])
    inverse_pivots = np.empty(len(ranks))
    factorise(indptr, matrix.indices, matrix.data, shape, rows, values, inverse_pivots, 0.0)
    return _Factor(shape.starts.astype(np.int32), rows, values, 1.0 / inverse_pivots)


def _inverse_entries(factor: _Factor) -> tuple[FloatArray, FloatArray] | None:
    """Diagonal and entries of the inverse on the pattern of ``L``; ``None`` if it lacks fill."""
    diagonal, below = np.empty(len(factor.pivots)), np.empty(len(factor.values))
    n_open = _dense_tail(factor.starts, factor.values, factor.pivots, diagonal, below)
    return (diagonal, below) if selected_inverse(*factor, n_open, diagonal, below) else None


def _dense_tail(
    starts: IntArray,
    values: FloatArray,
    pivots: FloatArray,
    diagonal: FloatArray,
    below: FloatArray,
) -> int:
    """Invert the last columns, those without a zero below the diagonal; their first index.

    In graphs that expand (random regular ones) nearly all work is here, and dense routines do
    it many times faster than the recurrence.
    """
    n_nodes = len(pivots)
    not_full = np.flatnonzero(np.diff(starts) != np.arange(n_nodes - 1, -1, -1))
    n_open = int(not_full[-1]) + 1 if len(not_full) else 0
    column, row = np.triu_indices(n_nodes - n_open, k=1)  # C order: column after column
    factor = np.eye(n_nodes - n_open)
    factor[row, column] = values[starts[n_open] :]
    inverse = np.linalg.inv((factor * pivots[n_open:]) @ factor.T)
    diagonal[n_open:] = np.diag(inverse)
    below[starts[n_open] :] = inverse[row, column]
    return n_open


def _laplacian(ends: IntArray, n_nodes: int) -> Any:
    from scipy.sparse import coo_array

    degrees = np.bincount(ends[ends >= 0], minlength=n_nodes)
    u, v = ends[(ends >= 0).all(axis=1)].T
    node = np.arange(n_nodes, dtype=np.int32)
    ones = np.ones(len(u))
    matrix = coo_array(
        (
            np.concatenate([-ones, -ones, degrees]),
            (np.concatenate([u, v, node]), np.concatenate([v, u, node])),
        ),
        shape=(n_nodes, n_nodes),
    )
    return matrix.tocsc()
