"""Every matching of a small graph, one after the other, in plain Python."""

from __future__ import annotations

import math


def bipartite_matchings(n, m, *, perfect):
    """Lists of (row, column); perfect: everybody on the smaller side has a partner."""

    def extend(row, free):
        if row == n:
            yield []
            return
        for column in sorted(free):
            for rest in extend(row + 1, free - {column}):
                yield [(row, column), *rest]
        for rest in extend(row + 1, free):
            yield rest

    for matching in extend(0, frozenset(range(m))):
        if not perfect or len(matching) == min(n, m):
            yield matching


def general_matchings(n, *, perfect):
    """Lists of (i, j) with i < j; perfect: every node has a partner."""

    def extend(free):
        if not free:
            yield []
            return
        first, others = free[0], free[1:]
        for partner in others:
            for rest in extend([node for node in others if node != partner]):
                yield [(first, partner), *rest]
        if not perfect:
            yield from extend(others)

    yield from extend(list(range(n)))


def degree_matchings(rows, columns, *, perfect):
    """Lists of (row, column) in which row ``i`` has ``rows[i]`` partners, or at most so many."""
    cells = [(i, j) for i in range(len(rows)) for j in range(len(columns))]

    def extend(place, left, right):
        if place == len(cells):
            if not perfect or (not any(left) and not any(right)):
                yield []
            return
        i, j = cells[place]
        if left[i] and right[j]:
            fewer_left = [*left[:i], left[i] - 1, *left[i + 1 :]]
            fewer_right = [*right[:j], right[j] - 1, *right[j + 1 :]]
            for rest in extend(place + 1, fewer_left, fewer_right):
                yield [(i, j), *rest]
        yield from extend(place + 1, left, right)

    yield from extend(0, list(rows), list(columns))


def score(weights, matching):
    """Sum of the weights of the edges."""
    return math.fsum(weights[i][j] for i, j in matching)


def best_score(weights, matchings):
    """The largest score, ``-inf`` if there is no matching."""
    return max((score(weights, matching) for matching in matchings), default=-math.inf)


def partition(weights, matchings):
    """``log sum exp`` of the scores, and the probability of each edge as a dictionary."""
    matchings = list(matchings)
    scores = [score(weights, matching) for matching in matchings]
    largest = max(scores, default=-math.inf)
    if largest == -math.inf:
        return -math.inf, {}
    shares = [math.exp(value - largest) for value in scores]
    total = math.fsum(shares)
    marginals = {}
    for matching, share in zip(matchings, shares, strict=True):
        for edge in matching:
            marginals[edge] = marginals.get(edge, 0.0) + share / total
    return largest + math.log(total), marginals
