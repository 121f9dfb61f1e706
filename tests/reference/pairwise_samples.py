"""Generative pairwise models by enumeration of all configurations; nothing shared with the package.

A model is unary tables ``(n, K)``, pairwise tables ``(n_edges, K, K)`` and edges; samples have -1
where a label is missing.
"""

from __future__ import annotations

from itertools import product

import numpy as np


def configurations(n_variables, n_labels):
    return np.array(list(product(range(n_labels), repeat=n_variables)))


def configuration_scores(unary, tables, edges, rows):
    score = unary[np.arange(len(unary)), rows].sum(axis=1)
    for (i, j), table in zip(edges, tables, strict=True):
        score = score + table[rows[:, i], rows[:, j]]
    return score


def log_sum(values):
    largest = values.max()
    return largest + np.log(np.exp(values - largest).sum())


def agrees(rows, known):
    """Configurations that agree with the known labels."""
    return np.all((known < 0) | (rows == known), axis=1)


def negative_log_likelihood(unary, tables, edges, samples, weights):
    rows = configurations(*unary.shape)
    scores = configuration_scores(unary, tables, edges, rows)
    total = log_sum(scores)
    return sum(
        weight * (total - log_sum(scores[agrees(rows, sample)]))
        for sample, weight in zip(samples, weights, strict=True)
    )


def negative_log_pseudo_likelihood(unary, tables, edges, samples, weights):
    """Every known label given the other known ones, missing ones summed out."""
    rows = configurations(*unary.shape)
    scores = configuration_scores(unary, tables, edges, rows)
    value = 0.0
    for sample, weight in zip(samples, weights, strict=True):
        for i in np.flatnonzero(sample >= 0):
            others = sample.copy()
            others[i] = -1
            value += weight * (
                log_sum(scores[agrees(rows, others)]) - log_sum(scores[agrees(rows, sample)])
            )
    return value


def ising_tables(thresholds, couplings, edges, values=(0.0, 1.0)):
    """Tables of ``sum t x + sum w x x`` for two values of ``x``, and its edges."""
    x = np.array(values)
    unary = np.outer(thresholds, x)
    tables = np.array([couplings[i, j] * np.outer(x, x) for i, j in edges]).reshape(-1, 2, 2)
    return unary, tables
