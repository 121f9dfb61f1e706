"""Plain Python twins of the random numbers and of the Gibbs chain."""

from __future__ import annotations

import numpy as np

MASK = 2**64 - 1


def splitmix64(key, counter):
    """Output number ``counter`` of SplitMix64 with the given seed, in Python integers."""
    z = (key + (counter + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def conditional(graph, potentials, labels, variable):
    """``p(y_i | others)`` from the scores of all labels."""
    scores = np.array(
        [
            potentials.score(np.where(np.arange(len(labels)) == variable, y, labels))
            for y in range(graph.cardinalities[variable])
        ]
    )
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def chain(graph, potentials, labels, order, n_sweeps, key):
    """The labels after ``n_sweeps`` sweeps in the given order, and the averaged conditionals."""
    labels = np.array(labels)
    sums = [np.zeros(k) for k in graph.cardinalities]
    for sweep in range(n_sweeps):
        for variable in order:
            p = conditional(graph, potentials, labels, variable)
            bits = splitmix64(int(key), sweep * graph.n_variables + int(variable))
            uniform = (bits >> 11) * 2.0**-53
            labels[variable] = int(np.searchsorted(np.cumsum(p), uniform, side="right"))
            sums[variable] += p
    return labels, [s / n_sweeps for s in sums]


def sweep_matrix(graph, potentials):
    """Transition probabilities of one sweep between all configurations, in the kernel's order."""
    from fieldfit import BruteForce
    from fieldfit.inference.conditioning import condition

    order = condition(graph, potentials, None)[0].variables
    configurations = BruteForce().configurations(graph)
    index = {tuple(labels): row for row, labels in enumerate(configurations.tolist())}
    matrix = np.eye(len(configurations))
    for variable in order:
        single = np.zeros_like(matrix)
        for row, labels in enumerate(configurations):
            p = conditional(graph, potentials, labels, variable)
            for y, probability in enumerate(p):
                single[
                    row, index[(*labels[:variable].tolist(), y, *labels[variable + 1 :].tolist())]
                ] += probability
        matrix = matrix @ single
    return matrix
