"""Plain NumPy twins of CAMEL: its local models and slopes, and its problem in the beliefs.

Nothing here uses the package's kernels or its learners.  `local_models` is the dual of one round,
term by term; `maximum_entropy` solves the primal problem, in which weights do not occur at all.
(The value of beliefs at given potentials is `primal_value` of `sum_product.py`.)
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.optimize import minimize
from scipy.special import entr

from reference.objectives import log_sum


def slots_of(graph):
    """``(factor, position, variable)`` of every slot, in the order of messages."""
    return [
        (a, position, i)
        for a in range(graph.n_factors)
        for position, i in enumerate(graph.scope(a))
    ]


def linking_slots(graph, variable):
    """Slots of a variable in factors of arity two or more, in their order."""
    return [
        slot
        for slot, (a, _, i) in enumerate(slots_of(graph))
        if i == variable and len(graph.scope(a)) >= 2
    ]


def by_slot(graph, vector):
    """A vector in the layout of messages, cut into one piece for each slot."""
    return np.split(np.asarray(vector), graph.message_offsets[1:-1])


# -- the dual -----------------------------------------------------------------------------


@dataclass(frozen=True)
class LocalModels:
    """``log Z`` of all models, the beliefs of factors and variables, and margins by slot."""

    value: float
    unary: list
    factors: list
    margins: list


def local_models(graph, potentials, delta, slopes):
    """Every factor by itself, with its share of unary potentials, multipliers and slopes."""
    unary = [potentials.unary(i).copy() for i in range(graph.n_variables)]
    for a in range(graph.n_factors):
        if len(graph.scope(a)) == 1:
            unary[graph.scope(a)[0]] += potentials.factor(a)
    delta, slopes = by_slot(graph, delta), by_slot(graph, slopes)
    slots = slots_of(graph)
    margins = [np.zeros(graph.cardinalities[i]) for _, _, i in slots]
    value, factors = 0.0, [None] * graph.n_factors
    for a in range(graph.n_factors):
        scope, table = graph.scope(a), potentials.factor(a)
        if len(scope) == 0:
            value += float(table)
            factors[a] = np.ones(())
        if len(scope) < 2:
            continue
        total = table.copy()
        own = [slot for slot, (factor, _, _) in enumerate(slots) if factor == a]
        for position, (slot, i) in enumerate(zip(own, scope, strict=True)):
            others = linking_slots(graph, i)
            mean = sum(delta[other] for other in others) / len(others)
            vector = unary[i] / len(others) + slopes[slot] + delta[slot] - mean
            total += vector.reshape([-1 if p == position else 1 for p in range(len(scope))])
        log_z = log_sum(total)
        value += log_z
        factors[a] = np.exp(total - log_z)
        for position, slot in enumerate(own):
            axes = tuple(p for p in range(len(scope)) if p != position)
            margins[slot] = factors[a].sum(axis=axes)
    beliefs = []
    for i in range(graph.n_variables):
        slots_here = linking_slots(graph, i)
        if slots_here:
            beliefs.append(np.mean([margins[slot] for slot in slots_here], axis=0))
        else:
            value += log_sum(unary[i])
            beliefs.append(np.exp(unary[i] - log_sum(unary[i])))
    for a in range(graph.n_factors):
        if len(graph.scope(a)) == 1:
            factors[a] = beliefs[graph.scope(a)[0]]
    return LocalModels(value, beliefs, factors, margins)


def slopes_at(graph, margins, *, on_both_sides):
    """Derivatives of ``-H`` of each pair of neighbouring factors' margin, without constants."""
    slopes = [np.zeros(len(margin)) for margin in margins]
    for i in range(graph.n_variables):
        row = linking_slots(graph, i)
        for left, right in pairwise(row):
            if on_both_sides:
                half = 0.5 * np.log(0.5 * (margins[left] + margins[right]))
                slopes[left] += half
                slopes[right] += half
            else:
                slopes[left] += np.log(margins[left])
    return np.concatenate(slopes) if slopes else np.zeros(0)


# -- the primal ---------------------------------------------------------------------------


def maximum_entropy(graph, design, statistics, *, negative_entropies, l2=0.0):
    """CAMEL's problem for one graph, in the beliefs of its factors (all of arity two or more).

    ``design`` turns unary and table entries into moments.  Returns value and tables, flat.
    """
    sizes = np.diff(graph.table_offsets)
    n_entries = int(sizes.sum())
    factor_of = np.repeat(np.arange(graph.n_factors), sizes)
    totals = (factor_of == np.arange(graph.n_factors)[:, None]).astype(float)
    margin_rows = []
    for a, position, _ in slots_of(graph):
        shape = graph.table_shape(a)
        labels = np.indices(shape)[position].ravel()
        for y in range(shape[position]):
            row = np.zeros(n_entries)
            row[graph.table_offsets[a] : graph.table_offsets[a + 1]] = labels == y
            margin_rows.append(row)
    pieces = np.split(np.array(margin_rows), graph.message_offsets[1:-1])
    rows = [linking_slots(graph, i) for i in range(graph.n_variables)]
    means = np.concatenate([np.mean([pieces[slot] for slot in row], axis=0) for row in rows])
    # the last label follows from the others and the totals
    agreements = [(pieces[slot] - pieces[row[0]])[:-1] for row in rows for slot in row[1:]]
    moments = design.T @ np.concatenate([means, np.eye(n_entries)])
    counts = np.repeat([len(row) - 1.0 for row in rows], graph.cardinalities) * negative_entropies

    def function(pi):
        unary = means @ pi
        value = -entr(pi).sum() + counts @ entr(unary)
        gradient = np.log(pi) + 1.0 - means.T @ (counts * (np.log(unary) + 1.0))
        if l2 > 0.0:
            away = moments @ pi - statistics
            value += away @ away / (2.0 * l2)
            gradient = gradient + moments.T @ away / l2
        return value, gradient

    matrix, target = [totals, *agreements], [np.ones(len(totals))]
    target += [np.zeros(len(rows)) for rows in agreements]
    if l2 == 0.0:
        matrix, target = [*matrix, moments], [*target, statistics]
    matrix, target = independent_rows(np.concatenate(matrix), np.concatenate(target))
    constraint = {"type": "eq", "fun": lambda pi: matrix @ pi - target, "jac": lambda pi: matrix}
    found = minimize(
        function,
        1.0 / sizes[factor_of],
        jac=True,
        method="SLSQP",
        bounds=[(1e-9, 1.0)] * n_entries,
        constraints=constraint,
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    assert np.abs(matrix @ found.x - target).max() < 1e-9, found.message
    return -found.fun, found.x


def independent_rows(matrix, target):
    """Equations without those that follow from earlier ones."""
    kept = []
    for index in range(len(matrix)):
        if np.linalg.matrix_rank(matrix[[*kept, index]]) == len(kept) + 1:
            kept.append(index)
    return matrix[kept], target[kept]
