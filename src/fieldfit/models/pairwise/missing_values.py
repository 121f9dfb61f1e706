"""Beliefs about the missing values of samples, given the known ones of the same sample.

    p(y_i | known values of the row)

by the inference that the model was learned with, if that was a surrogate (what was learned with it
is true under it only).  Otherwise exactly where that is affordable, and else by message passing:
rows with few missing values by the table of all their configurations, the others by `infer`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from fieldfit._typing import FloatArray, LabelMatrix, LongArray
from fieldfit.graph.batch import Batch
from fieldfit.inference.auto import infer
from fieldfit.inference.junction_tree.exact import Exact
from fieldfit.models.pairwise.pairwise_parameters import PairwiseParameters
from fieldfit.objectives.base import Objective
from fieldfit.objectives.likelihood import Likelihood

__all__ = ["row_beliefs"]

#: Configurations of a row's missing values that are put in one table ...
MAX_CONFIGURATIONS = 2**14
#: ... and entries of the tables of rows that are treated together.
MAX_ENTRIES = 2**22


def row_beliefs(
    parameters: PairwiseParameters, weights: FloatArray, objective: Objective, labels: LabelMatrix
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Beliefs ``(n_rows, n_variables, n_labels)``, and for each row whether they converged.

    A known value has belief 1.
    """
    n_labels = parameters.n_labels
    beliefs = (labels[:, :, None] == np.arange(n_labels)).astype(np.float64)
    converged = np.ones(len(labels), dtype=bool)
    incomplete = np.flatnonzero((labels < 0).any(axis=1))
    is_surrogate = isinstance(objective, Likelihood) and not isinstance(objective.inference, Exact)
    tables = parameters.tables(weights)
    patterns, which = np.unique(labels[incomplete] < 0, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        rows, missing = incomplete[which.reshape(-1) == number], np.flatnonzero(pattern)
        n_configurations = float(n_labels) ** len(missing)
        if is_surrogate or n_configurations > MAX_CONFIGURATIONS:
            for row in rows:
                beliefs[row], converged[row] = _inferred(
                    parameters, weights, objective, labels[row]
                )
            continue
        size = max(1, int(MAX_ENTRIES // n_configurations))
        for begin in range(0, len(rows), size):
            some = rows[begin : begin + size]
            found = _enumerated(parameters.edges, *tables, labels[some], missing)
            beliefs[np.ix_(some, missing)] = found
    return beliefs, converged


def _inferred(
    parameters: PairwiseParameters,
    weights: FloatArray,
    objective: Objective,
    row: NDArray[np.int16],
) -> tuple[FloatArray, bool]:
    """Beliefs of one row by a run of inference with the known values as evidence."""
    graph, potentials = parameters.graph, parameters.potentials(weights)
    observed = row.astype(np.int32)
    if isinstance(objective, Likelihood) and not isinstance(objective.inference, Exact):
        result = objective.inference.run_batch(Batch.of([graph]), potentials, observed)
    else:
        result = infer(graph, potentials, observed=observed)
    return result.beliefs.unary_matrix(), bool(result.converged)


def _enumerated(
    edges: LongArray,
    unary: FloatArray,
    tables: FloatArray,
    labels: LabelMatrix,
    missing: LongArray,
) -> FloatArray:
    """Exact beliefs ``(n_rows, n_missing, n_labels)`` of rows that miss the same values."""
    n_labels, count = unary.shape[1], len(missing)
    place = np.full(len(unary), -1)
    place[missing] = np.arange(count)
    first, second = place[edges].T  # -1 where the value is known
    fields = np.tile(unary[missing], (len(labels), 1, 1))
    for edge in np.flatnonzero((first >= 0) != (second >= 0)):
        i, j = edges[edge]
        if first[edge] >= 0:
            fields[:, first[edge]] += tables[edge][:, labels[:, j]].T
        else:
            fields[:, second[edge]] += tables[edge][labels[:, i]]
    # one column for each configuration of the missing values
    values = np.indices((n_labels,) * count).reshape(count, -1)
    scores = np.zeros((len(labels), values.shape[1]))
    for k in range(count):
        scores += fields[:, k, values[k]]
    for edge in np.flatnonzero((first >= 0) & (second >= 0)):
        scores += tables[edge][values[first[edge]], values[second[edge]]]
    probabilities = softmax(scores, axis=1)
    chosen = (values[:, None, :] == np.arange(n_labels)[:, None]).reshape(-1, values.shape[1])
    found: FloatArray = (probabilities @ chosen.T).reshape(len(labels), count, n_labels)
    return found
