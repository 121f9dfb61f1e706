"""Runs of solvers under a hail of signals; `test_interruptions.py` runs this program.

    python interruptions.py SECONDS

A signal handler that raises, as Python's own one of Ctrl-C does, is called at random moments: in
Python, and where a compiled kernel hands its results to Python.  Prints, for each solver, how
many runs were cut off and how many ended.
"""

from __future__ import annotations

import random
import signal
import sys
import time

import numpy as np

import fieldfit as ff
from fieldfit.inference.convex.interior_point import InteriorPoint


class Interrupted(Exception):
    """Raised by the signal handler, once for each signal."""


def interrupt(number, frame):
    raise Interrupted


def solvers():
    """One of each family of kernels; strong couplings make sweeps go on over parts of a grid."""
    return {
        "tree-reweighted": ff.SumProduct(ff.TreeReweighted(), max_iter=300),
        "bethe": ff.SumProduct(max_iter=100, damping=0.3),
        "mean-field": ff.MeanField(),
        "dual": ff.ConvexDual(max_iter=50),
        "interior point": InteriorPoint(ff.TreeReweighted()),
        "exact": ff.Exact(),
        "max-product": ff.MaxProduct(max_iter=50),
        "roof duality": ff.inference.RoofDuality(),
    }


def main(seconds: float) -> None:
    rng = np.random.default_rng(0)
    random.seed(0)
    graph = ff.FactorGraph.grid(12, 12, 2)
    potentials = ff.Potentials.from_flat(
        graph,
        rng.normal(size=graph.unary_offsets[-1]),
        3 * rng.normal(size=graph.table_offsets[-1]),
    )
    signal.signal(signal.SIGALRM, interrupt)
    for name, solver in solvers().items():
        begin = time.perf_counter()
        solver.run(graph, potentials)
        usual = time.perf_counter() - begin
        begin = time.perf_counter()
        solver.run(graph, potentials)
        usual = min(usual, time.perf_counter() - begin)
        cut_off = ended = 0
        stop = time.perf_counter() + seconds
        while time.perf_counter() < stop:
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, usual))
                solver.run(graph, potentials)
                signal.setitimer(signal.ITIMER_REAL, 0)
                ended += 1
            except Interrupted:
                cut_off += 1
        print(f"{name}: {cut_off} cut off, {ended} ended", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]))
