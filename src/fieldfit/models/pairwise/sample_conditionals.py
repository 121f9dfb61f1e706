"""Pseudo-likelihood kernels of one pairwise Markov random field over many complete samples.

All samples share the parameters, so no graph is built for a sample.  The value is

    - sum_m v_m sum_i log p(y_mi | y_m without i),    p ∝ exp(h_mi(k)),
    h_mi(k) = f_i(k) + sum over neighbours j of J_ij(k, y_mj)

and with the residual ``r_mi(k) = v_m (p_mi(k) - [k = y_mi])`` the gradient is ``sum_m r_mi(k)``
for a field and ``sum_m r_mi(k) [y_mj = l] + r_mj(l) [y_mi = k]`` for a coupling.

Variables are the outermost loop: the couplings of one variable and their gradient (183 kB each for
53 variables of 21 labels) then stay in the second-level cache while all samples pass by, in blocks
for which the rows of a few neighbours stay in the first-level cache.  A call
serves a range of variables, so that they can be shared out among threads.  Each coupling is
touched by the two ends of its edge; these write to two different arrays (``sides``), whose sum
does not depend on the order.

Reference: Besag, "Statistical analysis of non-lattice data", The Statistician 24 (1975).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray, LongArray
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.matrix_vector import LANES, add_four_rows, add_row
from fieldfit.numeric.simd import SAFE_FASTMATH, fast_exp, fast_log, load, store

__all__ = ["LANES", "Neighbors", "binary_conditionals", "count_pairs", "label_conditionals"]

Labels = NDArray[np.uint8]

#: Samples that the binary kernel takes at a time; their log odds stay in the first-level cache.
BLOCK = 256
#: The same for more labels: the weights of a block and the rows of four neighbours stay in it.
LABEL_BLOCK = 64


class Neighbors(NamedTuple):
    """For each variable its neighbours, the edge to each, and which end of it the variable is."""

    offsets: LongArray  # (n_variables + 1,)
    variables: LongArray  # (2 n_edges,)
    edges: LongArray  # (2 n_edges,)
    sides: LongArray  # (2 n_edges,) 0: the variable comes first in the edge


@kernel(fastmath=SAFE_FASTMATH)
def binary_conditionals(
    begin: int,
    end: int,
    neighbors: Neighbors,
    thresholds: FloatArray,
    couplings: FloatArray,
    labels: Labels,
    sample_weights: FloatArray,
    values: FloatArray,
    threshold_gradient: FloatArray,
    side_gradients: FloatArray,
) -> None:
    """Variables ``begin:end`` of a model on {0, 1}; log odds are ``h_mi = t_i + sum_j w_ij y_mj``.

    ``labels`` has shape (n_variables, n_samples), so that samples are next to each other;
    ``values`` gets each variable's part of the value; ``side_gradients`` has shape (2, n_edges).
    """
    for variable in range(begin, end):
        values[variable] = _binary_variable(
            variable, neighbors, thresholds, couplings, labels, sample_weights,
            threshold_gradient, side_gradients,
        )  # fmt: skip


@kernel(fastmath=SAFE_FASTMATH)
def _binary_variable(
    variable: int,
    neighbors: Neighbors,
    thresholds: FloatArray,
    couplings: FloatArray,
    labels: Labels,
    sample_weights: FloatArray,
    threshold_gradient: FloatArray,
    side_gradients: FloatArray,
) -> float:
    n_samples = labels.shape[1]
    first, last = neighbors.offsets[variable], neighbors.offsets[variable + 1]
    odds = np.empty(BLOCK)
    value = 0.0
    own_gradient = 0.0
    for position in range(first, last):
        side_gradients[neighbors.sides[position], neighbors.edges[position]] = 0.0
    for begin in range(0, n_samples, BLOCK):
        size = min(BLOCK, n_samples - begin)
        own = labels[variable, begin : begin + size]
        weights = sample_weights[begin : begin + size]
        for m in range(size):
            odds[m] = thresholds[variable]
        for position in range(first, last):
            coupling = couplings[neighbors.edges[position]]
            other = labels[neighbors.variables[position], begin : begin + size]
            for m in range(size):
                odds[m] += coupling * other[m]
        for m in range(size):
            h = odds[m]
            ratio = fast_exp(-abs(h))  # in (0, 1]: neither overflow nor a logarithm of zero
            larger = 1.0 / (1.0 + ratio)
            one = larger if h > 0.0 else ratio * larger
            # log(1 + exp h) - h y
            value += weights[m] * (max(h, 0.0) + fast_log(1.0 + ratio) - h * own[m])
            odds[m] = weights[m] * (one - own[m])
            own_gradient += odds[m]
        for position in range(first, last):
            other = labels[neighbors.variables[position], begin : begin + size]
            total = 0.0
            for m in range(size):
                total += odds[m] * other[m]
            side_gradients[neighbors.sides[position], neighbors.edges[position]] += total
    threshold_gradient[variable] = own_gradient
    return value


@kernel(fastmath=SAFE_FASTMATH)
def label_conditionals(
    lanes: tuple[float, ...],
    begin: int,
    end: int,
    neighbors: Neighbors,
    fields: FloatArray,
    tables: FloatArray,
    labels: Labels,
    sample_weights: FloatArray,
    values: FloatArray,
    field_gradient: FloatArray,
    side_gradients: FloatArray,
) -> None:
    """Variables ``begin:end`` of a model with ``K = fields.shape[1]`` labels.

    ``lanes`` is a tuple of length ``K`` rounded up to a multiple of `LANES`: inner loops have a
    length that is known when the kernel is compiled.  ``tables`` has shape (n_edges, K, K),
    ``labels`` (n_variables, n_samples), ``side_gradients`` (2, n_edges, K, K).
    """
    for variable in range(begin, end):
        values[variable] = _label_variable(
            lanes, variable, neighbors, fields, tables, labels, sample_weights,
            field_gradient, side_gradients,
        )  # fmt: skip


@kernel(fastmath=SAFE_FASTMATH)
def _label_variable(
    lanes: tuple[float, ...],
    variable: int,
    neighbors: Neighbors,
    fields: FloatArray,
    tables: FloatArray,
    labels: Labels,
    sample_weights: FloatArray,
    field_gradient: FloatArray,
    side_gradients: FloatArray,
) -> float:
    n_labels = fields.shape[1]
    n_samples = labels.shape[1]
    first = neighbors.offsets[variable]
    degree = neighbors.offsets[variable + 1] - first
    padded = len(lanes)
    rows = np.zeros(degree * n_labels * padded)  # [neighbour, its label, own label]
    sums = np.zeros(degree * n_labels * padded)
    _gather_rows(neighbors, first, degree, tables, padded, rows)
    own_field = np.full(padded, -np.inf)  # labels beyond the last have probability zero
    own_field[:n_labels] = fields[variable]
    own_sum = np.zeros(padded)
    block = np.empty(LABEL_BLOCK * padded)  # log weights, then residuals
    value = 0.0
    for begin in range(0, n_samples, LABEL_BLOCK):
        end = min(begin + LABEL_BLOCK, n_samples)
        for m in range(end - begin):
            block[m * padded : (m + 1) * padded] = own_field
        _add_rows(lanes, neighbors, first, degree, n_labels, labels, begin, end, rows, block)
        own = labels[variable]
        for m in range(begin, end):
            place = (m - begin) * padded
            chosen = block[place + np.int64(own[m])]
            largest = -np.inf
            for k in range(padded):
                largest = max(largest, load(block, place + k))
            total = 0.0
            for k in range(padded):
                weight = fast_exp(load(block, place + k) - largest)
                store(block, place + k, weight)
                total += weight
            value += sample_weights[m] * (fast_log(total) + largest - chosen)
            scale = sample_weights[m] / total
            for k in range(padded):
                store(block, place + k, load(block, place + k) * scale)
            block[place + np.int64(own[m])] -= sample_weights[m]
            add_row(lanes, own_sum, 0, block, place)
        for position in range(degree):
            other = labels[neighbors.variables[first + position]]
            for m in range(begin, end):
                row = (position * n_labels + np.int64(other[m])) * padded
                add_row(lanes, sums, row, block, (m - begin) * padded)
    field_gradient[variable] = own_sum[:n_labels]
    _scatter_sums(neighbors, first, degree, sums, padded, side_gradients)
    return value


@kernel(inline="always")
def _add_rows(
    lanes: tuple[float, ...],
    neighbors: Neighbors,
    first: int,
    degree: int,
    n_labels: int,
    labels: Labels,
    begin: int,
    end: int,
    rows: FloatArray,
    block: FloatArray,
) -> None:
    """Add, for samples ``begin:end``, the row of each neighbour's label, four at once."""
    padded = len(lanes)
    position = 0
    while position + 4 <= degree:
        a = labels[neighbors.variables[first + position]]
        b = labels[neighbors.variables[first + position + 1]]
        c = labels[neighbors.variables[first + position + 2]]
        d = labels[neighbors.variables[first + position + 3]]
        for m in range(begin, end):
            add_four_rows(
                lanes, block, (m - begin) * padded, rows,
                (position * n_labels + np.int64(a[m])) * padded,
                ((position + 1) * n_labels + np.int64(b[m])) * padded,
                ((position + 2) * n_labels + np.int64(c[m])) * padded,
                ((position + 3) * n_labels + np.int64(d[m])) * padded,
            )  # fmt: skip
        position += 4
    while position < degree:
        a = labels[neighbors.variables[first + position]]
        for m in range(begin, end):
            row = (position * n_labels + np.int64(a[m])) * padded
            add_row(lanes, block, (m - begin) * padded, rows, row)
        position += 1


@kernel
def _gather_rows(
    neighbors: Neighbors, first: int, degree: int, tables: FloatArray, padded: int, rows: FloatArray
) -> None:
    """``rows[neighbour, l, k] = J(k, l)`` with the own label ``k`` fastest."""
    n_labels = tables.shape[1]
    for position in range(degree):
        table = tables[neighbors.edges[first + position]]
        side = neighbors.sides[first + position]
        for other in range(n_labels):
            start = (position * n_labels + other) * padded
            for own in range(n_labels):
                rows[start + own] = table[own, other] if side == 0 else table[other, own]


@kernel
def _scatter_sums(
    neighbors: Neighbors,
    first: int,
    degree: int,
    sums: FloatArray,
    padded: int,
    side_gradients: FloatArray,
) -> None:
    """The transpose of `_gather_rows`, into the variable's side of each edge."""
    n_labels = side_gradients.shape[2]
    for position in range(degree):
        side = neighbors.sides[first + position]
        table = side_gradients[side, neighbors.edges[first + position]]
        for other in range(n_labels):
            start = (position * n_labels + other) * padded
            for own in range(n_labels):
                if side == 0:
                    table[own, other] = sums[start + own]
                else:
                    table[other, own] = sums[start + own]


@kernel
def count_pairs(
    labels: NDArray[np.int16],
    sample_weights: FloatArray,
    edges: LongArray,
    unary_counts: FloatArray,
    table_counts: FloatArray,
) -> None:
    """Add up the weights of samples that have each label and each pair of labels.

    ``labels`` has shape (n_samples, n_variables), -1 where missing; terms with a missing label are
    left out.  Counts have shapes (n_variables, K) and (n_edges, K, K).
    """
    for m in range(labels.shape[0]):
        weight = sample_weights[m]
        for variable in range(labels.shape[1]):
            if labels[m, variable] >= 0:
                unary_counts[variable, labels[m, variable]] += weight
        for edge in range(edges.shape[0]):
            left, right = labels[m, edges[edge, 0]], labels[m, edges[edge, 1]]
            if left >= 0 and right >= 0:
                table_counts[edge, left, right] += weight
