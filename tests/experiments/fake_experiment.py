"""A tiny experiment whose results are known, for tests of the driver."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from experiments.base import Outcome, Plan, Result
from experiments.catalogue import EXPERIMENTS, Experiment

NAME = "fake"


@dataclass(frozen=True)
class Design:
    n_tasks: int = 6
    factor: float = 1 / 3
    methods: tuple[str, ...] = ("a", "b")


class Fake(Plan[Design]):
    """Thirds; every second task starts from the array of the one before it."""

    full, quick = Design(), Design(n_tasks=2)
    #: Tasks that were computed in this process.
    computed: ClassVar[list] = []
    n_threads = 1

    @property
    def n_at_once(self):
        return self.n_threads

    def tasks(self):
        return [(number, "ab"[number % 2]) for number in range(self.design.n_tasks)]

    def run_task(self, task, results):
        number, method = task
        if os.environ.get("FAKE_KILLED_AT") == str(number):
            os.kill(os.getpid(), signal.SIGKILL)
        if os.environ.get("FAKE_FAILS_AT") == str(number):
            raise RuntimeError("out of luck")
        self.computed.append(task)
        value = self.design.factor * (number + 1) + self.settings.seed
        if method == "b" and self.n_threads == 1:
            value += float(results[number - 1, "a"].arrays["values"].sum())
        return Result(
            [{"method": method, "number": number, "value": value, "none": None, "ok": True}],
            tables={"more": [{"number": number, "whole": np.int64(7)}]},
            facts={"nan": float("nan"), "listed": (1, 2)},
            arrays={"values": np.full(3, value)},
        )

    def outcome(self, results):
        rows = results.rows()
        total = sum(results[task].arrays["values"].sum() for task in self.tasks())
        assert results[0, "a"].facts["listed"] == [1, 2]
        assert np.isnan(results[0, "a"].facts["nan"])
        return Outcome(
            rows,
            f"{len(rows)} rows",
            f"The total is {total!r}.\n\n![Values](values.png)",
            tables={"more": results.table("more")},
            figures={"values": lambda figure: figure.subplots().plot([r["value"] for r in rows])},
            headline={"total": float(total)},
        )


def register(experiments=EXPERIMENTS):
    experiments[NAME] = Experiment(NAME, "thirds", "Nobody (1901)", "fake_experiment:Fake")
