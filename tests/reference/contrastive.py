"""A slow twin of k-step descent: loops, whole tables, proportional fitting until it stops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fieldfit.inference.free_energy.natural_gradient import CUT, GROWTH


@dataclass
class DescentResult:
    value: float
    unary: np.ndarray
    factors: np.ndarray


def fitted_table(table, margins):
    """The belief ``exp(table + vectors)`` with these margins, and the vectors."""
    vectors = [np.zeros(len(margin)) for margin in margins]
    with np.errstate(divide="ignore"):
        for _ in range(5000):
            moved = 0.0
            for axis, margin in enumerate(margins):
                total = table.copy()
                for other, vector in enumerate(vectors):
                    if other != axis:
                        shape = [1] * table.ndim
                        shape[other] = -1
                        total = total + vector.reshape(shape)
                rest = tuple(i for i in range(table.ndim) if i != axis)
                new = (
                    np.log(margin)
                    - np.logaddexp.reduce(
                        np.moveaxis(total, axis, 0).reshape(len(margin), -1), axis=1
                    )
                    if rest
                    else np.log(margin) - total
                )
                moved = max(moved, np.abs(new - vectors[axis]).max())
                vectors[axis] = new
            if moved < 1e-13:
                break
    total = table.copy()
    for other, vector in enumerate(vectors):
        shape = [1] * table.ndim
        shape[other] = -1
        total = total + vector.reshape(shape)
    return np.exp(total), vectors


def energy_and_targets(graph, potentials, beliefs, family):
    """Free energy, target of every variable and table of every factor, at beliefs of variables."""
    energy = 0.0
    targets = [np.array(potentials.unary(i), dtype=float) for i in range(graph.n_variables)]
    for i, belief in enumerate(beliefs):
        energy += belief @ (np.log(belief) - potentials.unary(i))
    tables = []
    for a in range(graph.n_factors):
        scope = graph.scope(a)
        table = np.array(potentials.factor(a), dtype=float)
        margins = [beliefs[i] for i in scope]
        product = np.ones(())
        for margin in margins:
            product = np.multiply.outer(product, margin)
        if family == "mean-field" or len(scope) < 2:
            tables.append(product)
            energy -= float((product * table).sum())
            for position, i in enumerate(scope):
                weighted = table
                for other in reversed(range(len(scope))):
                    if other != position:
                        weighted = np.tensordot(weighted, margins[other], axes=([other], [0]))
                targets[i] = targets[i] + weighted
            continue
        belief, vectors = fitted_table(table, margins)
        tables.append(belief)
        # - <th, b> - H(b) - sum of the margins' entropies that the Bethe entropy takes away
        used = belief > 0.0
        energy += float((belief[used] * (np.log(belief[used]) - table[used])).sum())
        for margin, vector, i in zip(margins, vectors, scope, strict=True):
            energy -= margin @ np.log(margin)
            targets[i] = targets[i] + np.log(margin) - vector
    return energy, targets, tables


def stepped(beliefs, targets, length):
    found = []
    for belief, target in zip(beliefs, targets, strict=True):
        logits = (1.0 - length) * np.log(belief) + length * target
        weights = np.exp(logits - logits.max())
        found.append(weights / weights.sum())
    return found


def relaxed_twin(graph, potentials, labels, family, n_steps, smoothing):
    """Value and gradient of a contrastive free energy with complete labels."""
    beliefs = []
    for label, k in zip(labels, graph.cardinalities, strict=True):
        belief = np.full(k, smoothing / max(k - 1, 1))
        belief[label] = 1.0 - smoothing if k > 1 else 1.0
        beliefs.append(belief)
    start, targets, tables = energy_and_targets(graph, potentials, beliefs, family)
    energy, length, taken = start, 1.0, 0
    first = np.concatenate(beliefs), flat(tables)
    while taken < n_steps and length > 1e-9:
        trial = stepped(beliefs, targets, length)
        new, new_targets, new_tables = energy_and_targets(graph, potentials, trial, family)
        if new <= energy:
            beliefs, energy, targets, tables = trial, new, new_targets, new_tables
            taken += 1
            length = min(1.0, GROWTH * length)
        else:
            length *= CUT
    changes = np.concatenate(beliefs) - first[0], flat(tables) - first[1]
    return DescentResult(start - energy, *changes)


def flat(tables):
    return np.concatenate([np.ravel(table) for table in tables]) if tables else np.zeros(0)
