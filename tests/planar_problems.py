"""Small planar graphs, and binary models without field on them."""

from __future__ import annotations

import numpy as np
from scipy.spatial import Delaunay

import fieldfit as ff


def planar_edges(rng, n, style):
    """Edges of a grid, a triangulation, a part of one, a tree, or a graph in pieces."""
    if style == "grid":
        return ff.FactorGraph.grid(3, max(n // 3, 1), 2).slot_variables.reshape(-1, 2)
    if style == "tree":
        return np.array([(int(rng.integers(k)), k) for k in range(1, n)]).reshape(-1, 2)
    if n < 4:
        return np.array([(i, j) for i in range(n) for j in range(i)]).reshape(-1, 2)
    triangles = Delaunay(rng.normal(size=(n, 2))).simplices
    edges = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
    edges = np.unique(np.sort(edges, axis=1), axis=0)
    share = {"triangulation": 1.0, "part": 0.7, "pieces": 0.35}[style]
    return edges[rng.random(len(edges)) < share]


STYLES = ("grid", "triangulation", "part", "tree", "pieces")


def planar_model(rng, n, style, scale=1.0, ties=False):
    """A graph with repeated factors in it, and arbitrary tables whose fields cancel."""
    edges = planar_edges(rng, n, style)
    n = max(n, int(edges.max(initial=-1)) + 1)
    repeated = edges[rng.random(len(edges)) < 0.2][:, ::-1]
    pairs = np.concatenate([edges, repeated]).astype(np.int64)
    pairs = pairs[rng.permutation(len(pairs))]
    scopes = [*map(tuple, pairs.tolist()), (0,), ()]
    graph = ff.FactorGraph([2] * n, scopes)
    tables = scale * rng.normal(size=(len(pairs), 2, 2))
    if ties:
        tables = (
            scale
            * rng.choice([-1.0, 0.0, 1.0], len(pairs))[:, None, None]
            * np.array([[1.0, -1.0], [-1.0, 1.0]])
        )
    single = rng.normal(size=2)
    fields = np.zeros(n)
    np.add.at(fields, pairs[:, 0], (tables[:, 0] - tables[:, 1]).sum(axis=1) / 4.0)
    np.add.at(fields, pairs[:, 1], (tables[:, :, 0] - tables[:, :, 1]).sum(axis=1) / 4.0)
    fields[0] += (single[0] - single[1]) / 2.0
    unary = rng.normal(size=(n, 1)) + np.stack([-fields, fields], axis=1)
    return graph, ff.Potentials(graph, unary, [*tables, single, rng.normal()])
