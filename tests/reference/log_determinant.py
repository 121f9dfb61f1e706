"""Slow twin of the log-determinant relaxation: a barrier method in coordinates of its own.

Every label has an indicator, none is left out: means and second moments of all of them, on the
subspace where they are consistent, found as a null space.  The noise is that of the hyperplane in
which the corners of a simplex lie, in an orthonormal basis of it.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy.linalg import block_diag, null_space


def log_determinant_bound(graph, potentials, *, local=True, semidefinite=True, gap=1e-9):
    """The maximum of the relaxation, and means of all labels; either constraint may be left out."""
    sizes = [int(k) for k in graph.cardinalities]
    first = np.concatenate([[0], np.cumsum(sizes)])
    total = int(first[-1])
    score = np.zeros((total + 1, total + 1))  # <score, moments>, each pair of labels once
    score[0, 0] = sum(
        float(potentials.factor(a)) for a in range(graph.n_factors) if graph.arities[a] == 0
    )
    score[0, 1:] += potentials.unary_values
    linked = set()
    for a in range(graph.n_factors):
        scope = graph.scope(a)
        if len(scope) == 1:
            score[0, 1 + first[scope[0]] : 1 + first[scope[0] + 1]] += potentials.factor(a)
        elif len(scope) == 2:
            (i, j), table = scope, potentials.factor(a)
            if i > j:
                i, j, table = j, i, table.T
            linked.add((i, j))
            score[1 + first[i] : 1 + first[i + 1], 1 + first[j] : 1 + first[j + 1]] += table
    start = _uniform(sizes)
    directions = _directions(sizes, first, total)
    inside = _hyperplanes(sizes)
    noise = np.diag(np.repeat([1.0 / 12.0 + 1.0 / (6.0 * k) for k in sizes], np.array(sizes) - 1))
    lift = block_diag([[1.0]], inside)
    entries = [
        (1 + first[i] + k, 1 + first[j] + m)
        for i, j in linked
        for k in range(sizes[i])
        for m in range(sizes[j])
    ]
    rows, columns = (
        np.array(entries, dtype=int).reshape(-1, 2).T if local else np.zeros((2, 0), int)
    )
    x = np.zeros(len(directions))
    linear = np.array([np.sum(score * direction) for direction in directions])
    steps = [lift.T @ direction @ lift for direction in directions]
    changes = np.array([direction[rows, columns] for direction in directions]).reshape(len(x), -1)
    padded = block_diag([[0.0]], noise)

    def parts(x):
        moments = start + np.tensordot(x, directions, axes=1)
        matrix = lift.T @ moments @ lift
        return moments, matrix, matrix + padded, moments[rows, columns]

    def value(x, t):
        _, matrix, noisy, tables = parts(x)
        if not (_definite(noisy) and (tables > 0).all()) or (
            semidefinite and not _definite(matrix)
        ):
            return -np.inf
        barrier = np.log(tables).sum() + (np.linalg.slogdet(matrix)[1] if semidefinite else 0.0)
        return linear @ x + 0.5 * np.linalg.slogdet(noisy)[1] + t * barrier

    t, count = 1.0, len(rows) + len(padded)
    while True:
        for _ in range(60):
            _, matrix, noisy, tables = parts(x)
            pieces = [(0.5, np.linalg.inv(noisy))]
            if semidefinite:
                pieces.append((t, np.linalg.inv(matrix)))
            gradient = linear + changes @ (t / tables)
            hessian = (changes * (t / tables**2)) @ changes.T
            for weight, inverse in pieces:
                turned = [inverse @ step for step in steps]
                gradient += weight * np.array([np.trace(one) for one in turned])
                flat = np.array([one.ravel() for one in turned])
                swapped = np.array([one.T.ravel() for one in turned])
                hessian += weight * flat @ swapped.T
            move = np.linalg.solve(hessian, gradient)
            length, here = 1.0, value(x, t)
            while value(x + length * move, t) < here and length > 1e-12:
                length *= 0.5
            x = x + length * move
            if gradient @ move < 1e-12:
                break
        if t * count < gap:
            break
        t *= 0.2
    moments, _, noisy, _ = parts(x)
    entropy = 0.5 * np.linalg.slogdet(noisy)[1] - 0.5 * np.log(sizes).sum()
    entropy += 0.5 * (total - len(sizes)) * np.log(2.0 * np.pi * np.e)
    return float(np.sum(score * moments) + entropy), moments[0, 1:]


def _definite(matrix):
    return np.linalg.eigvalsh(matrix)[0] > 0.0


def _uniform(sizes):
    means = np.concatenate([[1.0], *(np.full(k, 1.0 / k) for k in sizes)])
    moments = np.outer(means, means)
    position = 1
    for k in sizes:
        moments[position : position + k, position : position + k] = np.eye(k) / k
        position += k
    return moments


def _hyperplanes(sizes):
    """Orthonormal bases of vectors whose sum over the labels of each variable is zero."""
    return block_diag(*(null_space(np.ones((1, k))) for k in sizes))


def _directions(sizes, first, total):
    """All changes of the moment matrix that keep it consistent."""
    pairs = [(p, q) for p in range(total + 1) for q in range(p, total + 1)]
    number = {pair: k for k, pair in enumerate(pairs)}

    def place(p, q):
        return number[min(p, q), max(p, q)]

    equations = [{place(0, 0): 1.0}]
    for i, k in enumerate(sizes):
        own = [1 + int(first[i]) + label for label in range(k)]
        for p in range(total + 1):  # labels of one variable sum to one, whatever they multiply
            equation = {place(p, own_label): 1.0 for own_label in own}
            if p in own:  # only the diagonal is there
                equation = {place(p, p): 1.0}
            equation[place(0, p)] = equation.get(place(0, p), 0.0) - 1.0
            if p == 0:
                equation = {place(0, own_label): 1.0 for own_label in own}
            equations.append(equation)
        equations += [{place(p, q): 1.0} for p, q in combinations(own, 2)]
    matrix = np.zeros((len(equations), len(pairs)))
    for row, equation in enumerate(equations):
        for column, coefficient in equation.items():
            matrix[row, column] += coefficient
    found = []
    for vector in null_space(matrix).T:
        direction = np.zeros((total + 1, total + 1))
        for (p, q), entry in zip(pairs, vector, strict=True):
            direction[p, q] = direction[q, p] = entry
        found.append(direction)
    return np.array(found)
