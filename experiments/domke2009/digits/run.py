"""Handwritten digits under noise: likelihoods, implicit and procedural fitting.

A pixel of a black-and-white picture is set at random with some probability; a field on the grid
recovers the picture.  All methods fit the same weights, tables of pairs and of a pixel with its
noisy value, and differ in what they make small.  Reference: Domke, thesis (2009), section 6.2.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.errors import ConvergenceWarning, InvalidInputError
from experiments.base import Outcome, Settings
from experiments.domke2009.digits.data import (
    FILE,
    INK,
    Digits,
    DigitSplit,
    draw_split,
    read_digits,
)
from experiments.domke2009.digits.figures import error_curves, pictures
from experiments.domke2009.digits.methods import (
    CONVEX,
    METHODS,
    SIDE_METHODS,
    WITH_ENTROPY,
    Limits,
    belief_scores,
    fit_method,
)
from experiments.domke2009.digits.report import headline, report, table

__all__ = ["FULL", "QUICK", "Design", "run", "run_design"]

FloatArray = NDArray[np.float64]

#: Columns of ``results.csv``.
COLUMNS = (
    "method", "noise", "repeat", "uclass", "ucl", "uquad", "train_uclass", "seconds", "converged",
    "n_iter",
)  # fmt: skip


@dataclass(frozen=True)
class Design:
    """Size of the experiment.

    ``n_each`` pictures of every digit to train and as many to test, ``n_repeats`` times with other
    pictures; ``side_methods`` only the first ``n_side_repeats`` times.  Entropies are fitted at
    ``entropy_noises``, by default at the level of section 6.3.  ``other_inks`` are further cuts
    between paper and ink (see `INK`), which ``ink_methods`` are run with on the first choice of
    pictures.
    """

    noises: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7)
    n_each: int = 10
    n_repeats: int = 5
    methods: tuple[str, ...] = tuple(METHODS)
    side_methods: tuple[str, ...] = SIDE_METHODS
    n_side_repeats: int = 1
    entropy_noises: tuple[float, ...] = (0.5,)
    other_inks: tuple[int, ...] = (127,)
    ink_methods: tuple[str, ...] = (CONVEX, "ucl-4")
    limits: Limits = field(default_factory=Limits)

    def methods_at(self, noise: float, repeat: int) -> tuple[str, ...]:
        """The methods to run on one choice of pictures."""
        left_out = set(self.side_methods if repeat >= self.n_side_repeats else ())
        if noise not in self.entropy_noises:
            left_out.add(WITH_ENTROPY)
        return tuple(name for name in self.methods if name not in left_out)


FULL = Design()
QUICK = Design(
    n_each=1,
    n_repeats=1,
    methods=("pseudo", CONVEX, "lbp", "ucl", "ucl+entropy", "ucl-1", "ucl-4"),
    other_inks=(),
    limits=Limits(max_iter=20),
)


def run(settings: Settings) -> Outcome:
    """The experiment of ``fieldfit reproduce domke-digits``."""
    return run_design(QUICK if settings.quick else FULL, settings)


def run_design(design: Design, settings: Settings) -> Outcome:
    """Every method at every level of noise, on every choice of pictures."""
    if settings.data is None:
        raise InvalidInputError("--data must name the folder of the data sets for domke-digits")
    digits = read_digits(settings.data / FILE)
    choices = [(repeat, noise) for repeat in range(design.n_repeats) for noise in design.noises]
    n_main = sum(len(design.methods_at(noise, repeat)) for repeat, noise in choices)
    n_inks = len(design.other_inks) * len(design.noises) * len(design.ink_methods)
    rows: list[dict[str, Any]] = []
    shown: dict[float, Shown] = {}

    def progress(n_here: int, what: str) -> None:
        settings.progress(len(rows) + n_here, n_main + n_inks, what)

    for repeat, noise in choices:
        split = draw_split(digits, design.n_each, noise, (settings.seed, repeat))
        if not rows:
            _compile(design, split)
        methods = design.methods_at(noise, repeat)
        found = _methods_on(split, design, methods, settings, noise, repeat, progress)
        rows += found.rows
        if repeat == 0:
            shown[noise] = found
    main = list(rows)
    for ink in design.other_inks:
        for noise in design.noises:
            split = draw_split(digits, design.n_each, noise, (settings.seed, 0), ink)
            found = _methods_on(split, design, design.ink_methods, settings, noise, 0, progress)
            rows += [{**row, "ink": ink} for row in found.rows]
    inks = rows[len(main) :]
    settings.progress(len(rows), len(rows), "done")
    return Outcome(
        rows=main,
        table=table(main),
        report=report(main, inks, ink_shares(digits, design, settings), design),
        tables={"ink": inks} if inks else {},
        figures={
            "errors": error_curves(main),
            **{
                f"pictures-{100 * noise:.0f}": pictures(found.split, found.beliefs)
                for noise, found in shown.items()
            },
        },
        headline=headline(main),
    )


@dataclass(frozen=True)
class Shown:
    """Rows of all methods on one split, and their beliefs in ink on its test pictures."""

    split: DigitSplit
    rows: list[dict[str, Any]]
    beliefs: Mapping[str, FloatArray]


def ink_shares(digits: Digits, design: Design, settings: Settings) -> dict[int, float]:
    """Share of ink in the test pictures, by the cut: the error of empty pictures."""
    shares = {}
    for ink in (INK, *design.other_inks):
        repeats = range(design.n_repeats)
        tests = [draw_split(digits, design.n_each, 0.0, (settings.seed, r), ink) for r in repeats]
        shares[ink] = float(np.mean([split.test.mean() for split in tests]))
    return shares


def _methods_on(
    split: DigitSplit,
    design: Design,
    methods: tuple[str, ...],
    settings: Settings,
    noise: float,
    repeat: int,
    progress: Callable[[int, str], None],
) -> Shown:
    limits = replace(design.limits, n_jobs=settings.n_jobs)
    rows: list[dict[str, Any]] = []
    weights: dict[str, FloatArray] = {}
    beliefs: dict[str, FloatArray] = {}
    for name in methods:
        progress(len(rows), f"{name} at {100 * noise:.0f} % noise")
        method = METHODS[name]
        start = None if method.start is None else weights[method.start]
        crf, seconds = fit_method(method, split, limits, start)
        weights[name] = crf.weights_
        with warnings.catch_warnings():
            # loopy propagation that does not settle is part of what is measured
            warnings.simplefilter("ignore", ConvergenceWarning)
            test = np.stack(crf.predict_marginals(list(split.noisy_test)))
            train = np.stack(crf.predict_marginals(list(split.noisy_train)))
        row: dict[str, Any] = {"method": name, "noise": noise, "repeat": repeat}
        row |= belief_scores(test, split.test)
        row["train_uclass"] = belief_scores(train, split.train)["uclass"]
        row |= {"seconds": seconds, "converged": crf.converged_, "n_iter": crf.n_iter_}
        rows.append({column: row[column] for column in COLUMNS})
        beliefs[name] = test[..., 1]
    return Shown(split, rows, beliefs)


def _compile(design: Design, split: DigitSplit) -> None:
    """Every kernel once, so that seconds are seconds of learning."""
    few = DigitSplit(split.train[:2], split.noisy_train[:2], split.test[:2], split.noisy_test[:2])
    for name in design.methods:
        fit_method(METHODS[name], few, Limits(max_iter=1), None)
