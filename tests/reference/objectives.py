"""Objectives by enumeration, one labelling after the other; slow and plain."""

from __future__ import annotations

import numpy as np

import fieldfit as ff


def log_sum(scores):
    top = scores.max()
    return top + np.log(np.exp(scores - top).sum()) if top > -np.inf else -np.inf


def scores(graph, potentials, observed=None):
    return ff.BruteForce().scores(graph, potentials, observed)


def conditional(graph, potentials, labels, block):
    """``-log p(y_block | the other given labels)``, missing variables summed out."""
    labels = np.asarray(labels)
    freed = labels.copy()
    freed[list(block)] = -1
    if np.array_equal(freed, labels):  # nothing of the block is given
        return 0.0
    return log_sum(scores(graph, potentials, freed)) - log_sum(scores(graph, potentials, labels))


def likelihood(graph, potentials, labels):
    return conditional(graph, potentials, labels, range(graph.n_variables))


def block_likelihood(graph, potentials, labels, blocks):
    return sum(conditional(graph, potentials, labels, block) for block in blocks)


def pseudo_likelihood(graph, potentials, labels):
    return block_likelihood(graph, potentials, labels, [[i] for i in range(graph.n_variables)])


def agreeing(table, labels):
    """The part of a table that agrees with the labels of its axes."""
    return table[tuple(slice(None) if y < 0 else slice(y, y + 1) for y in labels)]


def independent(graph, potentials, labels):
    """Unary tables and factors of arity one; all others are left out."""
    unary = [potentials.unary(i).copy() for i in range(graph.n_variables)]
    for a in range(graph.n_factors):
        if len(graph.scope(a)) == 1:
            unary[graph.scope(a)[0]] += potentials.factor(a)
    return sum(
        log_sum(table) - log_sum(agreeing(table, [labels[i]])) for i, table in enumerate(unary)
    )


def piecewise(graph, potentials, labels):
    """Every table by itself."""
    total = 0.0
    for i in range(graph.n_variables):
        table = potentials.unary(i)
        total += log_sum(table) - log_sum(agreeing(table, [labels[i]]))
    for a in range(graph.n_factors):
        table = potentials.factor(a)
        total += log_sum(table) - log_sum(agreeing(table, [labels[i] for i in graph.scope(a)]))
    return total


def shared_piecewise(graph, potentials, labels):
    """Unary tables, and factors of arity one, shared out to the other factors."""
    unary = [potentials.unary(i).copy() for i in range(graph.n_variables)]
    degrees = np.zeros(graph.n_variables)
    for a in range(graph.n_factors):
        scope = graph.scope(a)
        if len(scope) == 1:
            unary[scope[0]] += potentials.factor(a)
        elif len(scope) >= 2:
            degrees[list(scope)] += 1
    total = 0.0
    for i in np.flatnonzero(degrees == 0):
        total += log_sum(unary[i]) - log_sum(agreeing(unary[i], [labels[i]]))
    for a in range(graph.n_factors):
        scope = graph.scope(a)
        if len(scope) < 2:
            continue
        table = potentials.factor(a).copy()
        for position, i in enumerate(scope):
            shape = [1] * len(scope)
            shape[position] = -1
            table += (unary[i] / degrees[i]).reshape(shape)
        total += log_sum(table) - log_sum(agreeing(table, [labels[i] for i in scope]))
    return total


def hinge(graph, potentials, labels, margin):
    """Best score with the loss, less the best score that agrees with the labels."""
    labels = np.asarray(labels)
    agreeing_scores = scores(graph, potentials, labels)
    return augmented(graph, potentials, labels, margin).max() - agreeing_scores.max()


def augmented(graph, potentials, labels, margin):
    """Scores of all labellings, each with the loss added."""
    labels = np.asarray(labels)
    everything = ff.BruteForce().configurations(graph)
    wrong = (everything != labels) & (labels >= 0)
    return scores(graph, potentials) + margin * wrong.sum(axis=1)
