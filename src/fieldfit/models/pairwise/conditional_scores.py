"""Score vectors and Hessian of the pseudo-likelihood, row by row, for standard errors.

Not part of learning: plain NumPy over complete rows.  With residuals ``r_mi(k) = p_mi(k) - [y_mi =
k]`` a row's gradient is ``r_mi(k)`` for fields and ``r_mi(k) [y_mj = l] + [y_mi = k] r_mj(l)`` for
couplings.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray
from fieldfit.models.pairwise.pairwise_parameters import (
    IsingParameters,
    PairwiseParameters,
    indicators,
)

__all__ = ["binary_hessian", "conditional_scores"]


def conditional_scores(
    parameters: PairwiseParameters, labels: NDArray[np.int16], weights: FloatArray
) -> FloatArray:
    """Gradient of ``- sum_i log p(y_i | others)`` of each row, shape (n_rows, n_weights)."""
    first, second = parameters.edges[:, 0], parameters.edges[:, 1]
    if isinstance(parameters, IsingParameters):
        ones, expected = _binary_conditionals(parameters, labels, weights)
        residual = expected - ones
        pairs = residual[:, first] * ones[:, second] + ones[:, first] * residual[:, second]
        return parameters.binary_gradient(residual, pairs)
    chosen = indicators(labels, parameters.n_labels)
    residual = _label_conditionals(parameters, chosen, weights) - chosen
    tables = residual[:, first, :, None] * chosen[:, second, None, :]
    tables += chosen[:, first, :, None] * residual[:, second, None, :]
    rows = [
        part.reshape(len(labels), int(np.prod(part.shape[1:])))  # -1 fails where there is no row
        for part in (residual, tables)
    ]
    return np.concatenate(rows, axis=1)


def binary_hessian(
    parameters: IsingParameters,
    labels: NDArray[np.int16],
    sample_weights: FloatArray,
    weights: FloatArray,
) -> FloatArray:
    """Hessian of the pseudo-likelihood on binary variables.

    Each variable is a logistic regression on the others, ``X^T diag(v p (1 - p)) X`` in its
    threshold and couplings; a coupling is a weight of two of them.
    """
    n = parameters.n_variables
    ones, expected = _binary_conditionals(parameters, labels, weights)
    curvature = sample_weights[:, None] * expected * (1.0 - expected)
    neighbors = parameters.neighbors
    hessian = np.zeros((parameters.n_weights, parameters.n_weights))
    for variable in range(n):
        around = slice(neighbors.offsets[variable], neighbors.offsets[variable + 1])
        regressors = np.ones((len(labels), 1 + around.stop - around.start))
        regressors[:, 1:] = ones[:, neighbors.variables[around]]
        index = np.concatenate([[variable], n + neighbors.edges[around]])
        block = regressors.T @ (curvature[:, variable, None] * regressors)
        hessian[np.ix_(index, index)] += block
    if parameters.encoding == "binary":
        return hessian
    rows = parameters.binary_gradient(hessian[:, :n], hessian[:, n:])
    return parameters.binary_gradient(rows.T[:, :n], rows.T[:, n:])


def _binary_conditionals(
    parameters: IsingParameters, labels: NDArray[np.int16], weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Labels as 0.0 and 1.0, and the probability of 1 given the others."""
    thresholds, couplings = parameters.binary(weights)
    ones = labels.astype(np.float64)
    odds = thresholds + ones @ parameters.coupling_matrix(couplings)
    return ones, 0.5 * (1.0 + np.tanh(0.5 * odds))


def _label_conditionals(
    parameters: PairwiseParameters, chosen: FloatArray, weights: FloatArray
) -> FloatArray:
    """``p(y_i = k | others)`` of every row."""
    fields, tables = parameters.tables(weights)
    n, k = fields.shape
    first, second = parameters.edges[:, 0], parameters.edges[:, 1]
    blocks = np.zeros((n, n, k, k))
    blocks[first, second] = tables
    blocks[second, first] = tables.transpose(0, 2, 1)
    matrix = blocks.transpose(0, 2, 1, 3).reshape(n * k, n * k)
    logs = fields + (chosen.reshape(len(chosen), n * k) @ matrix).reshape(chosen.shape)
    logs -= logs.max(axis=2, keepdims=True)
    unnormalised = np.exp(logs)
    return np.asarray(unnormalised / unnormalised.sum(axis=2, keepdims=True))
