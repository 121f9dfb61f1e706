"""Slow twins of tree moves and component fusion: enumeration, and sets of joined variables."""

from __future__ import annotations

from itertools import product

import numpy as np

__all__ = ["best_on_free", "components", "has_cycle", "score"]


def score(graph, unary, tables, labels):
    """Score by folded unary potentials and the tables of all factors of other arities than one."""
    total = sum(unary[graph.unary_offsets[i] + labels[i]] for i in range(graph.n_variables))
    for a in range(graph.n_factors):
        scope = graph.scope(a)
        if len(scope) != 1:
            table = tables[graph.table_offsets[a] : graph.table_offsets[a + 1]]
            total += table.reshape(graph.table_shape(a))[tuple(labels[i] for i in scope)]
    return float(total)


def has_cycle(graph, free):
    """Whether factors, restricted to the free variables, have a cycle on them."""
    group = {i: {i} for i in free}
    for a in range(graph.n_factors):
        members = [i for i in graph.scope(a) if i in group]
        for i in members[1:]:
            if group[i] is group[members[0]]:
                return True
            joined = group[i] | group[members[0]]
            for j in joined:
                group[j] = joined
    return False


def best_on_free(graph, unary, tables, labels, free):
    """The best score over all labels of the free variables, the others fixed."""
    best = -np.inf
    for choice in product(*(range(int(graph.cardinalities[i])) for i in free)):
        changed = np.array(labels)
        changed[list(free)] = choice
        best = max(best, score(graph, unary, tables, changed))
    return best


def components(graph, labels, other):
    """Sets of differing variables that factors join."""
    group = {int(i): {int(i)} for i in np.flatnonzero(np.asarray(labels) != other)}
    for a in range(graph.n_factors):
        members = [i for i in graph.scope(a) if i in group]
        for i in members[1:]:
            joined = group[i] | group[members[0]]
            for j in joined:
                group[j] = joined
    return {frozenset(members) for members in group.values()}
