"""What a random field gains over the classifier under it, with default options, on real tasks.

    FIELDFIT_DATA=folder python -m benchmarks.gain --out DIR [--tasks A,B] [--objectives A,B]
                         [--seeds 0,1] [--cpu 600] [--write docs/benchmarks-gain.md] [--now]

Features are log-probabilities of a classifier (`benchmarks.gain_data`).  "Before" is a field with
the defaults of version 0.1: ``l2=1e-3``, a full matrix for the features, full tables for edge
features.  The gain is the share of test labels that are right, minus that of independent variables
on the same log-probabilities, with its standard error over the test examples.  Every fit is a
process of its own with a limit on its CPU time; finished rows are kept in DIR, and a run that is
started again goes on.  ``--now`` leaves out "before" and makes one table of all tasks.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from tqdm import tqdm

import fieldfit as ff
from benchmarks.gain_data import TASKS, Task, make_task
from benchmarks.pages import replace_section, stamp
from experiments.tables import markdown_table
from fieldfit.models.penalties import standard_error

OBJECTIVES = (
    *("independent", "piecewise", "pseudolikelihood", "trw", "bethe"),
    *("camel0", "cf-bethe", "procedural", "implicit", "mle-struct"),
)
#: Options of version 0.1, by estimator.
BEFORE: dict[str, dict[str, Any]] = {
    "GridCRF": {"l2": 1e-3, "unary": "full", "pairwise": "full"},
    "GraphCRF": {"l2": 1e-3, "unary": "full", "pairwise": "symmetric"},
    "ChainCRF": {"l2": 1.0},
}


def kept_task(name: str, seed: int, folder: Path) -> Task:
    """A task whose classifiers are trained once."""
    path = folder / f"{name}-{seed}.joblib"
    if not path.exists():
        part = path.with_suffix(".part")
        joblib.dump(make_task(name, seed), part)
        part.replace(path)
    task: Task = joblib.load(path)
    return task


def right_labels(found: list[Any], given: list[Any]) -> tuple[Any, Any]:
    """How many labels of each example are right, and how many are known."""
    known = [np.asarray(y) >= 0 for y in given]
    right = [
        float((np.asarray(z)[k] == np.asarray(y)[k]).sum())
        for z, y, k in zip(found, given, known, strict=True)
    ]
    return np.array(right), np.array([float(k.sum()) for k in known])


def fit_row(task: Task, objective: str, before: bool) -> dict[str, Any]:
    """One fit, and what it labels rightly in the test."""
    options = BEFORE[task.model] if before else {}
    model = getattr(ff, task.model)(objective=objective, **options)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the row has the status
        model.fit(*task.train)
        seconds = time.process_time() - start
        right, known = right_labels(model.predict(task.test[0]), task.test[1])
    return {
        "right": right.tolist(),
        "known": known.tolist(),
        "seconds": seconds,
        "converged": bool(model.converged_),
        "status": model.status_,
        "path": getattr(model, "path_", []),
    }


def row_file(folder: Path, task: str, seed: int, objective: str, before: bool) -> Path:
    return folder / f"{task}-{seed}-{objective}-{'before' if before else 'now'}.json"


def child(folder: Path, name: str, seed: int, objective: str, before: bool) -> None:
    row = fit_row(kept_task(name, seed, folder), objective, before)
    write_row(row_file(folder, name, seed, objective, before), row)


def write_row(path: Path, row: dict[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(row))
    part.replace(path)


def run_all(args: argparse.Namespace, jobs: list[tuple[str, int, str, bool]]) -> None:
    for name, seed, objective, before in tqdm(jobs, unit="fit"):
        path = row_file(args.out, name, seed, objective, before)
        if path.exists():
            continue
        kept_task(name, seed, args.out)
        command = [sys.executable, "-m", "benchmarks.gain", "--out", str(args.out), "--child"]
        command += [name, str(seed), objective, str(int(before))]

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_CPU, (args.cpu, args.cpu + 5))

        done = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True)
        if not path.exists():
            last = done.stderr.strip().splitlines()[-1:] or ["killed"]
            said = f"stopped after {args.cpu} CPU s" if done.returncode < 0 else last[0]
            write_row(path, {"status": said, "seconds": float(args.cpu)})


# -- the tables ---------------------------------------------------------------------------


def read_rows(args: argparse.Namespace, name: str, objective: str, before: bool) -> list[Any]:
    files = [row_file(args.out, name, seed, objective, before) for seed in args.seeds]
    return [json.loads(path.read_text()) for path in files if path.exists()]


def cells(rows: list[Any], plain: list[Any]) -> tuple[str, str]:
    """Gain with its standard error over all test examples, and CPU seconds."""
    if not rows:
        return "", ""
    failed = [row for row in rows if "right" not in row]
    seconds = f"{np.mean([row['seconds'] for row in rows]):.0f}"
    if failed or len(plain) != len(rows):
        return (failed[0]["status"] if failed else "no row of independent variables"), seconds
    pairs = zip(rows, plain, strict=True)
    gains = np.concatenate([np.subtract(a["right"], b["right"]) for a, b in pairs])
    sizes = np.concatenate([row["known"] for row in rows])
    mark = "" if all(row["converged"] for row in rows) else " *"
    gain = 100 * float(gains.sum() / sizes.sum())
    return f"{gain:+.2f} ± {100 * standard_error(gains, sizes):.2f}{mark}", seconds


def table(args: argparse.Namespace) -> list[str]:
    lines = []
    for name in args.tasks:
        plain = read_rows(args, name, "independent", False)
        if not plain:
            continue
        score = sum(np.sum(row["right"]) for row in plain) / sum(
            np.sum(row["known"]) for row in plain
        )
        body = []
        for objective in args.objectives:
            if objective == "independent":
                continue
            before = cells(read_rows(args, name, objective, True), plain)
            now = cells(read_rows(args, name, objective, False), plain)
            if any(before) or any(now):
                body.append([f"`{objective}`", before[0], before[1], now[0], now[1]])
        head = ["objective", "gain before", "CPU s", "gain now", "CPU s"]
        title = f"## {name} ({TASKS[name][0]}): independent variables {100 * score:.2f} %"
        lines += [title, "", *markdown_table(head, body).splitlines(), ""]
    return lines


def table_of_defaults(args: argparse.Namespace) -> list[str]:
    """Objectives by tasks: gains with default options."""
    plain = {name: read_rows(args, name, "independent", False) for name in args.tasks}
    tasks = [name for name in args.tasks if plain[name]]
    body = []
    for objective in args.objectives:
        if objective == "independent":
            continue
        row = [f"`{objective}`"]
        for name in tasks:
            gain, seconds = cells(read_rows(args, name, objective, False), plain[name])
            row.append(f"{gain} ({seconds} s)" if seconds else "")
        body.append(row)
    return markdown_table(["objective", *tasks], body).splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--objectives", default=",".join(OBJECTIVES))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--cpu", type=int, default=600)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--now", action="store_true", help="default options of today only")
    parser.add_argument("--child", nargs=4)
    args = parser.parse_args()
    args.tasks, args.objectives = args.tasks.split(","), args.objectives.split(",")
    args.seeds = [int(seed) for seed in args.seeds.split(",")]
    args.out.mkdir(parents=True, exist_ok=True)
    if args.child:
        name, seed, objective, before = args.child
        child(args.out, name, int(seed), objective, before == "1")
        return
    jobs = [
        (name, seed, objective, before)
        for seed in args.seeds
        for objective in args.objectives
        for name in args.tasks
        for before in ((False,) if args.now else (False, True))
        if not (before and objective == "independent")
    ]
    run_all(args, jobs)
    lines = table_of_defaults(args) if args.now else table(args)
    print("\n".join(lines))
    if args.write is not None:
        command = f"python -m benchmarks.gain --out DIR --seeds {','.join(map(str, args.seeds))}"
        command += f" --cpu {args.cpu}" + (" --now" if args.now else "")
        section = "defaults" if args.now else "gain"
        replace_section(args.write, section, [stamp(command), "", *lines])


if __name__ == "__main__":
    main()
