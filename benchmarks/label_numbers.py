"""What a message costs against the number of labels: what tables of Potts form could save at most.

    python -m benchmarks.label_numbers

A message of K labels costs K exponentials and logarithms, and K^2 products with its table; with
tables of Potts form, K products would do.  The part of the time that grows with K, for each label,
is therefore all that linear time could save.
"""

from __future__ import annotations

import time
import warnings

import numpy as np

import fieldfit as ff
from experiments.tables import markdown_table

LABELS = (3, 4, 8, 11, 16, 21, 32, 64)
#: Of all tables together, roughly.
N_ENTRIES = 40_000


def seconds(side: int, n_labels: int, n_sweeps: int) -> float:
    """CPU time of so many sweeps, the least of three runs."""
    rng = np.random.default_rng(0)
    graph = ff.FactorGraph.grid(side, side, n_labels)
    potentials = ff.Potentials(graph, rng.normal(size=(side**2, n_labels)), 0.8 * np.eye(n_labels))
    inference = ff.SumProduct(ff.TreeReweighted(), max_iter=n_sweeps, tol=1e-30, accelerate=False)
    found = []
    for _ in range(4):  # the first one compiles
        begin = time.process_time()
        inference.run(graph, potentials)
        found.append(time.process_time() - begin)
    return min(found[1:])


def main() -> int:
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n_labels in LABELS:
            side = max(10, int((N_ENTRIES / n_labels) ** 0.5))
            spent = seconds(side, n_labels, 60) - seconds(side, n_labels, 10)
            n_messages = 50 * 4 * side * (side - 1)
            rows.append([n_labels, f"{1e9 * spent / n_messages / n_labels:.1f}"])
    print(markdown_table(["labels", "ns per message and label"], rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
