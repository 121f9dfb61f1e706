"""Plain twins of minimum cuts: shortest augmenting paths, enumeration, linear programs."""

from __future__ import annotations

from collections import deque
from itertools import product

import numpy as np

from fieldfit.inference.brute_force import BruteForce
from reference.mean_field import plain_score


def shortest_paths(capacity, source, sink):
    """Flow value and the source's side, by Edmonds and Karp on a dense matrix."""
    residual = np.array(capacity, dtype=float)
    n = len(residual)
    value = 0.0
    while True:
        parent = {source: source}
        queue = deque([source])
        while queue and sink not in parent:
            u = queue.popleft()
            for v in range(n):
                if v not in parent and residual[u, v] > 1e-12:
                    parent[v] = u
                    queue.append(v)
        if sink not in parent:
            return value, set(parent)
        path = [sink]
        while path[-1] != source:
            path.append(parent[path[-1]])
        arcs = list(zip(path[1:], path[:-1], strict=True))
        amount = min(residual[arc] for arc in arcs)
        for u, v in arcs:
            residual[u, v] -= amount
            residual[v, u] += amount
        value += amount


def best_score(graph, potentials, observed=None):
    return float(BruteForce().scores(graph, potentials, observed).max())


def best_move(graph, potentials, labels, label):
    """The best score when every variable keeps its label or takes ``label``."""
    choices = [
        sorted({int(y), label}) if label < k else [int(y)]
        for y, k in zip(labels, graph.cardinalities, strict=True)
    ]
    return max(plain_score(graph, potentials, y) for y in product(*choices))


def local_polytope_value(graph, potentials, observed=None):
    """``max <th, tau>`` over the local polytope by linear programming; ``-inf`` if it is empty."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    n_unary = int(graph.unary_offsets[-1])
    values = np.concatenate([potentials.unary_values, potentials.factor_values])
    upper = np.where(np.isneginf(values), 0.0, 1.0)
    for i, label in (observed or {}).items():
        start, stop = graph.unary_offsets[i : i + 2]
        upper[start:stop] = np.where(np.arange(stop - start) == label, upper[start:stop], 0.0)
    entries, right = [], []

    def equation(columns, signs, value):
        entries.extend((len(right), int(c), s) for c, s in zip(columns, signs, strict=True))
        right.append(value)

    for i in range(graph.n_variables):
        columns = np.arange(graph.unary_offsets[i], graph.unary_offsets[i + 1])
        equation(columns, np.ones(len(columns)), 1.0)
    for a in range(graph.n_factors):
        shape = graph.table_shape(a)
        columns = n_unary + np.arange(*graph.table_offsets[a : a + 2]).reshape(shape)
        if not shape:
            equation(columns.ravel(), [1.0], 1.0)
        for position, i in enumerate(graph.scope(a)):
            for label in range(shape[position]):
                row = np.take(columns, label, axis=position).ravel()
                equation([*row, graph.unary_offsets[i] + label], [*np.ones(len(row)), -1.0], 0.0)
    rows, columns, signs = zip(*entries, strict=True)
    matrix = coo_array((signs, (rows, columns)), shape=(len(right), len(values))).tocsr()
    costs = -np.where(np.isneginf(values), 0.0, values)
    bounds = np.stack([np.zeros(len(values)), upper], axis=1)
    answer = linprog(costs, A_eq=matrix, b_eq=right, bounds=bounds, method="highs")
    return -answer.fun if answer.status == 0 else -np.inf


def half_integral_value(graph, potentials, unary):
    """The best value over the local polytope with given unary beliefs in {0, 1/2, 1}."""
    total = 0.0

    def expectation(table, weights):
        used = weights > 0
        return float(np.sum(table[used] * weights[used]))

    for i, belief in enumerate(unary):
        total += expectation(potentials.unary(i), belief)
    for a in range(graph.n_factors):
        table, scope = potentials.factor(a), graph.scope(a)
        if len(scope) < 2:
            total += expectation(table, unary[scope[0]]) if scope else float(table)
        elif all(0.5 in unary[i] for i in scope):
            equal = expectation(table, 0.5 * np.eye(2))
            total += max(equal, expectation(table, 0.5 * (1 - np.eye(2))))
        else:
            total += expectation(table, np.outer(unary[scope[0]], unary[scope[1]]))
    return total
