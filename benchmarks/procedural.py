"""What the way back through sweeps costs: value and gradient beside the forward pass alone.

python -m benchmarks.procedural [--write docs/procedural.md]

``make bench`` has the first table as its section "gradients".
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fieldfit as ff
from benchmarks.pages import replace_section, stamp
from benchmarks.problems import random_problem
from benchmarks.timing import best_of
from experiments.tables import markdown_table
from fieldfit.inference.messages.message_arrays import Changes
from fieldfit.inference.messages.message_run import build_model, initial_state
from fieldfit.inference.messages.message_sweeps import run_sweeps
from fieldfit.inference.messages.schedule import common_labels
from fieldfit.inference.messages.unrolled_sum_product import UnrolledSumProduct
from fieldfit.objectives.procedural_loss import ProceduralLoss

N_SWEEPS = 5
#: So many that what comes before and after the sweeps hardly counts.
MANY_SWEEPS = 25
#: Never met: the sweeps do not stop early.
NO_TOLERANCE = 1e-300

BATCHES: dict[str, Callable[[], ff.graph.Batch]] = {
    "28 x 28, 2 labels, 90 pictures": lambda: ff.graph.Batch.of(
        [ff.FactorGraph.grid(28, 28, 2)] * 90
    ),
    "60 x 80, 11 labels": lambda: ff.graph.Batch.of([ff.FactorGraph.grid(60, 80, 11)]),
    "100 x 100, 2 labels": lambda: ff.graph.Batch.of([ff.FactorGraph.grid(100, 100, 2)]),
    "500 chains of 20, 9 labels": lambda: ff.graph.Batch.of([ff.FactorGraph.chain(20, 9)] * 500),
}


class Case:
    """One batch with random potentials and labels."""

    def __init__(self, batch: ff.graph.Batch, n_sweeps: int = N_SWEEPS) -> None:
        self.batch = batch
        self.n_sweeps = n_sweeps
        self.potentials, self.labels = random_problem(batch.graph)

    def forward(self) -> Callable[[], object]:
        """The forward pass of `SumProduct`: from potentials to all beliefs and the value."""
        inference = ff.SumProduct(damping=0.0, tol=NO_TOLERANCE, max_iter=self.n_sweeps)
        return lambda: inference.run_batch(self.batch, self.potentials)

    def bare_sweeps(self) -> Callable[[], object]:
        """The sweeps alone, on arrays that are there."""
        graph, sweeps = self.batch.graph, UnrolledSumProduct(self.n_sweeps)
        plan = sweeps.plan(self.batch)
        counting = ff.Bethe().counting_numbers(graph)
        model = build_model(graph, self.potentials, counting, None)
        state = initial_state(graph, model, None)
        changes = Changes(np.zeros(len(plan.pair_target)), np.zeros(len(plan.slots)))
        arguments = (common_labels(graph), graph.structure, plan, model, state, changes)
        return lambda: run_sweeps(*arguments, 0.0, -1.0, self.n_sweeps)

    def gradient(self, loss: str, **options: object) -> Callable[[], object]:
        objective = ProceduralLoss(loss, n_sweeps=self.n_sweeps, **options)  # type: ignore[arg-type]
        return lambda: objective.evaluate(self.batch, self.potentials, self.labels)


def gradients_of_sweeps(n_sweeps: int = N_SWEEPS) -> list[str]:
    """Value and gradient of sweeps (sequential, Bethe) as multiples of the forward pass."""
    rows = [
        "problem | forward, ms | ucl | ccl | ucl, checkpoints | sweeps alone, ms | ucl | ccl",
        "|".join(["---"] * 8),
    ]
    for name, make in BATCHES.items():
        case = Case(make(), n_sweeps)
        seconds = best_of(
            {
                "forward": case.forward(),
                "sweeps": case.bare_sweeps(),
                "ucl": case.gradient("ucl"),
                "ccl": case.gradient("ccl"),
                "checkpoints": case.gradient("ucl", checkpoints="sqrt"),
            },
            repeats=9,
        )
        whole, bare = seconds["forward"], seconds["sweeps"]
        times = [f"{seconds[key] / whole:.2f}" for key in ("ucl", "ccl", "checkpoints")]
        rows.append(
            " | ".join(
                [name, f"{1e3 * whole:.1f}", *times, f"{1e3 * bare:.1f}"]
                + [f"{seconds[key] / bare:.2f}" for key in ("ucl", "ccl")]
            )
        )
    return rows


def memory_of_tapes() -> str:
    """Megabytes of tape for some numbers of sweeps, whole and with checkpoints."""
    rows = []
    for name, make in BATCHES.items():
        graph = make().graph
        cells = [name]
        for n_sweeps in (5, 25, 100):
            whole = UnrolledSumProduct(n_sweeps).tape_bytes(graph)
            root = UnrolledSumProduct(n_sweeps, checkpoints="sqrt").tape_bytes(graph)
            cells.append(f"{whole / 1e6:.1f} / {root / 1e6:.1f}")
        rows.append(cells)
    return markdown_table(["problem", "5 sweeps", "25 sweeps", "100 sweeps"], rows)


def large_picture() -> str:
    """One gradient on 400 x 600 pixels with 5 labels, and the peak memory of the process."""
    case = Case(ff.graph.Batch.of([ff.FactorGraph.grid(400, 600, 5)]))
    evaluate = case.gradient("ucl")
    evaluate()
    start = time.process_time()
    evaluate()
    seconds = time.process_time() - start
    tape = UnrolledSumProduct(N_SWEEPS).tape_bytes(case.batch.graph)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return (
        f"400 x 600 pixels, 5 labels, {N_SWEEPS} sweeps: {seconds:.2f} s of CPU time for value and "
        f"gradient, tape {tape / 1e6:.0f} MB, peak memory of the process {peak / 1e9:.2f} GB."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="put the tables into this page")
    options = parser.parse_args()
    lines = [
        stamp("python -m benchmarks.procedural"),
        "",
        f"Value and gradient of {N_SWEEPS} sweeps as multiples of `SumProduct` with as many (from "
        "potentials to beliefs), and of its sweeps alone; CPU time of one thread.",
        "",
        *[f"| {row} |" for row in gradients_of_sweeps()],
        "",
        f"The same for {MANY_SWEEPS} sweeps:",
        "",
        *[f"| {row} |" for row in gradients_of_sweeps(MANY_SWEEPS)],
        "",
        'Tape in megabytes, whole and with `checkpoints="sqrt"`:',
        "",
        memory_of_tapes(),
        "",
        large_picture(),
    ]
    print("\n".join(lines))
    if options.write:
        replace_section(options.write, "benchmark", lines)


if __name__ == "__main__":
    main()
