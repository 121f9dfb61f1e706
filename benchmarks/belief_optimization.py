"""What belief optimisation costs, and where it converges.

python -m benchmarks.belief_optimization [--write docs/belief-optimization.md]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fieldfit as ff
from benchmarks.pages import replace_section, stamp
from benchmarks.timing import best_of
from experiments.tables import markdown_table
from fieldfit.graph.batch import Batch
from fieldfit.inference.free_energy.belief_optimization import BeliefOptimization, descend_bethe
from fieldfit.inference.free_energy.bethe_free_energy import BetheEnergy
from fieldfit.inference.messages.message_arrays import Changes
from fieldfit.inference.messages.message_run import build_model, initial_state
from fieldfit.inference.messages.message_sweeps import sweep_kernel
from fieldfit.inference.messages.schedule import cached_plan, common_labels

N_MODELS = 50
#: Skip-chains: examples, variables of each, links beyond the chain.
N_CHAINS, LENGTH, N_LINKS = 500, 200, 62


def skip_chains() -> tuple[Batch, ff.Potentials]:
    """Binary chains with random links, as one batch."""
    rng = np.random.default_rng(0)
    chain = np.stack([np.arange(LENGTH - 1), np.arange(1, LENGTH)], axis=1)
    graphs = []
    for _ in range(N_CHAINS):
        links = rng.integers(0, LENGTH, (N_LINKS, 2))
        edges = np.concatenate([chain, links[links[:, 0] != links[:, 1]]])
        graphs.append(ff.FactorGraph.from_edges(LENGTH, edges, 2))
    batch = Batch.of(graphs)
    unary = rng.normal(size=(batch.graph.n_variables, 2))
    return batch, ff.Potentials(batch.graph, unary, rng.normal(size=(batch.graph.n_factors, 2, 2)))


def flooding(graph: ff.FactorGraph, potentials: ff.Potentials) -> Callable[[], object]:
    """One sweep of loopy belief propagation, all messages at once."""
    model = build_model(graph, potentials, ff.Bethe().counting_numbers(graph), None)
    plan, state = cached_plan(graph, "flooding"), initial_state(graph, model, None)
    changes = Changes(np.zeros(len(plan.pair_target)), np.zeros(len(plan.slots)))
    arguments = (common_labels(graph), graph.structure, plan, model, state, changes)
    return lambda: sweep_kernel(None)(*arguments, 0.0, -1.0, 1)


def steps() -> list[str]:
    """CPU time of evaluations and relaxations, beside a flooding sweep."""
    batch, potentials = skip_chains()
    graph = batch.graph
    rng = np.random.default_rng(1)
    log_unary = np.full((graph.n_variables, 2), np.log(1e-4))
    labels = rng.integers(0, 2, graph.n_variables)
    log_unary[np.arange(graph.n_variables), labels] = np.log1p(-1e-4)
    point, targets = log_unary.ravel(), np.empty(2 * graph.n_variables)
    energy = BetheEnergy(batch, potentials.unary_values, potentials.factor_values)
    everyone, free = np.arange(batch.n_examples), np.ones(graph.n_variables, dtype=np.bool_)
    seconds = best_of(
        {
            "flooding sweep": flooding(graph, potentials),
            "free energies and targets": lambda: energy(point, everyone, targets),
            "factor beliefs": energy.tables,
            "descent of 1 step": lambda: descend_bethe(batch, potentials, point, 1, free),
            "descent of 5 steps": lambda: descend_bethe(batch, potentials, point, 5, free),
            "descent of 10 steps": lambda: descend_bethe(batch, potentials, point, 10, free),
        },
        repeats=15,
    )
    base = seconds["flooding sweep"]
    rows = [[name, f"{1e3 * s:.1f}", f"{s / base:.2f}"] for name, s in seconds.items()]
    return [
        f"{batch.n_examples} skip-chains, {graph.n_variables:,} binary variables and "
        f"{graph.n_factors:,} pairs in one batch, from smoothed labels; CPU time in one thread:",
        "",
        markdown_table(["work", "ms", "sweeps"], rows),
        "",
    ]


def complete(n_variables: int, n_labels: int) -> ff.FactorGraph:
    edges = [(i, j) for i in range(n_variables) for j in range(i)]
    return ff.FactorGraph.from_edges(n_variables, edges, n_labels)


def coupled(graph: ff.FactorGraph, size: float, seed: int) -> ff.Potentials:
    """Couplings of +-size between labels 1, unary potentials N(0, 0.3^2)."""
    rng = np.random.default_rng(seed)
    tables = np.zeros((graph.n_factors, 2, 2))
    tables[:, 1, 1] = size * rng.choice([-1.0, 1.0], graph.n_factors)
    return ff.Potentials(graph, 0.3 * rng.normal(size=(graph.n_variables, 2)), tables)


def spins(graph: ff.FactorGraph, size: float, seed: int) -> ff.Potentials:
    """Spins of +-1, couplings U[-size, size], fields N(0, 0.3^2)."""
    rng = np.random.default_rng(seed)
    product = np.array([[1.0, -1.0], [-1.0, 1.0]])
    tables = rng.uniform(-size, size, graph.n_factors)[:, None, None] * product
    field = 0.3 * rng.normal(size=(graph.n_variables, 1))
    return ff.Potentials(graph, field * np.array([-1.0, 1.0]), tables)


def normal(graph: ff.FactorGraph, size: float, seed: int) -> ff.Potentials:
    """All log-potentials N(0, size^2)."""
    rng = np.random.default_rng(seed)
    k = graph.uniform_cardinality
    shape = (graph.n_factors, k, k)
    return ff.Potentials(
        graph, size * rng.normal(size=(graph.n_variables, k)), size * rng.normal(size=shape)
    )


def convergence() -> list[str]:
    """How many random models each way of minimising Bethe's free energy settles, and the time."""
    problems = {
        "6x6 grid, couplings +-8": (ff.FactorGraph.grid(6, 6, 2), coupled, 8.0),
        "8 variables, all pairs, +-8": (complete(8, 2), coupled, 8.0),
        "6x6 grid of spins, U[-8, 8]": (ff.FactorGraph.grid(6, 6, 2), spins, 8.0),
        "20x20 grid of spins, U[-2, 2]": (ff.FactorGraph.grid(20, 20, 2), spins, 2.0),
        "7 variables of 3 labels, all pairs, N(0, 3^2)": (complete(7, 3), normal, 3.0),
    }
    solvers = {
        "sequential sweeps, no damping": ff.SumProduct(damping=0.0),
        "sweeps, damping when needed": ff.SumProduct(),
        "`DoubleLoop`": ff.DoubleLoop(),
        "`BeliefOptimization`": BeliefOptimization(),
    }
    rows = []
    for name, (graph, make, size) in problems.items():
        models = [make(graph, size, seed) for seed in range(N_MODELS)]
        row = [name]
        for solver in solvers.values():
            solver.run(graph, models[0])  # compile
            begin = time.process_time()
            settled = sum(solver.run(graph, model).converged for model in models)
            milliseconds = 1e3 * (time.process_time() - begin) / N_MODELS
            row.append(f"{settled} of {N_MODELS}, {milliseconds:.3g} ms")
        rows.append(row)
    return [
        "Random models that converge (tolerance 1e-8, default limits), and mean CPU time:",
        "",
        markdown_table(["models", *solvers], rows),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, metavar="PAGE", help="page to put the tables in")
    options = parser.parse_args()
    command = "python -m benchmarks.belief_optimization"
    lines = [stamp(command), "", *steps(), *convergence()]
    print("\n".join(lines))
    if options.write:
        replace_section(options.write, "benchmark", lines)


if __name__ == "__main__":
    main()
