"""Kill Dask workers in the middle of fits over shards, and see that the weights are the same.

    python -m benchmarks.faults [--runs 20] [--only kills|overhead]

A scheduler and two workers run on this machine; a supervisor starts a worker again when it dies.
Each run is a tree-reweighted `GridCRF` fit with at least two SIGKILLs, in turn

    marked    a worker kills itself when it meets two marked (shard, evaluation) pairs,
    both      both workers die in the same evaluation,
    transfer  a worker dies just after it has computed its answer,
    random    workers are killed from outside, at random times.

Weights and every objective of the trace must be, to the last bit, those of the fit in one process.
The last table has the costs of Dask by evaluation: tasks, bytes, seconds, with 1, 2 and 3 workers.
Both tables go to docs/scale.md.
"""

from __future__ import annotations

import argparse
import os
import pickle
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import fieldfit as ff
from benchmarks.out_of_core import pictures
from benchmarks.pages import DOCS, written_section

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from worker_processes import dask_cluster, mark

KINDS = ("marked", "both", "transfer", "random")
N_PICTURES, SIDE, SHARD_SIZE, MAX_ITER = 12, 24, 2**12, 12
SEED = 0


def small_pictures(count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Corners of pictures, so that runs are short."""
    return ((x[:SIDE, :SIDE], y[:SIDE, :SIDE]) for x, y in pictures(count))


def estimator() -> ff.GridCRF:
    learner = ff.LBFGS(max_iter=MAX_ITER, tol=0.0, value_tol=0.0, checkpoint_every=5)
    return ff.GridCRF("trw", l2=1.0, n_labels=5, learner=learner)


def objectives(crf: ff.GridCRF) -> list[float]:
    return [row["objective"] for row in crf.trace_]


def prepare(kind: str, marks: Path, shards: ff.shards.Shards, rng: np.random.Generator) -> None:
    """Marks for a run; evaluations are counted from the last checkpoint, every 5 iterations."""
    first, second = (int(shard) for shard in rng.choice(len(shards), 2, replace=False))
    if kind == "marked":
        mark(marks, first, int(rng.integers(1, 4)))
        mark(marks, second, int(rng.integers(4, 6)))
    elif kind == "both":
        evaluation = int(rng.integers(1, 6))
        mark(marks, first, evaluation)
        mark(marks, second, evaluation)
    elif kind == "transfer":
        mark(marks, first, int(rng.integers(1, 4)), "kill-late")
        mark(marks, second, int(rng.integers(4, 6)), "kill-late")


def kill_at_random(supervisor, rng: np.random.Generator, seconds: float, end: threading.Event):
    """Two kills from outside, at random moments of a run that takes about so long."""
    for moment, place in zip(np.sort(rng.uniform(0.1, 0.8, 2)), rng.integers(0, 2, 2), strict=True):
        if end.wait(float(moment) * seconds / 2):
            return
        supervisor.kill(int(place))


def kills(n_runs: int, folder: Path, say: Callable[[str], None]) -> bool:
    rng = np.random.default_rng(SEED)
    shards = ff.shards.write(
        folder / "shards", estimator(), small_pictures(N_PICTURES), shard_size=SHARD_SIZE
    )
    expected = estimator().fit(shards, checkpoint=folder / "expected")
    marks = folder / "marks"
    marks.mkdir()
    say(f"{len(shards)} shards, {MAX_ITER} iterations, seed {SEED}, {os.cpu_count()} processors:\n")
    say("| run | kills | workers lost | evaluations replayed | seconds | same bits |")
    say("|---|---|---|---|---|---|")
    all_same, undisturbed = True, 10.0
    with dask_cluster(2, marks) as (client, supervisor):
        for run in range(-2, n_runs):  # the first one loads kernels, the second is undisturbed
            kind = "none" if run < 0 else KINDS[run % len(KINDS)]
            client.wait_for_workers(2, timeout=300)
            prepare(kind, marks, shards, rng)
            deaths, end = supervisor.n_deaths, threading.Event()
            if kind == "random":
                arguments = (supervisor, rng, undisturbed, end)
                threading.Thread(target=kill_at_random, args=arguments).start()
            begin = time.perf_counter()
            crf = estimator().fit(shards, client=client, checkpoint=folder / f"run{run}")
            seconds = time.perf_counter() - begin
            end.set()
            time.sleep(0.3)
            if run == -1:
                undisturbed = seconds
            same = np.array_equal(crf.weights_, expected.weights_)
            same &= objectives(crf) == objectives(expected)
            all_same &= same
            n_replayed = sum(row["replays"] for row in crf.trace_)
            left = [path.unlink() for path in marks.iterdir()]
            say(
                f"| {'undisturbed' if run < 0 else run + 1} | {kind} | "
                f"{supervisor.n_deaths - deaths} | {n_replayed} | {seconds:.1f} | "
                f"{'yes' if same else 'NO'}{' (marks left)' if left else ''} |"
            )
    return all_same


def overhead(folder: Path, say: Callable[[str], None]) -> None:
    """What an evaluation costs besides computing."""
    from fieldfit.shards.workplace import Call, Request

    shards = ff.shards.write(
        folder / "speed", estimator(), pictures(N_PICTURES), shard_size=8 * SHARD_SIZE
    )
    say("| workers | seconds | computing, by worker | communicating | tasks by evaluation |")
    say("|---|---|---|---|---|")
    for count in (1, 2, 3):
        with dask_cluster(count) as (client, _):
            estimator().fit(shards, client=client)
            begin = time.perf_counter()
            crf = estimator().fit(shards, client=client)
            seconds = time.perf_counter() - begin
        computing = sum(row["seconds_computing"] for row in crf.trace_) / count
        waiting = sum(row["seconds_communicating"] for row in crf.trace_)
        say(f"| {count} | {seconds:.1f} | {computing:.1f} | {waiting:.1f} | {count} |")
    request = Request(0, 0, 1, (Call(None, crf.weights_),))
    n_bytes = len(pickle.dumps(request))
    say(f"\n{len(crf.weights_)} weights; a request of one shard has {n_bytes} bytes.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--only", choices=("kills", "overhead"))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    page, is_same = DOCS / "scale.md", True
    command = f"python -m benchmarks.faults --runs {args.runs}"
    with tempfile.TemporaryDirectory() as root:
        if args.only != "overhead":
            with written_section(page, "worker-kills", f"{command} --only kills") as say:
                is_same = kills(args.runs, Path(root), say)
        if args.only != "kills":
            with written_section(page, "dask-costs", f"{command} --only overhead") as say:
                overhead(Path(root), say)
    sys.exit(0 if is_same else 1)


if __name__ == "__main__":
    main()
