"""Plain NumPy twin of Bethe's free energy as a function of the beliefs of variables.

For each factor the best belief with given margins, by proportional fitting in the log domain until
it stands still; for two binary variables also by the root of the quadratic equation, in decimals
with so many digits that nothing can cancel.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import cache

import numpy as np

#: Digits beyond those that cancel: a coupling of ``W`` cancels less than ``|W|`` of them.
DIGITS = 80


def log_sum_exp(values, axes):
    top = values.max(axis=axes, keepdims=True)
    top = np.where(np.isneginf(top), 0.0, top)
    with np.errstate(divide="ignore"):
        return np.squeeze(top + np.log(np.exp(values - top).sum(axis=axes, keepdims=True)), axes)


def fitted_vectors(table, margins, n_rounds=20_000, tol=1e-14):
    """``u_i`` with ``exp(table + sum u)`` of these margins; every margin must be positive."""
    vectors = [np.zeros(len(margin)) for margin in margins]
    for _ in range(n_rounds):
        change = 0.0
        for i, margin in enumerate(margins):
            others = tuple(j for j in range(len(margins)) if j != i)
            total = table + sum(along(v, j, len(margins)) for j, v in enumerate(vectors) if j != i)
            new = np.log(margin) - log_sum_exp(total, others)
            change = max(change, float(np.abs(new - vectors[i]).max()))
            vectors[i] = new
        if change <= tol:
            return vectors
    raise AssertionError(f"proportional fitting still moves by {change}")


def along(vector, axis, n_axes):
    """A vector along one axis of a table."""
    return vector.reshape([-1 if j == axis else 1 for j in range(n_axes)])


def free_energy(graph, potentials, unary):
    """``F(q)`` and the target of every variable."""
    targets = [potentials.unary(i).copy() for i in range(graph.n_variables)]
    value, degrees = 0.0, np.zeros(graph.n_variables)
    for a in range(graph.n_factors):
        scope, table = graph.scope(a), potentials.factor(a)
        if len(scope) == 0:
            value -= float(table)
        elif len(scope) == 1:
            value -= float(table @ unary[scope[0]])
            targets[scope[0]] += table
        else:
            vectors = fitted_vectors(table, [unary[i] for i in scope])
            for i, vector in zip(scope, vectors, strict=True):
                value += float(vector @ unary[i])
                targets[i] += np.log(unary[i]) - vector
                degrees[i] += 1
    for i, belief in enumerate(unary):
        value += float((1 - degrees[i]) * belief @ np.log(belief) - potentials.unary(i) @ belief)
    return value, targets


@cache
def exact_log_pair(coupling, p, r):
    """``log xi`` at 00, 01, 10, 11 of two binary variables with ``P(1) = p, r``.

    ``alpha xi^2 - Q xi + (1 + alpha) p r = 0`` with ``Q = 1 + alpha (p + r)``, in decimals.
    """
    with localcontext() as context:
        context.prec = DIGITS + int(abs(coupling))
        p, r = Decimal(p), Decimal(r)
        both = p * r
        if coupling != 0.0:
            alpha = Decimal(coupling).exp() - 1
            q = 1 + alpha * (p + r)
            both = (q - (q * q - 4 * alpha * (1 + alpha) * p * r).sqrt()) / (2 * alpha)
        entries = 1 - p - r + both, r - both, p - both, both
        context.prec = 30
        return tuple(float(entry.ln()) for entry in entries)
