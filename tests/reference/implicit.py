"""Implicit gradients by dense algebra on all constraints at once."""

from __future__ import annotations

import numpy as np


def constraints(graph):
    """``A``: sums of variables; margins of factors (of arity two or more) minus beliefs."""
    n_unary, n_table = int(graph.unary_offsets[-1]), int(graph.table_offsets[-1])
    rows = []
    for i in range(graph.n_variables):
        row = np.zeros(n_unary + n_table)
        row[graph.unary_offsets[i] : graph.unary_offsets[i + 1]] = 1.0
        rows.append(row)
    for a in range(graph.n_factors):
        shape = graph.table_shape(a)
        entries = np.arange(graph.table_offsets[a], graph.table_offsets[a + 1]).reshape(shape)
        for position, i in enumerate(graph.scope(a)):
            for y in range(shape[position]) if len(shape) >= 2 else ():
                row = np.zeros(n_unary + n_table)
                row[n_unary + np.take(entries, y, axis=position).ravel()] = 1.0
                row[graph.unary_offsets[i] + y] = -1.0
                rows.append(row)
    return np.array(rows)


def dense_gradient(beliefs, weights, derivative):
    """``(D^-1 - D^-1 A' (A D^-1 A')^-1 A D^-1) g``; factors of arity one follow their variable."""
    graph = beliefs.graph
    n_unary = int(graph.unary_offsets[-1])
    b = np.concatenate([beliefs.unary_values, beliefs.factor_values])
    w = np.concatenate([weights.unary_values, weights.factor_values])
    g = np.concatenate([derivative.unary_values, derivative.factor_values])
    for a in range(graph.n_factors):
        if len(graph.scope(a)) == 1:
            (i,) = graph.scope(a)
            g[graph.unary_offsets[i] : graph.unary_offsets[i + 1]] += derivative.factor(a)
    inverse = np.divide(b, w, out=np.zeros(len(b)), where=w > 0.0)
    matrix = constraints(graph)
    system = (matrix * inverse) @ matrix.T
    solution = np.linalg.lstsq(system, matrix @ (inverse * g), rcond=1e-12)[0]
    step = inverse * (g - matrix.T @ solution)
    for a in range(graph.n_factors):
        if len(graph.scope(a)) == 1:
            (i,) = graph.scope(a)
            begin = n_unary + graph.table_offsets[a]
            own = step[graph.unary_offsets[i] : graph.unary_offsets[i + 1]]
            step[begin : begin + len(own)] = own
    return step
