"""What implicit gradients and convex solvers cost, beside the message passing they go with.

python -m benchmarks.implicit [--write docs/implicit.md]
FIELDFIT_DATA=folder python -m benchmarks.implicit --scenes 25 [--iterations 30] [--write ...]

``make bench`` has the first table as its section "implicit".  ``--scenes`` measures fits to so many
street scenes of 60 x 80 pixels with five labels instead.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fieldfit as ff
from benchmarks.grid_data import data_folder
from benchmarks.pages import replace_section, stamp
from benchmarks.problems import random_problem
from benchmarks.timing import best_of
from experiments.domke2009.scenes.data import FILE, LABELS, draw_scenes
from experiments.tables import markdown_table
from fieldfit.entropy.configuration_weights import EntropyWeights
from fieldfit.features.image import SceneFeatures
from fieldfit.inference.convex.convex_dual import ConvexDual
from fieldfit.inference.convex.convex_primal import ConvexPrimal
from fieldfit.inference.second_order.implicit_gradient import implicit_gradient
from fieldfit.inference.second_order.kkt_pattern import kkt_pattern
from fieldfit.inference.second_order.marginal_hessian import MarginalHessian
from fieldfit.objectives.implicit_loss import ImplicitLoss
from fieldfit.objectives.marginal_losses import MarginalLoss

BATCHES: dict[str, Callable[[], ff.graph.Batch]] = {
    "28 x 28, 2 labels": lambda: ff.graph.Batch.of([ff.FactorGraph.grid(28, 28, 2)]),
    "28 x 28, 2 labels, 90 pictures": lambda: ff.graph.Batch.of(
        [ff.FactorGraph.grid(28, 28, 2)] * 90
    ),
    "100 x 100, 2 labels": lambda: ff.graph.Batch.of([ff.FactorGraph.grid(100, 100, 2)]),
    "60 x 80, 5 labels": lambda: ff.graph.Batch.of([ff.FactorGraph.grid(60, 80, 5)]),
    "60 x 80, 11 labels": lambda: ff.graph.Batch.of([ff.FactorGraph.grid(60, 80, 11)]),
}


class Case:
    """One batch with random potentials and labels, and its beliefs."""

    def __init__(self, batch: ff.graph.Batch) -> None:
        self.batch, graph = batch, batch.graph
        self.potentials, self.labels = random_problem(graph)
        self.inference = ff.SumProduct(ff.Convex(), tol=1e-8)
        self.beliefs = self.inference.run_batch(batch, self.potentials).beliefs
        self.weights = EntropyWeights.of(ff.Convex(), graph)
        loss = MarginalLoss("ucl")
        _, self.derivative = loss.value_and_derivative(batch, self.beliefs, self.labels)

    def system(self, direct: bool) -> MarginalHessian:
        """The system formed and, if ``direct``, factorised."""
        b, w = self.beliefs, self.weights
        return MarginalHessian(
            self.batch.graph, b.unary_values, b.factor_values, w.unary_values, w.factor_values,
            direct=direct,
        )  # fmt: skip

    def gradient(self, direct: bool) -> Callable[[], object]:
        return lambda: implicit_gradient(self.beliefs, self.weights, self.derivative, direct=direct)

    def evaluation(self, gradient: str) -> Callable[[], object]:
        objective = ImplicitLoss("ucl", gradient=gradient)  # type: ignore[arg-type]
        return lambda: objective.evaluate(self.batch, self.potentials, self.labels)


def implicit_gradients() -> list[str]:
    """Milliseconds of one gradient and of its steps, direct and by conjugate gradients."""
    rows = [
        "problem | unknowns | set-up | forming | and factorising | gradient, direct | "
        "gradient, conjugate gradients | messages | value and gradient | by perturbation",
        "|".join(["---"] * 10),
    ]
    for name, make in BATCHES.items():
        case = Case(make())
        graph = case.batch.graph
        kkt_pattern(ff.FactorGraph.grid(2, 2, 2))  # loads what is compiled
        start = time.process_time()
        pattern = kkt_pattern(graph)
        setup = time.process_time() - start
        seconds = best_of(
            {
                "form": lambda case=case: case.system(False),
                "factorise": lambda case=case: case.system(True),
                "direct": case.gradient(True),
                "cg": case.gradient(False),
                "messages": lambda case=case: case.inference.run_batch(case.batch, case.potentials),
                "solve": case.evaluation("solve"),
                "perturbation": case.evaluation("perturbation"),
            },
            repeats=3,
        )
        times = [setup, *seconds.values()]
        cells = [name, str(pattern.n_unknowns), *(f"{1e3 * value:.1f}" for value in times)]
        rows.append(" | ".join(cells))
    return rows


def convex_solvers() -> str:
    """Iterations and milliseconds of the solvers, to 1e-8."""
    rows = []
    for name in ("28 x 28, 2 labels", "100 x 100, 2 labels", "60 x 80, 5 labels"):
        case = Case(BATCHES[name]())
        solvers = {
            "messages": case.inference,
            "dual": ConvexDual(),
            "primal": ConvexPrimal(),
            "primal, blocks": ConvexPrimal(block_size=1000),
        }
        found = {
            key: solver.run_batch(case.batch, case.potentials) for key, solver in solvers.items()
        }
        seconds = best_of(
            {
                key: lambda solver=solver, case=case: solver.run_batch(case.batch, case.potentials)
                for key, solver in solvers.items()
            },
            repeats=3,
        )
        cells = [f"{found[key].n_iter} / {1e3 * seconds[key]:.0f}" for key in solvers]
        rows.append([name, *cells])
    return markdown_table(["problem", *solvers], rows)


def scene_fits(n_pictures: int, n_iterations: int) -> str:
    """CPU seconds of an iteration of implicit fits to street scenes, for a hundred pictures."""
    rng = np.random.default_rng(0)
    scenes = draw_scenes(data_folder() / FILE, n_pictures, 1, 1, rng)
    features = SceneFeatures(50, random_state=0).fit(scenes.train_images)
    pictures = features.transform(scenes.train_images)
    little = ff.Convex(unary=0.01)
    objectives = {
        '`ImplicitLoss("uquad")`': ff.ImplicitLoss("uquad"),
        '`Convex(unary=0.01)`, `solver="primal"`, `tol=1e-6`': ff.ImplicitLoss(
            "uquad", entropy=little, solver="primal", tol=1e-6
        ),
        "the same, `tol=1e-4`": ff.ImplicitLoss("uquad", entropy=little, solver="primal", tol=1e-4),
    }
    start = np.zeros(len(LABELS) * pictures[0].shape[2] + 2 * len(LABELS) ** 2)
    rows = []
    for name, objective in objectives.items():
        crf = ff.GridCRF(
            objective, l2=1.0, unary="full", fit_intercept=False, n_labels=len(LABELS), tol=1e-3
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ff.ConvergenceWarning)  # few iterations on purpose
            crf.set_params(max_iter=1).fit(pictures[:2], scenes.train_labels[:2], start=start)
            began = time.process_time()
            crf.set_params(max_iter=n_iterations).fit(pictures, scenes.train_labels, start=start)
        seconds = (time.process_time() - began) / crf.n_iter_ * 100 / n_pictures
        reached = crf.trace_[-1]["objective"]
        rows.append([name, str(crf.n_iter_), f"{seconds:.1f}", f"{reached:.2f}"])
    head = ["objective", "iterations", "CPU s an iteration, 100 pictures", "objective reached"]
    return markdown_table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="put the tables into this page")
    parser.add_argument("--scenes", type=int, help="number of street scenes")
    parser.add_argument("--iterations", type=int, default=30)
    options = parser.parse_args()
    if options.scenes is not None:
        command = f"python -m benchmarks.implicit --scenes {options.scenes}"
        command += f" --iterations {options.iterations}"
        lines = [stamp(command), "", scene_fits(options.scenes, options.iterations)]
        print("\n".join(lines))
        if options.write:
            replace_section(options.write, "scenes", lines)
        return
    lines = [
        stamp("python -m benchmarks.implicit"),
        "",
        "One gradient of `ucl` under `Convex()`; milliseconds of CPU time of one thread.  The "
        "set-up (order of elimination and pattern) happens once for a graph.",
        "",
        *[f"| {row} |" for row in implicit_gradients()],
        "",
        "Solvers of the concave problem to 1e-8, iterations / milliseconds:",
        "",
        convex_solvers(),
    ]
    print("\n".join(lines))
    if options.write:
        replace_section(options.write, "benchmark", lines)


if __name__ == "__main__":
    main()
