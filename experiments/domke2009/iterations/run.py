"""Procedural fitting with some number of iterations, tested with another.

A model that was fitted for the beliefs after ``k`` iterations of propagation need not be good
after more of them.  Digits under noise, as in `domke_digits`.  Reference: Domke, thesis (2009),
section 6.4.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fieldfit.errors import InvalidInputError
from experiments.base import Outcome, Settings
from experiments.domke2009.digits.data import FILE, draw_split, read_digits
from experiments.domke2009.digits.methods import (
    CONVEX,
    METHODS,
    Limits,
    Method,
    belief_scores,
    fit_method,
    procedural,
)
from experiments.domke2009.iterations.report import curves, headline, report, table

__all__ = ["FULL", "QUICK", "Design", "run", "run_design"]

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


def run(settings: Settings) -> Outcome:
    """The experiment of ``fieldfit reproduce domke-iterations``."""
    return run_design(QUICK if settings.quick else FULL, settings)


def run_design(design: Design, settings: Settings) -> Outcome:
    """Fit with every number of iterations of training and test with every other one."""
    if settings.data is None:
        raise InvalidInputError("--data must name the folder of the data sets for domke-iterations")
    digits = read_digits(settings.data / FILE)
    limits = replace(design.limits, n_jobs=settings.n_jobs)
    rows: list[dict[str, Any]] = []
    total = len(design.noises) * design.n_repeats * len(design.trained)
    for noise in design.noises:
        for repeat in range(design.n_repeats):
            split = draw_split(digits, design.n_each, noise, (settings.seed, repeat))
            start = fit_method(METHODS[CONVEX], split, limits, None)[0].weights_
            for trained in design.trained:
                name = f"{LOSS}-{trained}"
                settings.progress(len(rows) // len(design.tested), total, f"{name}, {repeat}")
                method = Method("procedural fitting", procedural(LOSS, trained))
                crf, seconds = fit_method(method, split, limits, start)
                for tested in design.tested:
                    crf.set_params(objective=procedural(LOSS, tested))
                    beliefs = np.stack(crf.predict_marginals(list(split.noisy_test)))
                    scores = belief_scores(beliefs, split.test)
                    values = (
                        name, noise, repeat, tested, scores["uclass"], scores["ucl"], seconds,
                        crf.converged_,
                    )  # fmt: skip
                    rows.append(dict(zip(COLUMNS, values, strict=True)))
    settings.progress(total, total, "done")
    return Outcome(
        rows=rows,
        table=table(rows),
        report=report(rows, design),
        figures={"iterations": curves(rows)},
        headline=headline(rows),
    )
