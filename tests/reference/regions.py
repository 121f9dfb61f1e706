r"""Plain twins of region graphs and of the updates on them: sets, dictionaries, broadcast tables.

`closed_sets` and `counting_numbers` follow the definitions of the cluster variation method word by
word.  `KikuchiTwin` keeps the log-belief of every region as an array and updates one inner region
after the other,

    m_rs    = log sum_{y_r \ y_s} b_r - lam_rs
    log b_s = (th_s + line_s log old_s + sum_r m_rs) / total_s,  normalised
    lam_rs  = log b_s - m_rs

always in the log domain.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from reference.sum_product import entropy, expectation, log_sum_exp


def maximal_sets(sets):
    found = {frozenset(s) for s in sets}
    return sorted((s for s in found if not any(s < t for t in found)), key=sorted)


def closed_sets(outer):
    """All intersections of the outer sets, without these and without the empty set."""
    found = set(outer)
    while True:
        new = {a & b for a, b in combinations(found, 2)} - found - {frozenset()}
        if not new:
            return sorted(found - set(outer), key=sorted)
        found |= new


def counting_numbers(regions):
    """``c_r = 1 - sum of c over what strictly contains r``."""
    counts = {}
    for region in sorted(regions, key=len, reverse=True):
        counts[region] = 1 - sum(c for other, c in counts.items() if region < other)
    return counts


def four_cycles(edges):
    """Sets of four variables whose induced graph is a cycle."""
    joined = {frozenset(edge) for edge in edges}
    variables = sorted({i for edge in edges for i in edge})
    found = set()
    for four in combinations(variables, 4):
        inside = [pair for pair in map(frozenset, combinations(four, 2)) if pair in joined]
        degrees = [sum(i in pair for pair in inside) for i in four]
        if len(inside) == 4 and degrees == [2, 2, 2, 2]:
            found.add(frozenset(four))
    return found


def has_junction_tree(sets):
    """A heaviest spanning forest of overlaps weighs what a junction tree does (Jensen 1988)."""
    sets = list(sets)
    pairs = sorted(
        ((len(a & b), i, j) for (i, a), (j, b) in combinations(enumerate(sets), 2)), reverse=True
    )
    group, weight = list(range(len(sets))), 0
    for common, i, j in pairs:
        if common and group[i] != group[j]:
            weight += common
            group = [group[i] if g == group[j] else g for g in group]
    return weight == sum(map(len, sets)) - len(frozenset().union(*sets))


class KikuchiTwin:
    """Beliefs and multipliers of the regions of one small model."""

    def __init__(self, graph, potentials, outer, inner, counts, observed=None):
        """Regions are sorted tuples of variables; ``counts`` maps inner ones to their numbers."""
        self.cardinalities = graph.cardinalities
        self.outer, self.inner, self.counts = list(outer), list(inner), counts
        self.potentials = {
            region: np.zeros([int(graph.cardinalities[i]) for i in region])
            for region in self.outer + self.inner
        }
        for i in range(graph.n_variables):
            table = potentials.unary(i).copy()
            if observed and i in observed:
                table[np.arange(len(table)) != observed[i]] = -np.inf
            self._add((i,), table)
        self.constant = 0.0
        for a in range(graph.n_factors):
            if graph.scope(a):
                self._add(graph.scope(a), potentials.factor(a))
            else:
                self.constant += float(potentials.factor(a))
        self.multipliers = {
            (r, s): np.zeros(self.potentials[s].shape)
            for s in self.inner
            for r in self.outer
            if set(s) <= set(r)
        }
        self.around = {s: [r for r in self.outer if (r, s) in self.multipliers] for s in self.inner}
        self.log_beliefs = {
            s: np.full(self.potentials[s].shape, -np.log(self.potentials[s].size))
            for s in self.inner
        }
        self.old = dict(self.log_beliefs)

    def _add(self, scope, table):
        """To the smallest region that contains the scope."""
        regions = [r for r in self.outer + self.inner if set(scope) <= set(r)]
        host = min(regions, key=len)
        order = np.argsort([host.index(i) for i in scope])
        shape = [len_ if i in scope else 1 for i, len_ in zip(host, self.shape(host), strict=True)]
        self.potentials[host] = self.potentials[host] + np.transpose(table, order).reshape(shape)

    def shape(self, region):
        return [int(self.cardinalities[i]) for i in region]

    # -- updates --------------------------------------------------------------------------

    def outer_log_belief(self, r):
        total = self.potentials[r].copy()
        for s in self.inner:
            if (r, s) in self.multipliers:
                total = total + self._spread(self.multipliers[r, s], s, r)
        return total

    def update(self, s, moves_line=False, damping=0.0):
        kept, line = max(self.counts[s], 0.0), max(-self.counts[s], 0.0)
        target = self.potentials[s].copy()
        if line:
            target = target + line * (self.log_beliefs[s] if moves_line else self.old[s])
        incoming = {}
        for r in self.around[s]:
            axes = tuple(k for k, i in enumerate(r) if i not in s)
            margin = log_sum_exp(self.outer_log_belief(r), axes)
            possible = margin > -np.inf
            lam = self.multipliers[r, s]
            incoming[r] = np.where(possible, margin - np.where(possible, lam, 0.0), -np.inf)
            target = target + incoming[r]
        target = target / (len(self.around[s]) + kept)
        target = target - log_sum_exp(target, tuple(range(target.ndim)))
        if damping and line:
            both = target > -np.inf
            target[both] += damping * (self.log_beliefs[s][both] - target[both])
            target = target - log_sum_exp(target, tuple(range(target.ndim)))
        self.log_beliefs[s] = target
        for r, m in incoming.items():
            possible = target > -np.inf
            self.multipliers[r, s] = np.where(
                possible, target - np.where(possible, m, 0.0), -np.inf
            )

    def sweep(self, backward=False, moves_lines=False, damping=0.0):
        for s in reversed(self.inner) if backward else self.inner:
            self.update(s, moves_lines, damping)

    def _spread(self, table, s, r):
        return table.reshape([n if i in s else 1 for i, n in zip(r, self.shape(r), strict=True)])

    # -- what comes out -------------------------------------------------------------------

    def beliefs(self):
        found = {s: np.exp(table) for s, table in self.log_beliefs.items()}
        for r in self.outer:
            table = self.outer_log_belief(r)
            found[r] = np.exp(table - log_sum_exp(table, tuple(range(table.ndim))))
        return found

    def value(self, beliefs):
        """``<th, b> + sum_r c_r H(b_r)`` at any beliefs of regions."""
        total = self.constant
        for region, potential in self.potentials.items():
            total += expectation(potential, beliefs[region])
            total += self.counts.get(region, 1.0) * entropy(beliefs[region])
        return total


def twin_of(graph, potentials, sets=None, observed=None):
    """The twin of the cluster variation method, from outer sets; its regions in the same order."""
    outer = maximal_sets(sets)
    inner = closed_sets(outer)
    counts = counting_numbers([*outer, *inner])
    named = {tuple(sorted(s)): float(counts[s]) for s in inner}
    # the order of the package: rows of variables, shorter ones after longer ones that begin alike
    big = graph.n_variables

    def row(region):
        return (*region, *([big] * 9))[:9]

    return KikuchiTwin(
        graph,
        potentials,
        sorted((tuple(sorted(s)) for s in outer), key=row),
        sorted(named, key=row),
        named,
        observed,
    )
