"""Inference and learning in other processes; `test_processes.py` runs this program.

    python processes.py fork|spawn|forkserver before|after

The processes are started before or after kernels have run in threads here.  Prints what each
process finds, digit for digit.
"""

from __future__ import annotations

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor

import numpy as np

import fieldfit as ff


def find(n_jobs):
    """Marginals and gradients by kernels that run in threads, and learned weights."""
    rng = np.random.default_rng(0)
    graph = ff.FactorGraph.grid(50, 50, 2)
    potentials = ff.Potentials.from_flat(
        graph, rng.normal(size=graph.unary_offsets[-1]), rng.normal(size=graph.table_offsets[-1])
    )
    labels = rng.integers(0, 2, graph.n_variables)
    run = ff.SumProduct(ff.TreeReweighted(), max_iter=5, n_jobs=n_jobs).run(graph, potentials)
    loss = ff.ProceduralLoss(n_sweeps=3, n_jobs=n_jobs)
    value, gradient = loss.value_and_grad(graph, potentials, labels)
    model = ff.IsingModel(n_jobs=n_jobs).fit(rng.integers(0, 2, (60, 4)))
    numbers = [run.log_partition, value, float(gradient.factor_values.sum()), *model.weights_]
    return " ".join(float(number).hex() for number in numbers)


if __name__ == "__main__":
    method, when = sys.argv[1:]
    if when == "after":
        print(find(2), flush=True)
    with ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
        for line in pool.map(find, [None, 2, 2]):
            print(line, flush=True)
