"""Small images and graphs with labels, for the conditional estimators."""

from __future__ import annotations

from itertools import combinations_with_replacement, product

import numpy as np


def images(seed=0, sizes=((3, 3), (2, 4), (3, 3), (4, 2)), n_labels=2, n_features=2, noise=0.8):
    """Labels in patches, features that are the labels' centres with noise."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_labels, n_features))
    X, Y = [], []
    for height, width in sizes:
        patches = rng.integers(0, n_labels, size=(-(-height // 2), -(-width // 2)))
        labels = np.kron(patches, np.ones((2, 2), dtype=np.int64))[:height, :width]
        Y.append(labels)
        X.append(centres[labels] + noise * rng.normal(size=(height, width, n_features)))
    return X, Y


def graphs(seed=0, count=5, n_labels=3, n_features=2, n_edge_features=0, n_nodes=5):
    """Random connected graphs whose labels agree along most edges."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_labels, n_features))
    X, Y = [], []
    for _ in range(count):
        tree = [(int(rng.integers(0, i)), i) for i in range(1, n_nodes)]
        edges = np.array([*tree, (0, n_nodes - 1)])
        labels = np.zeros(n_nodes, dtype=np.int64)
        labels[0] = rng.integers(n_labels)
        for i, j in tree:
            labels[j] = labels[i] if rng.random() < 0.6 else rng.integers(n_labels)
        features = centres[labels] + rng.normal(size=(n_nodes, n_features))
        x = (features, edges)
        if n_edge_features:
            x = (*x, rng.normal(size=(len(edges), n_edge_features)))
        X.append(x)
        Y.append(labels)
    return X, Y


def configurations(n_variables, n_labels):
    """All labellings, one in each row."""
    return np.array(list(product(range(n_labels), repeat=n_variables)))


def grid_edges(height, width, neighbors=4):
    """Pairs of pixels with the direction of each, written down pixel by pixel."""
    steps = {"horizontal": (0, 1), "vertical": (1, 0)}
    if neighbors == 8:
        steps |= {"diagonal": (1, 1), "antidiagonal": (-1, 1)}
    edges = []
    for row, column in product(range(height), range(width)):
        for name, (down, right) in steps.items():
            other = (row + down, column + right)
            if 0 <= other[0] < height and 0 <= other[1] < width:
                edges.append((name, row * width + column, other[0] * width + other[1]))
    return edges


def tied(tying, n_labels, first, second):
    """Which parameter a pair of labels uses; ``None`` for none."""
    if tying == "full":
        return first * n_labels + second
    if tying == "symmetric":
        pairs = list(combinations_with_replacement(range(n_labels), 2))
        return pairs.index((min(first, second), max(first, second)))
    if first != second:
        return None
    return 0 if tying == "potts" else first


def indicators(labels, n_labels, features, edges, tying, names, *, intercept=True):
    """The vector ``f`` with ``s(y) = w . f`` of one labelling, written down entry by entry.

    ``edges`` has ``(type, i, j, edge features or None)``; ``names`` are the types in the order of
    their blocks.
    """
    parts = [np.zeros((features.shape[1], n_labels))]
    for i, label in enumerate(labels):
        parts[0][:, label] += features[i]
    if intercept:
        parts.append(np.bincount(labels, minlength=n_labels).astype(float))
    sizes = {"full": n_labels**2, "symmetric": n_labels * (n_labels + 1) // 2}
    size = sizes.get(tying, 1 if tying == "potts" else n_labels)
    for name in names:
        extra = next((e[3] for e in edges if e[3] is not None), None)
        constant = np.zeros(size)
        varying = np.zeros((0 if extra is None else len(extra), size))
        for kind, i, j, values in edges:
            place = tied(tying, n_labels, labels[i], labels[j])
            if kind == name and place is not None:
                constant[place] += 1.0
                if values is not None:
                    varying[:, place] += values
        parts += [constant, varying]
    return np.concatenate([part.ravel() for part in parts])


def likelihood_gradient(weights, l2, examples, n_labels, **options):
    """Gradient of the negative log-likelihood plus penalty by enumeration.

    ``examples`` has ``(features, edges, labels)``, ``-1`` for missing labels.
    """
    gradient = l2 * weights
    for features, edges, labels in examples:
        every = configurations(len(labels), n_labels)
        vectors = np.array([indicators(y, n_labels, features, edges, **options) for y in every])
        scores = vectors @ weights
        agree = np.all((labels < 0) | (every == labels), axis=1)
        for sign, rows in ((1.0, slice(None)), (-1.0, agree)):
            chosen = np.exp(scores[rows] - scores[rows].max())
            gradient = gradient + sign * (chosen / chosen.sum()) @ vectors[rows]
    return gradient


def triples(seed=0, count=5, n_labels=3, n_nodes=6, n_features=0, edges=True):
    """The graphs of `graphs` with factors of three neighbouring nodes; the second has none."""
    rng = np.random.default_rng(seed + 100)
    X, Y = graphs(seed, count, n_labels, n_nodes=n_nodes)
    found = []
    for m, (nodes, pairs) in enumerate(X):
        factors = {"edges": pairs} if edges else {}
        if m != 1:
            scopes = np.array([rng.permutation([i, i + 1, i + 2]) for i in range(n_nodes - 2)])
            values = rng.normal(size=(len(scopes), n_features))
            factors["triples"] = (scopes, values) if n_features else scopes
        found.append((nodes, factors))
    return found, Y
