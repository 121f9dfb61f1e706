"""Linear chains by NumPy and by enumeration: slow, and nothing shared with the kernels."""

from __future__ import annotations

import itertools

import numpy as np


def token_scores(layout, features, weights):
    """``(n_tokens, n_labels)`` from a dense matrix of weights."""
    matrix = np.zeros((layout.n_attributes, layout.n_labels))
    rows = np.repeat(np.arange(layout.n_attributes), np.diff(layout.state_offsets))
    matrix[rows, layout.state_labels] = weights[: layout.n_states]
    values = features.values if features.values.size else np.ones(len(features.indices))
    scores = np.zeros((features.n_tokens, layout.n_labels))
    for token in range(features.n_tokens):
        for n in range(features.offsets[token], features.offsets[token + 1]):
            scores[token] += values[n] * matrix[features.indices[n]]
    _, _, start, end = layout.split(weights)
    if layout.boundary:
        bounds = features.sequence_offsets
        for first, last in itertools.pairwise(bounds):
            if last > first:
                scores[first] += start
                scores[last - 1] += end
    return scores


def transitions(layout, weights):
    pairs = layout.split(weights)[1]
    table = np.zeros((layout.n_labels, layout.n_labels))
    for i, j in itertools.product(range(layout.n_labels), repeat=2):
        if layout.transitions[i, j] >= 0:
            table[i, j] = pairs[layout.transitions[i, j]]
    return table


def log_sum_exp(values, axis):
    top = values.max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(values - top).sum(axis=axis)) + np.squeeze(top, axis=axis)


def forward_backward(scores, table, given=None):
    """Log-partition and marginals in the log domain; ``given`` labels (-1: free)."""
    scores = scores.copy()
    if given is not None:
        for t, label in enumerate(given):
            if label >= 0:
                scores[t, np.arange(scores.shape[1]) != label] = -np.inf
    length = len(scores)
    forward, backward = np.zeros_like(scores), np.zeros_like(scores)
    forward[0] = scores[0]
    for t in range(1, length):
        forward[t] = scores[t] + log_sum_exp(forward[t - 1][:, None] + table, axis=0)
    for t in range(length - 2, -1, -1):
        backward[t] = log_sum_exp(table + (scores[t + 1] + backward[t + 1])[None, :], axis=1)
    log_partition = float(log_sum_exp(forward[-1], axis=0))
    marginals = np.exp(forward + backward - log_partition)
    pairs = np.zeros_like(table)
    for t in range(1, length):
        pairs += np.exp(
            forward[t - 1][:, None] + table + (scores[t] + backward[t])[None, :] - log_partition
        )
    return log_partition, marginals, pairs


def enumerate_chain(scores, table, given=None):
    """The same by summing over all labellings, and the best labelling."""
    length, n_labels = scores.shape
    labellings = np.array(list(itertools.product(range(n_labels), repeat=length)))
    totals = scores[np.arange(length), labellings].sum(axis=1)
    totals = totals + table[labellings[:, :-1], labellings[:, 1:]].sum(axis=1)
    if given is not None:
        given = np.asarray(given)
        allowed = np.all((given < 0) | (labellings == given), axis=1)
        totals = np.where(allowed, totals, -np.inf)
    log_partition = float(log_sum_exp(totals, axis=0))
    probabilities = np.exp(totals - log_partition)
    marginals = np.zeros_like(scores)
    for t in range(length):
        np.add.at(marginals[t], labellings[:, t], probabilities)
    return log_partition, marginals, labellings[np.argmax(totals)], float(totals.max())


def value(layout, features, labels, weights):
    """Negative log-likelihood of the given labels by the twin."""
    scores, table = token_scores(layout, features, weights), transitions(layout, weights)
    total = 0.0
    bounds = features.sequence_offsets
    for first, last in itertools.pairwise(bounds):
        if last > first:
            free = forward_backward(scores[first:last], table)[0]
            total += free - forward_backward(scores[first:last], table, labels[first:last])[0]
    return total
