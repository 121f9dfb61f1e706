"""``make bench``: fieldfit against C++, NumPy and PyPI libraries, as ratios in one run.

python -m benchmarks.run [--write docs/benchmarks.md] [--no-peers] [--only SECTION ...]

Every ratio compares figures taken in the same run.  CPU time of one thread, the least of several
interleaved repeats, unless a column says "wall".
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numba
import numpy as np

import fieldfit as ff
from benchmarks import peers
from benchmarks.implicit import implicit_gradients
from benchmarks.problems import Problem, problem
from benchmarks.procedural import gradients_of_sweeps
from benchmarks.rivals import Limit, NumpyFlooding
from benchmarks.scaling import N_SWEEPS, scaling, slope
from benchmarks.timing import best_of, best_wall
from fieldfit.features.text import document_features
from fieldfit.inference.messages.message_arrays import Changes
from fieldfit.inference.messages.message_run import build_model, initial_state
from fieldfit.inference.messages.message_sweeps import sweep_kernel
from fieldfit.inference.messages.residual_schedule import residual_messages
from fieldfit.inference.messages.schedule import cached_plan, common_labels

Table = list[str]


class Sweeper:
    """One problem, ready to be swept again and again."""

    def __init__(self, chosen: Problem) -> None:
        self.problem = chosen
        self.graph, self.potentials = chosen.model()
        counting = ff.Bethe().counting_numbers(self.graph)
        self.model = build_model(self.graph, self.potentials, counting, None)
        self.labels = common_labels(self.graph)

    def sweep(self, schedule: str, n_jobs: int | None = None) -> Callable[[], object]:
        plan = cached_plan(self.graph, schedule)
        state = initial_state(self.graph, self.model, None)
        changes = Changes(np.zeros(len(plan.pair_target)), np.zeros(len(plan.slots)))
        kernel = sweep_kernel(n_jobs)
        arguments = (self.labels, self.graph.structure, plan, self.model, state, changes)
        return lambda: kernel(*arguments, 0.0, -1.0, 1)

    def limit(self, schedule: str) -> Limit:
        return Limit(self.problem, cached_plan(self.graph, schedule), self.graph.structure)

    def millions(self, seconds: float) -> float:
        """Million messages per second."""
        return self.problem.n_messages / seconds / 1e6


def table(header: str, rows: list[str]) -> Table:
    return [header, "|".join(["---"] * (header.count("|") + 1)), *rows]


def against_cpp() -> Table:
    """One sweep on a 200 x 200 grid with one table for each edge, log domain."""
    rows = []
    for n_labels in (2, 5, 21):
        sweeper = Sweeper(problem(f"grid{n_labels}"))
        for schedule in ("flooding", "sequential"):
            seconds = best_of(
                {
                    "fieldfit": sweeper.sweep(schedule),
                    "blocked": sweeper.limit(schedule).blocked,
                    "plain": sweeper.limit(schedule).plain,
                },
                repeats=9,
            )
            speed = {name: sweeper.millions(value) for name, value in seconds.items()}
            rows.append(
                f"{n_labels} | {schedule} | {speed['fieldfit']:.1f} | {speed['blocked']:.1f} | "
                f"{speed['fieldfit'] / speed['blocked']:.2f} | "
                f"{speed['plain']:.1f} | {speed['fieldfit'] / speed['plain']:.2f}"
            )
    return table(
        "labels | schedule | fieldfit M/s | C++ limit M/s | ratio | plain C++ (flooding) | ratio",
        rows,
    )


def against_libraries(with_peers: bool) -> Table:
    """Messages per second of flooding, against NumPy and PGMax."""
    rows = []
    for name in ("ising200", "potts60x80", "reg3"):
        sweeper = Sweeper(problem(name))
        seconds = best_of(
            {
                "flooding": sweeper.sweep("flooding"),
                "sequential": sweeper.sweep("sequential"),
                "numpy": NumpyFlooding(sweeper.problem).sweep,
            }
        )
        speed = {key: sweeper.millions(value) for key, value in seconds.items()}
        pgmax = "not measured | "
        if with_peers:
            theirs = sweeper.millions(peers.pgmax_seconds_per_sweep(sweeper.problem, 10))
            pgmax = f"{theirs:.2f} | {speed['flooding'] / theirs:.0f}"
        rows.append(
            f"{name} | {speed['flooding']:.1f} | {speed['sequential']:.1f} | "
            f"{speed['numpy']:.2f} | {speed['flooding'] / speed['numpy']:.1f} | {pgmax}"
        )
    return table(
        "problem | flooding M/s | sequential M/s | NumPy M/s | ratio | PGMax M/s | ratio", rows
    )


def in_threads() -> Table:
    """Wall time of one sweep with one and two threads; messages are the same bit for bit."""
    rows = []
    for name in ("ising200", "grid5", "grid21"):
        sweeper = Sweeper(problem(name))
        seconds = best_wall(
            {
                "flooding 1": sweeper.sweep("flooding"),
                "flooding 2": sweeper.sweep("flooding", n_jobs=2),
                "sequential 1": sweeper.sweep("sequential"),
                "sequential 2": sweeper.sweep("sequential", n_jobs=2),
            },
            repeats=25,
        )
        for schedule in ("flooding", "sequential"):
            one, two = seconds[f"{schedule} 1"], seconds[f"{schedule} 2"]
            rows.append(
                f"{name} | {schedule} | {1e3 * one:.2f} | {1e3 * two:.2f} | {one / two:.2f}"
            )
    return table("problem | schedule | 1 thread ms | 2 threads ms | gain", rows)


#: Least CPU seconds of any library to 1e-6 (libDAI, OpenGM, mrftools, PGMax), measured on a machine
#: with the same name in November 2026 and not repeated here: none of the four winners is on PyPI.
RECORDED = {"ising50": 0.056, "ising200": 7.9, "potts60x80": 0.24, "reg3": 0.045}


def to_convergence() -> Table:
    """A whole run to 1e-6 from uniform messages, beliefs of all factors included."""
    rows = []
    for name in ("ising50", "ising200", "potts60x80", "reg3"):
        graph, potentials = problem(name).model()
        solvers = {
            schedule: ff.SumProduct(schedule=schedule, tol=1e-6, max_iter=2000)
            for schedule in ("sequential", "tree", "residual")
        }
        seconds = best_of(
            {
                schedule: partial(solver.run, graph, potentials)
                for schedule, solver in solvers.items()
            },
            repeats=5,
        )
        results = {key: solver.run(graph, potentials) for key, solver in solvers.items()}
        twin = NumpyFlooding(problem(name))
        start = time.process_time()
        n_sweeps = 0
        change = np.inf
        while change > 1e-6 and n_sweeps < 400:
            change = twin.sweep()
            n_sweeps += 1
        numpy_seconds = time.process_time() - start
        reference = twin.marginals() if change <= 1e-6 else None
        ours = results["sequential"].beliefs.unary_values
        gap = "-" if reference is None else f"{np.abs(ours - reference.ravel()).max():.1e}"
        numpy_text = f"{numpy_seconds:.2f}" if reference is not None else "no convergence"
        rows.append(
            f"{name} | "
            + " | ".join(f"{1e3 * seconds[key]:.1f} ({results[key].n_iter})" for key in solvers)
            + f" | {numpy_text} | {gap} | {1e3 * RECORDED[name]:.0f} | "
            f"{RECORDED[name] / seconds['sequential']:.1f}"
        )
    return table(
        "problem | sequential ms (sweeps) | tree | residual | NumPy flooding s | "
        "largest difference of marginals | best recorded ms | ratio",
        rows,
    )


def residual_cost() -> Table:
    """Cost of one message in the residual schedule, relative to a sequential sweep."""
    rows = []
    for name in ("ising50", "ising200", "potts60x80"):
        sweeper = Sweeper(problem(name))
        graph, n_slots = sweeper.graph, sweeper.graph.n_slots

        def residual(sweeper: Sweeper = sweeper, graph: ff.FactorGraph = graph) -> int:
            state = initial_state(graph, sweeper.model, None)
            waiting = np.zeros((int(graph.unary_offsets[-1]), 2))
            waiting[graph.unary_offsets[:-1], 0] = 1.0
            return residual_messages(
                graph, sweeper.labels, sweeper.model, state, waiting.reshape(-1), 0.0, 1e-6,
                20 * graph.n_slots,
            )[0]  # fmt: skip

        seconds = best_of({"sequential": sweeper.sweep("sequential"), "residual": residual})
        one = 1e9 * seconds["sequential"] / n_slots
        two = 1e9 * seconds["residual"] / residual()
        rows.append(f"{name} | {one:.1f} | {two:.1f} | {two / one:.2f}")
    return table("problem | sequential ns per message | residual ns per message | ratio", rows)


def many_small_graphs() -> Table:
    """1,000 different skip-chains (20 to 60 variables, 5 labels), 20 sweeps each."""
    rng = np.random.default_rng(14)
    models = []
    for _ in range(1000):
        n = int(rng.integers(20, 61))
        chain = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
        skips = np.sort(rng.choice(n, (max(1, n // 10), 2)), axis=1)
        edges = np.concatenate([chain, skips[skips[:, 1] > skips[:, 0] + 1]])
        graph = ff.FactorGraph.from_edges(n, edges, 5)
        unary = rng.standard_normal((n, 5))
        models.append((graph, ff.Potentials(graph, unary, rng.normal(0, 0.5, (len(edges), 5, 5)))))
    solver = ff.SumProduct(schedule="flooding", max_iter=20, tol=1e-300)
    solver.run(*models[0])
    from fieldfit.inference.messages.message_sweeps import run_sweeps

    signatures = len(run_sweeps.signatures)
    start = time.process_time()
    for graph, potentials in models:
        solver.run(graph, potentials)
    one_by_one = time.process_time() - start
    batch = ff.graph.Batch.of([graph for graph, _ in models])
    packed = batch.pack([potentials for _, potentials in models])
    start = time.process_time()
    solver.run_batch(batch, packed)
    together = time.process_time() - start
    compiled = len(run_sweeps.signatures) - signatures
    return table(
        "1,000 runs ms | as one batch ms | kernels compiled meanwhile",
        [f"{1e3 * one_by_one:.0f} | {1e3 * together:.0f} | {compiled}"],
    )


def growth() -> Table:
    """Binary grids, 30 full sweeps, each size in its own process; memory is that process's peak."""
    results = scaling()
    rows = [
        f"{row['side']} x {row['side']} | {row['building']:.3f} | {row['running']:.3f} | "
        f"{1e9 * row['running'] / row['side'] ** 2 / N_SWEEPS:.0f} | "
        f"{row['predicted'] / 1e6:.1f} | {row['measured'] / 1e6:.1f}"
        for row in results
    ]
    rows.append(
        f"slope | {slope(results, 'building'):.2f} | **{slope(results, 'running'):.2f}** | | |"
    )
    return table(
        "grid | building s | running s | ns per pixel and sweep | MB predicted | MB measured", rows
    )


def start_up() -> Table:
    """CPU and wall seconds of a new process with compiled kernels on disk; least of five."""
    code = (
        "import time; c, w = time.process_time(), time.perf_counter(); import fieldfit as ff; "
        "a = (time.process_time() - c, time.perf_counter() - w); "
        "c, w = time.process_time(), time.perf_counter(); graph = ff.FactorGraph.grid(20, 20, 2); "
        "ff.SumProduct().run(graph, ff.Potentials(graph)); "
        "print(*a, time.process_time() - c, time.perf_counter() - w)"
    )
    runs = [
        [
            float(x)
            for x in subprocess.run(
                [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True
            ).stdout.split()
        ]
        for _ in range(6)
    ][1:]
    least = np.min(runs, axis=0)
    return table(
        "import, CPU s | import, wall s | first inference, CPU s | first inference, wall s",
        [" | ".join(f"{value:.2f}" for value in least)],
    )


def reading() -> Table:
    """A UAI file of a 250 x 250 grid with four labels, and features of 10,000 tokens of text."""
    rng = np.random.default_rng(0)
    graph = ff.FactorGraph.grid(250, 250, 4)
    values = rng.normal(size=int(graph.table_offsets[-1]))
    values[rng.random(len(values)) < 0.2] = -np.inf
    unary = np.zeros(int(graph.unary_offsets[-1]))
    words = ["The", "Prime", "Minister", "met", "reporters", "in", "Oslo", "on", "Monday", "."]
    document = [[f"{word}{number % 50}" for word in words] for number in range(1000)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "grid.uai"
        ff.write_uai(path, graph, ff.Potentials.from_flat(graph, unary, values))
        megabytes = path.stat().st_size / 1e6
        seconds = best_of(
            {"uai": partial(ff.read_uai, path), "text": partial(document_features, document)},
            repeats=3,
        )
    return table(
        "UAI file MB | s | MB/s | thousand tokens | s | thousand tokens/s",
        [
            f"{megabytes:.0f} | {seconds['uai']:.2f} | {megabytes / seconds['uai']:.0f} | "
            f"{10:.0f} | {seconds['text']:.2f} | {10 / seconds['text']:.0f}"
        ],
    )


SECTIONS: dict[str, tuple[str, Callable[..., Table]]] = {
    "cpp": ("One sweep against C++", against_cpp),
    "libraries": ("One sweep against other libraries", against_libraries),
    "threads": ("Two threads", in_threads),
    "convergence": ("To convergence", to_convergence),
    "gradients": ("Gradients of sweeps", gradients_of_sweeps),
    "implicit": ("Implicit gradients, ms", implicit_gradients),
    "residual": ("Residual schedule", residual_cost),
    "small": ("Many small graphs", many_small_graphs),
    "growth": ("Time and memory against size", growth),
    "start": ("Start-up", start_up),
    "reading": ("Reading files and text", reading),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="also write the tables to this file")
    parser.add_argument("--no-peers", action="store_true", help="leave PGMax out")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    options = parser.parse_args()
    with_peers = not options.no_peers and "libraries" in options.only and peers.install()
    command = "python -m benchmarks.run " + " ".join(sys.argv[1:])
    lines = [
        "# Benchmarks",
        "",
        f"Written by `{command.strip()}` on {time.strftime('%Y-%m-%d')}; seeds are fixed in "
        "`benchmarks/problems.py`, where the problems are defined.",
        f"Python {platform.python_version()}, NumPy {np.__version__}, Numba {numba.__version__}, "
        f"{platform.machine()} ({numba.core.config.NUMBA_NUM_THREADS} hardware threads, "
        f"{numba.core.codegen.ll.get_host_cpu_name()}).",
        "",
        "Figures are CPU seconds of one thread, the least of several repeats that are interleaved",
        "between the rivals; compare ratios, because absolute times vary with the machine's load.",
        "A message goes from a factor of two or more variables to one of them; M/s = million",
        "messages per second.",
    ]
    for key in options.only:
        title, function = SECTIONS[key]
        print(f"\n{title} ...", file=sys.stderr)
        arguments = (with_peers,) if key == "libraries" else ()
        rows = function(*arguments)
        summary = (function.__doc__ or "").strip()
        section = ["", f"## {title}", "", summary, "", *[f"| {row} |" for row in rows]]
        print("\n".join(section), flush=True)
        lines += section
    if options.write:
        options.write.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
