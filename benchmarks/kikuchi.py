"""Errors and times of Kikuchi's regions against Bethe's, on grids of spins.

Spins of size one, couplings uniform in [-J, J], fields uniform in [-0.25, 0.25]; the truth is
that of `Exact`.  ``python -m benchmarks.kikuchi --write docs/kikuchi.md``
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from benchmarks.pages import replace_section, stamp
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.inference.junction_tree.exact import Exact
from fieldfit.inference.kikuchi.generalized_sum_product import GeneralizedSumProduct
from fieldfit.inference.kikuchi.region_graph import RegionGraph
from fieldfit.inference.messages.sum_product import SumProduct

FIELD = 0.25
SETTINGS = ((6, 0.5), (6, 1.5), (6, 3.0), (10, 0.5), (10, 1.5), (10, 3.0))
METHODS = {
    "loopy propagation": SumProduct(tol=1e-6),
    "Bethe, double loop": GeneralizedSumProduct("bethe", max_rounds=5000),
    "plaquettes, messages": GeneralizedSumProduct("plaquettes", method="messages"),
    "plaquettes, double loop": GeneralizedSumProduct("plaquettes", max_rounds=5000),
}


def spin_glass(seed: int, side: int, coupling: float) -> tuple[FactorGraph, Potentials]:
    rng = np.random.default_rng(seed)
    graph = FactorGraph.grid(side, side, 2)
    strength = rng.uniform(-coupling, coupling, (graph.n_factors, 1, 1))
    unary = rng.uniform(-FIELD, FIELD, (side * side, 1)) * np.array([[1.0, -1.0]])
    return graph, Potentials(graph, unary, strength * np.array([[1.0, -1.0], [-1.0, 1.0]]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    for solver in METHODS.values():
        solver.run(*spin_glass(0, 3, 1.0))  # compile
    lines = [
        stamp("python -m benchmarks.kikuchi --write docs/kikuchi.md"),
        f"Means over {options.seeds} models; times are CPU milliseconds on a shared machine.",
        "",
        "| grid | J | method | error of marginals | error of log Z | converged | ms |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for side, coupling in SETTINGS:
        models = [spin_glass(seed, side, coupling) for seed in range(options.seeds)]
        truth = [Exact().run(*model) for model in models]
        for graph, _ in models:  # regions are remembered; their making is not timed
            RegionGraph.of(graph, "bethe")
            RegionGraph.of(graph, "plaquettes")
        for name, solver in METHODS.items():
            errors, values, converged, begin = [], [], 0, time.process_time()
            results = [solver.run(*model) for model in models]
            spent = time.process_time() - begin
            for result, exact in zip(results, truth, strict=True):
                gap = result.beliefs.unary_matrix() - exact.beliefs.unary_matrix()
                errors.append(np.abs(gap[:, 0]).mean())
                values.append(abs(result.log_partition - exact.log_partition))
                converged += result.converged
            lines.append(
                f"| {side}x{side} | {coupling:g} | {name} | {np.mean(errors):.5f} | "
                f"{np.mean(values):.4f} | {converged}/{len(models)} | "
                f"{1e3 * spent / len(models):.1f} |"
            )
            print(lines[-1], flush=True)
    if options.write:
        replace_section(options.write, "errors", lines)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
