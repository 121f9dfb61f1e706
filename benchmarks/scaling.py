"""Time and memory of belief propagation as the grid grows, each size in its own process."""

from __future__ import annotations

import json
import math
import subprocess
import sys

SIDES = (100, 178, 316, 562, 1000)
N_SWEEPS = 30

CHILD = """
import json, re, sys, time
from pathlib import Path
import numpy as np
import fieldfit as ff

side, n_sweeps = int(sys.argv[1]), int(sys.argv[2])
spin = np.array([-1.0, 1.0])
solver = ff.SumProduct(max_iter=n_sweeps, tol=1e-300)  # never settles: every sweep is a full one
small = ff.FactorGraph.grid(60, 60, 2)
solver.run(small, ff.Potentials(small))  # load the compiled kernels

def peak():  # of this process; getrusage would include the one that started it
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

def seconds_of(function):
    start = time.process_time()
    result = function()
    return result, time.process_time() - start

rng = np.random.default_rng(13)
def build():
    graph = ff.FactorGraph.grid(side, side, 2)
    coupling = rng.uniform(0, 0.5, graph.n_factors)
    field = rng.uniform(-0.5, 0.5, graph.n_variables)
    return graph, ff.Potentials(
        graph, field[:, None] * spin, coupling[:, None, None] * np.outer(spin, spin)
    )

(graph, potentials), building = seconds_of(build)
predicted = solver.memory(graph)
print(f"  {side} x {side}: {predicted / 1e6:.0f} MB predicted", file=sys.stderr)
before = peak()
_, first = seconds_of(lambda: solver.run(graph, potentials))
measured = peak() - before
_, second = seconds_of(lambda: solver.run(graph, potentials))
print(json.dumps(dict(side=side, building=building, running=min(first, second),
                      predicted=predicted, measured=measured)))
"""


def scaling() -> list[dict[str, float]]:
    """One row for each size."""
    rows = []
    for side in SIDES:
        output = subprocess.run(
            [sys.executable, "-c", CHILD, str(side), str(N_SWEEPS)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
        rows.append(json.loads(output))
    return rows


def slope(rows: list[dict[str, float]], key: str) -> float:
    """Slope in the log-log plot of a column against the number of pixels, by least squares."""
    x = [2 * math.log(row["side"]) for row in rows]
    y = [math.log(row[key]) for row in rows]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    top = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return top / sum((a - mean_x) ** 2 for a in x)
