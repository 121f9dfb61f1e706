"""Procedural fitting with some number of iterations, tested with another.

A model that was fitted for the beliefs after ``k`` iterations of propagation need not be good
after more of them.  Digits under noise, as in ``domke-digits``.  Reference: Domke, thesis (2009),
section 6.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from experiments.base import Outcome, Result, Results, Task
from experiments.domke2009.digits_methods import (
    CONVEX,
    METHODS,
    DigitPlan,
    Limits,
    Method,
    belief_scores,
    fit_method,
    procedural,
)
from experiments.domke2009.iterations.report import curves, headline, report, table

LOSS = "ucl"
COLUMNS = (
    "method", "noise", "repeat", "n_iterations", "uclass", "ucl", "seconds", "converged",
)  # fmt: skip


@dataclass(frozen=True)
class Design:
    """Size of the experiment: ``trained`` and ``tested`` are numbers of iterations."""

    noises: tuple[float, ...] = (0.5,)
    n_each: int = 10
    n_repeats: int = 5
    trained: tuple[int, ...] = (1, 2, 3, 4)
    tested: tuple[int, ...] = tuple(range(1, 11))
    limits: Limits = field(default_factory=Limits)


FULL = Design()
QUICK = Design(n_each=2, n_repeats=1, limits=Limits(max_iter=40))


#: The task that fits the weights all others start from.
START = "start"


class Iterations(DigitPlan[Design]):
    """A task is a fit with some number of iterations, tested with all others."""

    full, quick = FULL, QUICK

    def tasks(self) -> Sequence[Task]:
        """``(noise, repeat, "start")`` and ``(noise, repeat, iterations of training)``."""
        found: list[Task] = []
        for noise in self.design.noises:
            for repeat in range(self.design.n_repeats):
                found.append((noise, repeat, START))
                found += [(noise, repeat, trained) for trained in self.design.trained]
        return found

    def run_task(self, task: Task, results: Results) -> Result:
        """A row for each number of iterations in the test."""
        noise, repeat, trained = float(task[0]), int(task[1]), task[2]
        split = self.split(repeat, noise)
        if trained == START:
            crf, _ = fit_method(METHODS[CONVEX], split, self.limits, None)
            return Result(arrays={"weights": crf.weights_})
        method = Method("procedural fitting", procedural(LOSS, int(trained)))
        start = results[noise, repeat, START].arrays["weights"]
        crf, seconds = fit_method(method, split, self.limits, start)
        rows = []
        for tested in self.design.tested:
            crf.set_params(objective=procedural(LOSS, tested))
            beliefs = np.stack(crf.predict_marginals(list(split.noisy_test)))
            scores = belief_scores(beliefs, split.test)
            values = (
                f"{LOSS}-{trained}", noise, repeat, tested, scores["uclass"], scores["ucl"],
                seconds, crf.converged_,
            )  # fmt: skip
            rows.append(dict(zip(COLUMNS, values, strict=True)))
        return Result(rows)

    def warm_up(self) -> None:
        few, limits = self.few(self.design.noises[0]), Limits(max_iter=1)
        for method in (METHODS[CONVEX], Method("", procedural(LOSS, 1))):
            fit_method(method, few, limits, None)

    def outcome(self, results: Results) -> Outcome:
        rows = results.rows()
        return Outcome(
            rows=rows,
            table=table(rows),
            report=report(rows, self.design),
            figures={"iterations": curves(rows)},
            headline=headline(rows),
        )
