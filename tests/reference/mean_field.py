"""Plain NumPy twins of naive mean field, and enumeration of small models."""

from __future__ import annotations

from itertools import product

import numpy as np

from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials


def random_model(rng, n_variables=5, zeros=0.0, scale=1.0, max_labels=4, max_arity=4):
    """Any arity from 0 to 4, repeated scopes, mixed cardinalities; weight is never zero."""
    cardinalities = rng.integers(1, max_labels + 1, size=n_variables)
    scopes = []
    for _ in range(rng.integers(0, 2 * n_variables)):
        arity = min(int(rng.integers(0, max_arity + 1)), n_variables)
        scopes.append(tuple(int(i) for i in rng.permutation(n_variables)[:arity]))
    graph = FactorGraph(cardinalities, scopes + scopes[:1])
    kept = rng.integers(0, cardinalities)  # a configuration that stays possible

    def table(shape, index):
        values = scale * rng.normal(size=shape)
        forbidden = np.asarray(rng.random(shape) < zeros)
        forbidden[index] = False
        return np.where(forbidden, -np.inf, values)

    unary = [table((k,), (y,)) for k, y in zip(cardinalities, kept, strict=True)]
    factors = [table(graph.table_shape(a), tuple(int(kept[i]) for i in graph.scope(a)))
               for a in range(graph.n_factors)]  # fmt: skip
    return graph, Potentials(graph, unary, factors), kept


def enumerate_model(graph, potentials, observed=None):
    """``log Z`` and the marginals of every variable and factor, by enumeration."""
    observed = observed or {}
    ranges = [
        [observed[i]] if i in observed else range(int(k)) for i, k in enumerate(graph.cardinalities)
    ]
    configurations = list(product(*ranges))
    tables = [potentials.unary(i).tolist() for i in range(graph.n_variables)]
    scopes = [graph.scope(a) for a in range(graph.n_factors)]
    factor_tables = [potentials.factor(a) for a in range(graph.n_factors)]

    def score_of(y):
        score = sum(table[label] for table, label in zip(tables, y, strict=True))
        for scope, table in zip(scopes, factor_tables, strict=True):
            score += table[tuple(y[i] for i in scope)]
        return float(score)

    scores = np.array([score_of(y) for y in configurations])
    largest = scores.max()
    weights = np.exp(scores - largest)
    unary = [np.zeros(k) for k in graph.cardinalities]
    factors = [np.zeros(graph.table_shape(a)) for a in range(graph.n_factors)]
    for y, weight in zip(configurations, weights / weights.sum(), strict=True):
        for i, label in enumerate(y):
            unary[i][label] += weight
        for scope, table in zip(scopes, factors, strict=True):
            table[tuple(y[i] for i in scope)] += weight
    return largest + np.log(weights.sum()), unary, factors


def plain_score(graph, potentials, labels):
    """``s(y)`` by a loop."""
    score = sum(potentials.unary(i)[y] for i, y in enumerate(labels))
    for a in range(graph.n_factors):
        score += potentials.factor(a)[tuple(labels[i] for i in graph.scope(a))]
    return float(score)


def update(graph, potentials, beliefs, variable, observed=None):
    """The new belief of one variable given a list of beliefs; forbidden mass goes first."""
    energy = potentials.unary(variable).copy()
    forbidden = np.zeros_like(energy)
    for a in range(graph.n_factors):
        scope = graph.scope(a)
        if variable not in scope:
            continue
        table = potentials.factor(a)
        weights = np.ones(())
        for i in scope:
            weights = np.multiply.outer(
                weights, np.ones(len(energy)) if i == variable else beliefs[i]
            )
        others = tuple(p for p, i in enumerate(scope) if i != variable)
        zero = np.isneginf(table)
        if len(scope) == 1:
            energy = energy + table
        else:
            energy = energy + (np.where(zero, 0.0, table) * weights).sum(axis=others)
            forbidden = forbidden + (zero * weights).sum(axis=others)
    if observed and variable in observed:
        energy[np.arange(len(energy)) != observed[variable]] = -np.inf
    possible = energy > -np.inf
    chosen = possible & (forbidden <= forbidden[possible].min() * (1 + 1e-12))
    new = np.where(chosen, np.exp(np.where(chosen, energy - energy[chosen].max(), 0.0)), 0.0)
    return new / new.sum()


def bound(graph, potentials, beliefs):
    """``E_b[s] + H(b)``, with ``0 * -inf = 0``."""
    total = 0.0
    for i in range(graph.n_variables):
        used = beliefs[i] > 0
        total += np.sum(beliefs[i][used] * (potentials.unary(i)[used] - np.log(beliefs[i][used])))
    for a in range(graph.n_factors):
        weights = np.ones(())
        for i in graph.scope(a):
            weights = np.multiply.outer(weights, beliefs[i])
        total += np.sum(weights[weights > 0] * potentials.factor(a)[weights > 0])
    return float(total)
