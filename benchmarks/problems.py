"""The benchmark problems: seeded, defined by their formulas, the same for every library.

| name | definition |
|---|---|
| ising50 | 50x50 grid, J ~ U[0, 0.8], h ~ U[-0.5, 0.5], s = +-1, seed 1 |
| ising200 | 200x200, same, seed 2 |
| potts60x80 | 60x80, 5 labels, blurred normal unaries, -lam min(|a-b|, 2), lam ~ U[.2,1], seed 3 |
| reg3 | random 3-regular graph, 10,000 variables, 3 labels, log-potentials N(0, 0.5^2), seed 4 |
| strong50 | 50x50, J ~ U[-3, 3], h ~ U[-0.5, 0.5], seed 6 |
| gridK | 200x200, K labels, N(0, 1) unaries, a table N(0, 0.5^2) for each edge, seed 12 |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import fieldfit as ff


@dataclass(frozen=True)
class Problem:
    name: str
    edges: NDArray[np.int32]
    unary: NDArray[np.float64]  # (n, K)
    pairwise: NDArray[np.float64]  # (E, K, K)

    @property
    def n_labels(self) -> int:
        return self.unary.shape[1]

    @property
    def n_messages(self) -> int:
        return 2 * len(self.edges)

    def model(self) -> tuple[ff.FactorGraph, ff.Potentials]:
        graph = ff.FactorGraph.from_edges(len(self.unary), self.edges, self.n_labels)
        return graph, ff.Potentials(graph, self.unary, self.pairwise)


def grid_edges(height: int, width: int) -> NDArray[np.int32]:
    return ff.FactorGraph.grid(height, width, 2).slot_variables.reshape(-1, 2)


def ising_grid(name: str, height: int, width: int, low: float, high: float, seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    edges = grid_edges(height, width)
    coupling = rng.uniform(low, high, len(edges))
    field = rng.uniform(-0.5, 0.5, height * width)
    spin = np.array([-1.0, 1.0])
    return Problem(
        name, edges, field[:, None] * spin, coupling[:, None, None] * np.outer(spin, spin)
    )


def potts_grid(height: int = 60, width: int = 80, n_labels: int = 5, seed: int = 3) -> Problem:
    rng = np.random.default_rng(seed)
    unary = rng.standard_normal((height, width, n_labels))
    for _ in range(3):
        for axis in (0, 1):
            unary = sum(np.roll(unary, shift, axis) for shift in (-2, -1, 0, 1, 2)) / 5
    unary /= unary.std()
    edges = grid_edges(height, width)
    strength = rng.uniform(0.2, 1.0, len(edges))
    label = np.arange(n_labels)
    distance = np.minimum(np.abs(label[:, None] - label), 2).astype(float)
    return Problem(
        "potts60x80", edges, unary.reshape(-1, n_labels), -strength[:, None, None] * distance
    )


def random_regular(n: int = 10_000, degree: int = 3, n_labels: int = 3, seed: int = 4) -> Problem:
    rng = np.random.default_rng(seed)
    present: set[tuple[int, int]] = set()
    for _ in range(degree):
        while True:
            pairs = rng.permutation(n).reshape(-1, 2)
            pairs.sort(axis=1)
            new = {(int(a), int(b)) for a, b in pairs}
            if not new & present:
                present |= new
                break
    edges = np.array(sorted(present), dtype=np.int32)
    unary = 0.5 * rng.standard_normal((n, n_labels))
    return Problem(
        "reg3", edges, unary, 0.5 * rng.standard_normal((len(edges), n_labels, n_labels))
    )


def random_grid(side: int, n_labels: int, seed: int = 12) -> Problem:
    rng = np.random.default_rng(seed)
    edges = grid_edges(side, side)
    unary = rng.standard_normal((side * side, n_labels))
    tables = 0.5 * rng.standard_normal((len(edges), n_labels, n_labels))
    return Problem(f"grid{n_labels}", edges, unary, tables)


def problem(name: str) -> Problem:
    if name.startswith("grid"):
        return random_grid(200, int(name[4:]))
    return {
        "ising50": lambda: ising_grid("ising50", 50, 50, 0.0, 0.8, seed=1),
        "ising200": lambda: ising_grid("ising200", 200, 200, 0.0, 0.8, seed=2),
        "potts60x80": potts_grid,
        "reg3": random_regular,
        "strong50": lambda: ising_grid("strong50", 50, 50, -3.0, 3.0, seed=6),
    }[name]()


def random_problem(graph: ff.FactorGraph) -> tuple[ff.Potentials, NDArray[np.int32]]:
    """Standard normal potentials and labels drawn at random, seed 0."""
    rng = np.random.default_rng(0)
    potentials = ff.Potentials.from_flat(
        graph,
        rng.normal(size=int(graph.unary_offsets[-1])),
        rng.normal(size=int(graph.table_offsets[-1])),
    )
    return potentials, rng.integers(0, graph.cardinalities).astype(np.int32)
