"""Concave and Bethe solvers on strong couplings and hard zeros: the UAI 2014 models, and grids.

FIELDFIT_DATA=folder python -m benchmarks.strong_couplings [--write docs/benchmarks-solvers.md]

"Sweeps alone" is the same solver with ``accelerate=False``.  CPU seconds of one thread, one run
each, after kernels have been compiled; limits are the defaults (1,000 sweeps, 1,000 rounds; the
double loop without acceleration is stopped after 100 rounds).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import fieldfit as ff
from benchmarks.pages import stamp
from experiments.tables import markdown_table

#: Belief optimisation without interior-point steps, at commit 5374b5f: CPU seconds, converged.
RECORDED = {
    "Promedus_15": "41.8, no",
    "Promedus_22": "11.7, yes",
    "Promedus_30": "29.8, yes",
    "Pedigree_12": "16.4, no",
}
Model = tuple[str, ff.FactorGraph, ff.Potentials, Any]


def uai_models() -> Iterator[Model]:
    folder = Path(os.environ["FIELDFIT_DATA"]) / "uai2014" / "mar_pr"
    for path in sorted(folder.glob("*.uai")):
        yield path.stem, *ff.read_uai(path), ff.io.read_evidence(f"{path}.evid")


def grids() -> Iterator[Model]:
    """Potts grids, fields N(0, 1), couplings of 5: learned ones are that strong."""
    sizes = ((28, 2), (100, 2), (20, 5))
    for (side, n_labels), kind in product(sizes, ("attractive", "mixed")):
        rng = np.random.default_rng(0)
        graph = ff.FactorGraph.grid(side, side, n_labels)
        signs = rng.choice([-1.0, 1.0], graph.n_factors) if kind == "mixed" else 1.0
        strength = np.broadcast_to(5.0 * signs, graph.n_factors)
        tables = strength[:, None, None] * np.eye(n_labels)
        unary = rng.normal(size=(side * side, n_labels))
        name = f"{side} x {side}, {n_labels} labels, {kind}"
        yield name, graph, ff.Potentials(graph, unary, tables), None


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    run()  # kernels, patterns and plans are there afterwards
    start = time.process_time()
    result = run()
    return result, time.process_time() - start


def verdict(result: Any, seconds: float) -> str:
    return f"{seconds:.2f}, {'yes' if result.converged else 'no'}"


def concave_rows(models: Iterator[Model], entropy: Any) -> list[list[str]]:
    """Sweeps alone and with acceleration; how far the bound of sweeps alone is off."""
    rows = []
    alone = ff.SumProduct(entropy, accelerate=False)
    for name, graph, potentials, evidence in models:
        model = (graph, potentials, evidence)
        slow, slow_seconds = timed(partial(alone.run, *model))
        fast, seconds = timed(partial(ff.SumProduct(entropy).run, *model))
        steps = fast.diagnostics["n_interior_point"]
        off = slow.log_partition - fast.log_partition
        rows.append(
            [name, verdict(slow, slow_seconds), f"{off:.1e}", f"{fast.log_partition:.6f}",
             verdict(fast, seconds), f"{fast.n_iter} + {steps}"]
        )  # fmt: skip
        print(" | ".join(rows[-1]), flush=True)
    return rows


def bethe_rows() -> list[list[str]]:
    rows = []
    alone = ff.DoubleLoop(accelerate=False, max_rounds=100)
    for name, graph, potentials, evidence in uai_models():
        model = (graph, potentials, evidence)
        slow, slow_seconds = timed(partial(alone.run, *model))
        loop, loop_seconds = timed(partial(ff.DoubleLoop().run, *model))
        best, best_seconds = timed(partial(ff.BeliefOptimization().run, *model))
        rows.append(
            [name, verdict(slow, slow_seconds), verdict(loop, loop_seconds),
             RECORDED.get(name, "-"), verdict(best, best_seconds), f"{best.log_partition:.6f}"]
        )  # fmt: skip
        print(" | ".join(rows[-1]), flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    if "FIELDFIT_DATA" not in os.environ:
        print("FIELDFIT_DATA must name the folder of the data sets", file=sys.stderr)
        return 2
    header = ["model", "sweeps alone: s, converged", "its bound is off by", "log-partition",
              "accelerated: s, converged", "sweeps + interior-point iterations"]  # fmt: skip
    trees, convex = ff.TreeReweighted(), ff.Convex()
    lines = [
        "# Strong couplings and hard zeros",
        "",
        stamp("python -m benchmarks.strong_couplings"),
        "",
        *(__doc__ or "").strip().splitlines()[-4:],
        "",
        "## Tree-reweighted, to 1e-8",
        "",
        markdown_table(header, concave_rows(uai_models(), trees) + concave_rows(grids(), trees)),
        "",
        "## Convex, to 1e-8",
        "",
        markdown_table(header, concave_rows(uai_models(), convex) + concave_rows(grids(), convex)),
        "",
        "## Bethe, to 1e-8",
        "",
        "`BeliefOptimization` without interior-point steps was measured once, at commit 5374b5f.",
        "",
        markdown_table(
            ["model", "100 rounds alone: s, converged", "`DoubleLoop`: s, converged",
             "descent alone: s, converged", "`BeliefOptimization`: s, converged", "log-partition"],
            bethe_rows(),
        ),
    ]  # fmt: skip
    print("\n".join(lines))
    if options.write:
        options.write.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
