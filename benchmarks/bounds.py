"""How tight bounds on the log-partition are, over coupling strengths, against the exact value.

    python -m benchmarks.bounds [--seeds 10] [--out bounds.csv]
    python -m benchmarks.bounds --sizes
    python -m benchmarks.bounds --models 500

Spins with ``log p = sum_i h_i x_i + sum_ij J_ij x_i x_j - log Z`` on grids of 6 x 6 and 10 x 10 and
on the complete graph of 16 nodes: fields uniform in [-0.25, 0.25], couplings uniform in [0, J]
(attractive) or [-J, J] (mixed).  For every method: the mean over seeds of (value - log Z) / n with
its standard error, the mean error of the marginals, runs that have not converged, and processor
seconds.  Every finished row is written to a file, and a run that is killed goes on.  The table goes
to docs/benchmarks-bounds.md.  ``--sizes`` times the log-determinant on larger graphs instead,
beside the bound by uniform trees, one model each.  ``--models`` holds the log-determinant to
enumeration on random models: the bound, and its derivative in a random direction.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

import fieldfit as ff
from benchmarks.pages import DOCS, written_section

STRENGTHS = {
    "grid 6 x 6": (0.5, 1.0, 2.0),
    "grid 10 x 10": (0.5, 1.0, 2.0),
    "complete 16": (0.06, 0.12, 0.5),
}
METHODS = {
    "TRW, uniform": ff.SumProduct(ff.TreeReweighted()),
    "TRW, optimised": ff.SumProduct(ff.TreeReweighted("optimized")),
    "Kikuchi, equal": ff.GeneralizedSumProduct(entropy=ff.HypertreeReweighted()),
    "Kikuchi, optimised": ff.GeneralizedSumProduct(entropy=ff.HypertreeReweighted("optimized")),
    "log-determinant": ff.inference.LogDeterminant(),
    "mean field (below)": ff.MeanField(),
}
#: Complete graphs and grids whose log-partition need not be known.
SIZES = ("complete 16", "complete 32", "complete 48", "complete 64", "grid 6 x 6", "grid 10 x 10",
         "grid 14 x 14")  # fmt: skip
FIELDS = ("graph", "couplings", "J", "seed", "method", "gap", "error", "converged", "seconds")


def graph_of(name: str) -> ff.FactorGraph:
    if name.startswith("grid"):
        size = int(name.split()[-1])
        return ff.FactorGraph.grid(size, size, 2)
    n = int(name.split()[-1])
    return ff.FactorGraph.from_edges(n, [(i, j) for i in range(n) for j in range(i + 1, n)], 2)


def spins(graph: ff.FactorGraph, strength: float, mixed: bool, seed: int) -> ff.Potentials:
    rng = np.random.default_rng(seed)
    fields = rng.uniform(-0.25, 0.25, graph.n_variables)
    couplings = rng.uniform(-strength if mixed else 0.0, strength, graph.n_factors)
    sign = np.array([-1.0, 1.0])
    tables = couplings[:, None, None] * np.outer(sign, sign)
    return ff.Potentials.from_flat(graph, np.outer(fields, sign).ravel(), tables.ravel())


def rows(seeds: int, done: set[tuple[str, ...]]) -> Iterator[dict[str, object]]:
    """Rows that are not there yet."""
    for name, strengths in STRENGTHS.items():
        graph = graph_of(name)
        for kind in ("attractive", "mixed"):
            for strength in strengths:
                for seed in range(seeds):
                    key = (name, kind, str(strength), str(seed))
                    missing = [method for method in METHODS if (*key, method) not in done]
                    if not missing:
                        continue
                    potentials = spins(graph, strength, kind == "mixed", seed)
                    exact = ff.Exact().run(graph, potentials)
                    truth = exact.beliefs.unary_matrix()[:, 1]
                    for method in missing:
                        begin = time.process_time()
                        found = METHODS[method].run(graph, potentials)
                        seconds = time.process_time() - begin
                        gap = (found.log_partition - exact.log_partition) / graph.n_variables
                        error = np.abs(found.beliefs.unary_matrix()[:, 1] - truth).mean()
                        values = (*key, method, gap, error, int(found.converged), seconds)
                        yield dict(zip(FIELDS, values, strict=True))


def table(found: list[dict[str, str]]) -> Iterator[str]:
    columns = ("graph", "couplings", "J", "method")
    figures = ("(value - log Z) / n", "error of marginals", "not converged", "CPU s")
    yield f"| {' | '.join(columns + figures)} |"
    yield "|" + "---|" * len(columns + figures)
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in found:
        groups.setdefault(tuple(row[name] for name in columns), []).append(row)
    for key in sorted(groups, key=order):
        group = groups[key]
        gaps = np.array([float(row["gap"]) for row in group])
        error = np.mean([float(row["error"]) for row in group])
        open_runs = sum(row["converged"] == "0" for row in group)
        seconds = np.mean([float(row["seconds"]) for row in group])
        se = gaps.std(ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else np.nan
        values = (
            *key,
            f"{gaps.mean():+.4f} ± {se:.4f}",
            f"{error:.4f}",
            f"{open_runs} of {len(group)}",
            f"{seconds:.3f}",
        )
        yield f"| {' | '.join(values)} |"


def sizes() -> Iterator[str]:
    """Mixed couplings up to 0.5 and 2: iterations, seconds, and how far trees are above."""
    yield "| graph | J | iterations | converged | CPU s | (trees - log-determinant) / n |"
    yield "|---|---|---|---|---|---|"
    for name in SIZES:
        graph = graph_of(name)
        for strength in (0.5, 2.0):
            potentials = spins(graph, strength, True, 0)
            trees = ff.SumProduct(ff.TreeReweighted()).run(graph, potentials)
            begin = time.process_time()
            found = ff.inference.LogDeterminant().run(graph, potentials)
            seconds = time.process_time() - begin
            gain = (trees.log_partition - found.log_partition) / graph.n_variables
            converged = "yes" if found.converged else f"gap {found.residual:.1e}"
            values = (name, strength, found.n_iter, converged, f"{seconds:.2f}", f"{gain:+.4f}")
            yield f"| {' | '.join(map(str, values))} |"


def random_pairs(number: int) -> tuple[ff.FactorGraph, ff.Potentials]:
    """A small model of two or three labels, connected or not, couplings from weak to strong."""
    rng = np.random.default_rng([11, number])
    n = int(rng.integers(1, 6))
    edges = [(i, j) for i in range(n) for j in range(i) if rng.random() < 0.6]
    graph = ff.FactorGraph(rng.integers(2, 4, n), edges)
    scale = float(10.0 ** rng.uniform(-1, 1))
    sizes = int(graph.unary_offsets[-1]), int(graph.table_offsets[-1])
    unary, tables = (scale * rng.normal(size=size) for size in sizes)
    return graph, ff.Potentials.from_flat(graph, unary, tables)


def slopes(number: int, solver: ff.inference.Inference, step: float) -> tuple[float, float]:
    """Derivative of the bound of a random model: by differences, and by beliefs."""
    graph, potentials = random_pairs(number)
    rng = np.random.default_rng([12, number])
    unary = rng.normal(size=len(potentials.unary_values))
    tables = rng.normal(size=len(potentials.factor_values))
    values = [
        solver.run(
            graph,
            ff.Potentials.from_flat(
                graph,
                potentials.unary_values + move * unary,
                potentials.factor_values + move * tables,
            ),
        ).log_partition
        for move in (step, -step)
    ]
    beliefs = solver.run(graph, potentials).beliefs
    expected = float(unary @ beliefs.unary_values + tables @ beliefs.factor_values)
    return (values[0] - values[1]) / (2.0 * step), expected


def check_models(count: int) -> None:
    """Print what fails, and the largest error of a derivative."""
    solver = ff.inference.LogDeterminant(tol=1e-11)
    broken, not_converged, worst, least = 0, 0, 0.0, np.inf
    for number in range(count):
        graph, potentials = random_pairs(number)
        exact = ff.BruteForce().run(graph, potentials).log_partition
        for max_iter in (3, 100):
            found = replace(solver, max_iter=max_iter).run(graph, potentials)
            if found.log_partition < exact:
                broken += 1
                print(f"model {number}: {found.log_partition} is below {exact}", flush=True)
        not_converged += not found.converged
        least = min(least, (found.log_partition - exact) / graph.n_variables)
        slope, expected = slopes(number, solver, 1e-4)
        worst = max(worst, abs(slope - expected) / max(1.0, abs(expected)))
    print(
        f"{count} models: {broken} bounds broken, {not_converged} runs not converged, smallest "
        f"(bound - log Z) / n {least:.4f}, largest error of a derivative {worst:.1e}"
    )


def order(key: tuple[str, ...]) -> tuple[object, ...]:
    graph, kind, strength, method = key
    return list(STRENGTHS).index(graph), kind, float(strength), list(METHODS).index(method)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("bounds.csv"), help="rows, kept")
    parser.add_argument("--sizes", action="store_true", help="time larger graphs instead")
    parser.add_argument("--models", type=int, help="check so many random models instead")
    args = parser.parse_args()
    if args.models is not None:
        check_models(args.models)
        return
    if args.sizes:
        with written_section(
            DOCS / "benchmarks-bounds.md", "sizes", "python -m benchmarks.bounds --sizes"
        ) as say:
            for line in sizes():
                say(line)
        return
    found: list[dict[str, str]] = []
    if args.out.exists():
        with args.out.open() as file:
            found = list(csv.DictReader(file))
    done = {tuple(row[name] for name in FIELDS[:5]) for row in found}
    with args.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if not found:
            writer.writeheader()
        for row in rows(args.seeds, done):
            writer.writerow(row)
            file.flush()
            found.append({name: str(value) for name, value in row.items()})
            print(*row.values(), flush=True)
    command = f"python -m benchmarks.bounds --seeds {args.seeds}"
    with written_section(DOCS / "benchmarks-bounds.md", "bounds", command) as say:
        for line in table(found):
            say(line)


if __name__ == "__main__":
    main()
