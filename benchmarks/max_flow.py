"""Minimum cuts and roof duality on grids: fieldfit beside PyMaxflow and scipy, in one process.

python -m benchmarks.max_flow [--write docs/max-flow.md]

PyMaxflow is under the GPL, hence no dependency and not installed by any command here.  To have its
column filled, run this in an environment of its own that has it besides fieldfit; otherwise the
column says "not installed".
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

import fieldfit as ff
from benchmarks.pages import replace_section, stamp
from benchmarks.timing import best_of
from experiments.tables import markdown_table
from fieldfit.inference.map.graph_cut.max_flow import MaxFlow
from fieldfit.inference.map.graph_cut.roof_duality import RoofDuality

try:
    import maxflow as peer
except ImportError:
    peer = None

#: scipy takes 32-bit integers; this keeps four digits, and the sum of all terminals in range.
INTEGER_SCALE = 1e4

Floats = np.ndarray


class Grid:
    """A square grid: unary potentials, and how much every pair would rather agree."""

    def __init__(self, side: int, coupling: float, mixed: bool = False) -> None:
        rng = np.random.default_rng(0)
        self.side = side
        self.unary = rng.normal(size=(side * side, 2))
        n_edges = 2 * side * (side - 1)
        self.weights = coupling * (rng.uniform(-1, 1, n_edges) if mixed else rng.random(n_edges))

    def model(self) -> tuple[ff.FactorGraph, ff.Potentials]:
        graph = ff.FactorGraph.grid(self.side, self.side, 2)
        tables = np.zeros((len(self.weights), 2, 2))
        tables[:, 0, 1] = tables[:, 1, 0] = -self.weights
        return graph, ff.Potentials(graph, self.unary, tables)

    def cut_cost(self) -> float:
        """Capacity of the minimum cut, from the score of fieldfit's labelling."""
        return float(self.unary.max(axis=1).sum() - MaxFlow().run(*self.model()).score)

    def by_peer(self) -> float:
        network = peer.GraphFloat(self.side**2, len(self.weights))
        nodes = network.add_grid_nodes((self.side, self.side))
        right, down = self._directions()
        for weights, structure in (
            (right, [[0, 0, 0], [0, 0, 1], [0, 0, 0]]),
            (down, [[0, 0, 0], [0, 0, 0], [0, 1, 0]]),
        ):
            network.add_grid_edges(nodes, weights, np.array(structure), symmetric=True)
        terminal = (self.unary[:, 0] - self.unary[:, 1]).reshape(nodes.shape)
        network.add_grid_tedges(nodes, np.maximum(terminal, 0), np.maximum(-terminal, 0))
        return float(network.maxflow())

    def by_scipy(self) -> float:
        n = self.side**2
        pixel = np.arange(n).reshape(self.side, self.side)
        tails = np.concatenate([pixel[:, :-1].ravel(), pixel[:-1].ravel()])
        heads = np.concatenate([pixel[:, 1:].ravel(), pixel[1:].ravel()])
        terminal = self.unary[:, 0] - self.unary[:, 1]
        rows = np.concatenate([tails, heads, np.full(n, n), np.arange(n)])
        columns = np.concatenate([heads, tails, np.arange(n), np.full(n, n + 1)])
        values = np.concatenate(
            [self.weights, self.weights, np.maximum(terminal, 0), np.maximum(-terminal, 0)]
        )
        whole = np.round(INTEGER_SCALE * values).astype(np.int32)
        network = csr_array((whole, (rows, columns)), shape=(n + 2, n + 2))
        return maximum_flow(network, n, n + 1).flow_value / INTEGER_SCALE

    def _directions(self) -> tuple[Floats, Floats]:
        right, down = np.zeros((2, self.side, self.side))
        n_right = self.side * (self.side - 1)
        right[:, :-1] = self.weights[:n_right].reshape(self.side, self.side - 1)
        down[:-1] = self.weights[n_right:].reshape(self.side - 1, self.side)
        return right, down


def cuts(repeats: int) -> list[str]:
    """Times from arrays to labels; all flows have to agree."""
    rows = []
    for side, coupling in ((100, 1.0), (400, 0.5), (400, 1.0), (400, 2.0)):
        grid = Grid(side, coupling)
        kept = grid.model()
        functions: dict[str, Callable[[], object]] = {
            "new": lambda grid=grid: MaxFlow().run(*grid.model()),
            "again": lambda kept=kept: MaxFlow().run(*kept),
            "scipy": grid.by_scipy,
        }
        cost = grid.cut_cost()
        if peer is not None:
            functions["peer"] = grid.by_peer
            assert abs(grid.by_peer() - cost) < 1e-6 * cost
        assert abs(grid.by_scipy() - cost) < 1e-3 * cost
        seconds = best_of(functions, repeats=repeats)
        theirs, ratio = "not installed", ""
        if peer is not None:
            theirs = f"{1e3 * seconds['peer']:.1f}"
            ratio = f"{seconds['new'] / seconds['peer']:.2f}"
        rows.append(
            [
                f"{side} x {side}",
                f"{coupling:g}",
                f"{1e3 * seconds['new']:.1f}",
                f"{1e3 * seconds['again']:.1f}",
                theirs,
                ratio,
                f"{1e3 * seconds['scipy']:.0f}",
            ]
        )
    header = [
        "grid", "coupling", "fieldfit ms", "same graph again ms", "PyMaxflow ms", "ratio",
        "scipy ms",
    ]  # fmt: skip
    return [
        "From arrays to the labels of a minimum cut, graph construction included; CPU time of one "
        "thread, the least of interleaved repeats. Couplings are uniform in [0, coupling], unary "
        "potentials standard normal:",
        "",
        markdown_table(header, rows),
        "",
    ]


def roofs(repeats: int) -> list[str]:
    """Roof duality where pairs of both signs are mixed."""
    rows = []
    for side, coupling in ((100, 0.5), (400, 0.5), (400, 1.0)):
        graph, potentials = Grid(side, coupling, mixed=True).model()
        result = RoofDuality().run(graph, potentials)
        seconds = best_of(
            {"run": lambda g=graph, p=potentials: RoofDuality().run(g, p)}, repeats=repeats
        )
        share = float((result.beliefs.unary_values != 0.5).mean())
        gap = (result.upper_bound - result.score) / abs(result.upper_bound)
        rows.append(
            [
                f"{side} x {side}",
                f"{coupling:g}",
                f"{1e3 * seconds['run']:.1f}",
                f"{100 * share:.1f} %",
                f"{100 * gap:.2g} %",
            ]
        )
    return [
        "Roof duality, beliefs of all tables included, on a graph that was seen before; couplings "
        "are uniform in [-coupling, coupling]:",
        "",
        markdown_table(["grid", "coupling", "ms", "decided", "bound above score"], rows),
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, metavar="PAGE", help="page to put the tables in")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    lines = [stamp("python -m benchmarks.max_flow"), "", *cuts(options.repeats)]
    lines += roofs(options.repeats)
    print("\n".join(lines))
    if options.write:
        replace_section(options.write, "benchmark", lines)


if __name__ == "__main__":
    main()
