"""Marginalisation of missing labels by enumeration, for likelihood and pseudo-likelihood.

log sum over the missing labels of exp(score of the row)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray, LongArray
from fieldfit.errors import Place, TooLargeError
from fieldfit.models.pairwise.pairwise_parameters import PairwiseParameters
from fieldfit.models.pairwise.sample_conditionals import Neighbors
from fieldfit.models.pairwise.sample_data import Samples
from fieldfit.models.pairwise.sample_partition import difference_hessian
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import fast_exp

__all__ = [
    "MAX_CONFIGURATIONS",
    "FreeScratch",
    "MissingRows",
    "free_log_sum",
    "free_missing",
    "known_conditionals",
    "missing_log_sums",
    "new_scratch",
    "own_log_sum",
]

# -- Kernels -------------------------------------------------------------------------------
# For a sample with known labels and a set ``F`` of free variables, let
#
#     L(F) = log sum over y_F of exp(terms of the score that touch F).
#
# The log-likelihood of what is known then changes by ``L(U)`` for the missing variables ``U``, and
# the conditional probability of a known label ``y_i`` given the other known ones is
#
#     log p(y_i | known) = h_i(y_i) + L(U) - L(U + {i}),   h_i: terms of i with known variables only
#
# because the numerator sums over ``y_U`` and the denominator over ``y_U`` and ``y_i``.  The
# gradients are probabilities of the free labels.  The work for one sample is ``K**|F|``; callers
# limit it.  `missing_conditionals.py` has all conditionals of a row from one enumeration of
# ``y_U``; those here are its slow twin, and where it turns to if its sums underflow.


class FreeScratch(NamedTuple):
    """Memory for the enumeration of one set of free variables."""

    fields: FloatArray  # (max_free, K) terms of each free variable with known ones
    beliefs: FloatArray  # (max_free, K)
    scores: FloatArray  # (K**max_free,)
    configuration: LongArray  # (max_free,)
    pairs: LongArray  # (max_free**2, 3) positions of two free neighbours, and their edge
    free: LongArray  # (max_free,)
    is_free: NDArray[np.int64]  # (n_variables,) position in ``free`` or -1


def new_scratch(n_variables: int, n_labels: int, max_free: int) -> FreeScratch:
    """Scratch for up to ``max_free`` free variables."""
    return FreeScratch(
        fields=np.empty((max_free, n_labels)),
        beliefs=np.empty((max_free, n_labels)),
        scores=np.empty(n_labels**max_free),
        configuration=np.empty(max_free, dtype=np.int64),
        pairs=np.empty((max_free * max_free, 3), dtype=np.int64),
        free=np.empty(max_free, dtype=np.int64),
        is_free=np.full(n_variables, -1),
    )


@kernel
def free_log_sum(
    neighbors: Neighbors,
    unary: FloatArray,
    tables: FloatArray,
    labels: NDArray[np.int16],
    n_free: int,
    scale: float,
    unary_gradient: FloatArray,
    table_gradient: FloatArray,
    scratch: FreeScratch,
) -> float:
    """``L(F)`` of ``scratch.free[:n_free]``; adds ``scale`` times its gradient."""
    n_labels = unary.shape[1]
    n_pairs = 0
    for position in range(n_free):
        variable = scratch.free[position]
        for k in range(n_labels):
            scratch.fields[position, k] = unary[variable, k]
            scratch.beliefs[position, k] = 0.0
        for entry in range(neighbors.offsets[variable], neighbors.offsets[variable + 1]):
            other = neighbors.variables[entry]
            table = tables[neighbors.edges[entry]]
            side = neighbors.sides[entry]
            if scratch.is_free[other] >= 0:
                if side == 0:  # each pair of free neighbours once, in the order of its edge
                    scratch.pairs[n_pairs, 0] = position
                    scratch.pairs[n_pairs, 1] = scratch.is_free[other]
                    scratch.pairs[n_pairs, 2] = neighbors.edges[entry]
                    n_pairs += 1
                continue
            label = labels[other]
            for k in range(n_labels):
                scratch.fields[position, k] += table[k, label] if side == 0 else table[label, k]

    n_configurations = n_labels**n_free
    configuration = scratch.configuration
    largest = -np.inf
    configuration[:n_free] = 0
    for c in range(n_configurations):
        score = 0.0
        for position in range(n_free):
            score += scratch.fields[position, configuration[position]]
        for pair in range(n_pairs):
            left = configuration[scratch.pairs[pair, 0]]
            right = configuration[scratch.pairs[pair, 1]]
            score += tables[scratch.pairs[pair, 2], left, right]
        scratch.scores[c] = score
        largest = max(largest, score)
        _advance(configuration, n_free, n_labels)
    total = 0.0
    for c in range(n_configurations):
        scratch.scores[c] = fast_exp(scratch.scores[c] - largest)
        total += scratch.scores[c]

    configuration[:n_free] = 0
    for c in range(n_configurations):
        weight = scratch.scores[c] * (scale / total)
        for position in range(n_free):
            scratch.beliefs[position, configuration[position]] += weight
        for pair in range(n_pairs):
            left = configuration[scratch.pairs[pair, 0]]
            right = configuration[scratch.pairs[pair, 1]]
            table_gradient[scratch.pairs[pair, 2], left, right] += weight
        _advance(configuration, n_free, n_labels)
    for position in range(n_free):
        variable = scratch.free[position]
        for k in range(n_labels):
            unary_gradient[variable, k] += scratch.beliefs[position, k]
        for entry in range(neighbors.offsets[variable], neighbors.offsets[variable + 1]):
            other = neighbors.variables[entry]
            if scratch.is_free[other] >= 0:
                continue
            table = table_gradient[neighbors.edges[entry]]
            label = labels[other]
            for k in range(n_labels):
                if neighbors.sides[entry] == 0:
                    table[k, label] += scratch.beliefs[position, k]
                else:
                    table[label, k] += scratch.beliefs[position, k]
    return largest + np.log(total)


@kernel(inline="always")
def _advance(configuration: LongArray, n_free: int, n_labels: int) -> None:
    """The next configuration of an odometer, the first position fastest."""
    for position in range(n_free):
        configuration[position] += 1
        if configuration[position] < n_labels:
            return
        configuration[position] = 0


@kernel
def free_missing(labels: NDArray[np.int16], scratch: FreeScratch) -> int:
    """Make the missing variables of a sample the free ones; returns their number."""
    n_free = 0
    for variable in range(len(labels)):
        scratch.is_free[variable] = -1
        if labels[variable] < 0:
            scratch.is_free[variable] = n_free
            scratch.free[n_free] = variable
            n_free += 1
    return n_free


@kernel
def missing_log_sums(
    neighbors: Neighbors,
    unary: FloatArray,
    tables: FloatArray,
    labels: NDArray[np.int16],
    sample_weights: FloatArray,
    unary_gradient: FloatArray,
    table_gradient: FloatArray,
    scratch: FreeScratch,
) -> float:
    """``sum_m v_m L(missing variables of m)``; its gradient is added."""
    value = 0.0
    for m in range(labels.shape[0]):
        n_free = free_missing(labels[m], scratch)
        value += sample_weights[m] * free_log_sum(
            neighbors, unary, tables, labels[m], n_free, sample_weights[m],
            unary_gradient, table_gradient, scratch,
        )  # fmt: skip
    return value


@kernel
def own_log_sum(
    neighbors: Neighbors,
    unary: FloatArray,
    tables: FloatArray,
    row: NDArray[np.int16],
    variable: int,
    n_missing: int,
    scale: float,
    unary_gradient: FloatArray,
    table_gradient: FloatArray,
    scratch: FreeScratch,
) -> float:
    """``L(U + {i}) - h_i(y_i)`` of a known variable; adds ``scale`` times its gradient."""
    own = row[variable]
    value = -unary[variable, own]
    unary_gradient[variable, own] -= scale
    for entry in range(neighbors.offsets[variable], neighbors.offsets[variable + 1]):
        label = row[neighbors.variables[entry]]
        if label < 0:
            continue
        edge = neighbors.edges[entry]
        left, right = (own, label) if neighbors.sides[entry] == 0 else (label, own)
        value -= tables[edge, left, right]
        table_gradient[edge, left, right] -= scale
    scratch.is_free[variable] = n_missing
    scratch.free[n_missing] = variable
    value += free_log_sum(
        neighbors, unary, tables, row, n_missing + 1, scale,
        unary_gradient, table_gradient, scratch,
    )  # fmt: skip
    scratch.is_free[variable] = -1
    return value


@kernel
def known_conditionals(
    neighbors: Neighbors,
    unary: FloatArray,
    tables: FloatArray,
    labels: NDArray[np.int16],
    sample_weights: FloatArray,
    unary_gradient: FloatArray,
    table_gradient: FloatArray,
    scratch: FreeScratch,
) -> float:
    """``- sum_m v_m sum over known i of log p(y_mi | other known)``; its gradient is added."""
    value = 0.0
    for m in range(labels.shape[0]):
        row = labels[m]
        weight = sample_weights[m]
        n_missing = free_missing(row, scratch)
        n_known = len(row) - n_missing
        value -= n_known * weight * free_log_sum(
            neighbors, unary, tables, row, n_missing, -n_known * weight,
            unary_gradient, table_gradient, scratch,
        )  # fmt: skip
        for variable in range(len(row)):
            if row[variable] >= 0:
                value += weight * own_log_sum(
                    neighbors, unary, tables, row, variable, n_missing, weight,
                    unary_gradient, table_gradient, scratch,
                )  # fmt: skip
    return value


# -- All rows with missing labels ----------------------------------------------------------


#: A kernel of `fieldfit.models.pairwise.missing_labels`.
Kernel = Callable[..., float]

#: Configurations of missing labels that are enumerated for one row (about a millisecond).
MAX_CONFIGURATIONS = 2**16


class MissingRows:
    """The rows of some samples that have a missing label.

    ``n_more`` variables are free besides the missing ones (1 for conditionals of single variables).
    """

    def __init__(self, parameters: PairwiseParameters, samples: Samples, n_more: int) -> None:
        self.parameters = parameters
        self.labels = samples.labels[samples.n_complete :]
        self.weights = samples.weights[samples.n_complete :]
        k = parameters.n_labels
        most = int(np.log(MAX_CONFIGURATIONS) / np.log(k) + 1e-9) - n_more
        if samples.max_missing > most:
            rows = np.flatnonzero(samples.inverse == samples.n_rows - 1)
            raise TooLargeError(
                f"must have at most {most} missing labels in a row to be summed out "
                f"({k} labels each), got {samples.max_missing}",
                Place("samples", samples.first + int(rows[0]) if len(rows) else None),
            )
        self._max_free = samples.max_missing + n_more

    @property
    def n_rows(self) -> int:
        return len(self.labels)

    def evaluate(self, kernel: Kernel, weights: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Value and gradient (on unary and pairwise tables) of all rows."""
        return self._run(kernel, self.parameters.tables(weights), self.labels, self.weights)

    def row_gradients(self, kernel: Kernel, weights: FloatArray) -> FloatArray:
        """Gradient of each row of weight 1, shape (n_rows, n_weights)."""
        gradients = np.empty((self.n_rows, self.parameters.n_weights))
        tables = self.parameters.tables(weights)
        for row in range(self.n_rows):
            _, *found = self._run(kernel, tables, self.labels[row : row + 1], np.ones(1))
            gradients[row] = self.parameters.table_gradient(*found)
        return gradients

    def hessian(self, kernel: Kernel, weights: FloatArray) -> FloatArray:
        """Second derivatives, by differences."""

        def gradient(w: FloatArray) -> FloatArray:
            _, unary, tables = self.evaluate(kernel, w)
            return self.parameters.table_gradient(unary, tables)

        return difference_hessian(gradient, weights)

    def _run(
        self,
        kernel: Kernel,
        tables: tuple[FloatArray, FloatArray],
        labels: NDArray[np.int16],
        weights: FloatArray,
    ) -> tuple[float, FloatArray, FloatArray]:
        given = self.parameters
        scratch = new_scratch(given.n_variables, given.n_labels, self._max_free)
        gradients = np.zeros_like(tables[0]), np.zeros_like(tables[1])
        value = kernel(given.neighbors, *tables, labels, weights, *gradients, scratch)
        return float(value), *gradients
