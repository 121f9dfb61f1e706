"""Run an experiment: compute the tasks that are not stored yet, then write report and figures."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fieldfit
from experiments.base import Outcome, Plan, Result, Settings, Task
from experiments.catalogue import EXPERIMENTS, Experiment
from experiments.log import RunLog, header_of
from experiments.output import write_outcome
from fieldfit import InvalidInputError
from fieldfit.errors import MissingDependencyError

__all__ = ["plan_of", "run_experiment", "run_plan"]


def run_experiment(
    name: str, out: str | os.PathLike[str], settings: Settings, *, fresh: bool = False
) -> dict[str, Any]:
    """Run one experiment, or finish a run that was interrupted, and write its files.

    Returns a summary with their paths.
    """
    experiment = _find(name)
    if find_spec("matplotlib") is None or find_spec("PIL") is None:
        raise MissingDependencyError(
            "figures are drawn with matplotlib and pillow, install them with "
            "pip install 'fieldfit[plot,images]'"
        )
    if experiment.needs_data and settings.data is None:
        raise InvalidInputError(f"--data must name the folder of the data sets for {name}")
    plan = plan_of(experiment, settings)
    tasks = plan.tasks()
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    header = header_of(name, plan.design, settings.seed, fieldfit.__version__)
    with RunLog(folder, header, tasks, fresh=fresh) as log:
        n_stored = len(log)
        _finish(plan, tasks, log)
        seconds, busy = log.seconds()
        outcome = plan.outcome(log)
        written = write_outcome(folder, experiment, outcome, settings, seconds, busy)
    return {
        "experiment": name,
        "quick": settings.quick,
        "seed": settings.seed,
        "tasks": len(tasks),
        "tasks_found": n_stored,
        "seconds": seconds,
        "processor_seconds": busy,
        "files": [str(path) for path in written],
        "headline": dict(outcome.headline),
        "table": outcome.table,
    }


def run_plan(plan: Plan[Any]) -> Outcome:
    """Run all tasks of a plan, and leave nothing behind."""
    tasks = plan.tasks()
    with TemporaryDirectory() as folder:
        header = header_of(type(plan).__name__, plan.design, plan.settings.seed, "")
        with RunLog(Path(folder), header, tasks) as log:
            _finish(plan, tasks, log)
            return plan.outcome(log)


def plan_of(experiment: Experiment, settings: Settings) -> Plan[Any]:
    """The plan of an experiment, of the size that the settings ask for."""
    module, _, name = experiment.plan.partition(":")
    kind: type[Plan[Any]] = getattr(import_module(module), name)
    return kind(kind.quick if settings.quick else kind.full, settings)


def _find(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise InvalidInputError(
            f"NAME must be one of {', '.join(EXPERIMENTS)} (python -m experiments --list), "
            f"got {name}"
        )
    return EXPERIMENTS[name]


def _finish(plan: Plan[Any], tasks: Sequence[Task], log: RunLog) -> None:
    """Compute and store the tasks that are not in the log."""
    missing = [task for task in tasks if task not in log]
    progress = plan.settings.progress
    if missing:
        if type(plan).warm_up is not Plan.warm_up:
            progress(len(log), len(tasks), "compiling")
            plan.warm_up()
        progress(len(log), len(tasks), plan.describe(missing[0]))
    # time since the last task was stored: tasks that run at the same time share it
    wall, busy = time.perf_counter(), time.process_time()
    for number, (task, result) in enumerate(
        _computed(lambda task: plan.run_task(task, log), missing, plan.n_at_once), start=1
    ):
        now = time.perf_counter(), time.process_time()
        log.add(task, result, now[0] - wall, now[1] - busy)
        wall, busy = now
        following = missing[number] if number < len(missing) else None
        what = "writing the report" if following is None else plan.describe(following)
        progress(len(log), len(tasks), what)


def _computed(
    compute: Callable[[Task], Result], tasks: Sequence[Task], n_at_once: int
) -> Iterator[tuple[Task, Result]]:
    """Tasks and their results, as they are finished; an interrupt drops what has not begun."""
    if n_at_once <= 1:
        for task in tasks:
            yield task, compute(task)
        return
    pool = ThreadPoolExecutor(n_at_once)
    try:
        running = {pool.submit(compute, task): task for task in tasks}
        for future in as_completed(running):
            yield running[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)
