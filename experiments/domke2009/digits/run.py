"""Handwritten digits under noise: likelihoods, implicit and procedural fitting.

A pixel of a black-and-white picture is set at random with some probability; a field on the grid
recovers the picture.  All methods fit the same weights, tables of pairs and of a pixel with its
noisy value, and differ in what they make small.  Penalties are chosen on training pictures, for
each choice of pictures and level of noise: one method of each kind (`CHOOSERS`) learns from two
thirds of them with every penalty, and the third that is left decides.  Reference: Domke, thesis
(2009), section 6.2.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from experiments.base import Outcome, Result, Results, Task
from experiments.domke2009.digits.figures import N_SHOWN, error_curves, pictures
from experiments.domke2009.digits.report import headline, report, table
from experiments.domke2009.digits_data import INK
from experiments.domke2009.digits_methods import (
    CONVEX,
    METHODS,
    SIDE_METHODS,
    WITH_ENTROPY,
    DigitPlan,
    Limits,
    belief_scores,
    fit_method,
    held_out_split,
)
from fieldfit import ConvergenceWarning

#: Columns of ``results.csv``.
COLUMNS = (
    "method", "noise", "repeat", "l2", "uclass", "ucl", "uquad", "train_uclass", "seconds",
    "converged", "n_iter",
)  # fmt: skip
#: The method whose held-out errors choose the penalty of all of its kind, by the kind.
CHOOSERS = {
    METHODS[name].family if name != "pseudo" else "pseudo": name
    for name in ("pseudo", CONVEX, "ucl", "ucl-4")
}


@dataclass(frozen=True)
class Design:
    """Size of the experiment.

    ``n_each`` pictures of every digit to train and as many to test, ``n_repeats`` times with other
    pictures; ``side_methods`` only the first ``n_side_repeats`` times.  Entropies are fitted at
    ``entropy_noises``, by default at the level of section 6.3.  ``other_inks`` are further cuts
    between paper and ink (see `INK`), which ``ink_methods`` are run with on the first choice of
    pictures.  ``penalties`` are those to choose from.  A fitted entropy takes more iterations,
    ``entropy_iter``.
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
    penalties: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0)
    limits: Limits = field(default_factory=lambda: Limits(max_iter=200))
    entropy_iter: int = 600

    def methods_at(self, noise: float, repeat: int) -> tuple[str, ...]:
        """The methods to run on one choice of pictures."""
        left_out = set(self.side_methods if repeat >= self.n_side_repeats else ())
        if noise not in self.entropy_noises:
            left_out.add(WITH_ENTROPY)
        return tuple(name for name in self.methods if name not in left_out)

    @property
    def choosers(self) -> tuple[str, ...]:
        """Methods that choose penalties, those whose weights others start from first."""
        kinds = {kind_of(name) for name in self.methods} | {kind_of(CONVEX)}
        return tuple(name for kind, name in CHOOSERS.items() if kind in kinds)


def kind_of(method: str) -> str:
    """Methods of a kind share a penalty."""
    return "pseudo" if method == "pseudo" else METHODS[method].family


FULL = Design()
QUICK = Design(
    n_each=1,
    n_repeats=1,
    methods=("pseudo", CONVEX, "lbp", "ucl", "ucl+entropy", "ucl-1", "ucl-4"),
    other_inks=(),
    penalties=(0.1, 1.0),
    limits=Limits(max_iter=20),
    entropy_iter=20,
)


#: Parts of the experiment: choice of penalties, the table, and other cuts between paper and ink.
CHOICE, MAIN, INKS = "choose", "main", "ink"


class NoisyDigits(DigitPlan[Design]):
    """A task is a method at one level of noise, on one choice of pictures."""

    full, quick = FULL, QUICK

    def tasks(self) -> Sequence[Task]:
        """Choices of penalties, methods of the table, and methods with other cuts.

        ``("choose", repeat, noise, method, l2)``, ``("main", repeat, noise, method)`` and
        ``("ink", cut, noise, method)``.
        """
        design = self.design
        main: list[Task] = []
        for repeat in range(design.n_repeats):
            for noise in design.noises:
                main += [
                    (CHOICE, repeat, noise, method, l2)
                    for method in design.choosers
                    for l2 in design.penalties
                ]
                main += [
                    (MAIN, repeat, noise, method) for method in design.methods_at(noise, repeat)
                ]
        inks = [
            (INKS, ink, noise, method)
            for ink in design.other_inks
            for noise in design.noises
            for method in design.ink_methods
        ]
        return [*main, *inks]

    def run_task(self, task: Task, results: Results) -> Result:
        """The row of a method; its weights, and what it believes of some pictures."""
        if task[0] == CHOICE:
            return self._choice(task, results)
        part, number, noise, name = str(task[0]), int(task[1]), float(task[2]), str(task[3])
        repeat, ink = (number, INK) if part == MAIN else (0, number)
        split = self.split(repeat, noise, ink)
        method = METHODS[name]
        start = None
        if method.start is not None:
            start = results[part, number, noise, method.start].arrays["weights"]
        limits = replace(self.limits, l2=self._chosen(repeat, noise, kind_of(name), results))
        if name == WITH_ENTROPY:
            limits = replace(limits, max_iter=self.design.entropy_iter)
        crf, seconds = fit_method(method, split, limits, start)
        with warnings.catch_warnings():
            # loopy propagation that does not settle is part of what is measured
            warnings.simplefilter("ignore", ConvergenceWarning)
            test = np.stack(crf.predict_marginals(list(split.noisy_test)))
            train = np.stack(crf.predict_marginals(list(split.noisy_train)))
        row: dict[str, Any] = {"method": name, "noise": noise, "repeat": repeat, "l2": limits.l2}
        row |= belief_scores(test, split.test)
        row["train_uclass"] = belief_scores(train, split.train)["uclass"]
        row |= {"seconds": seconds, "converged": crf.converged_, "n_iter": crf.n_iter_}
        row = {column: row[column] for column in COLUMNS}
        if part == INKS:
            return Result(tables={INKS: [{**row, "ink": ink}]}, arrays={"weights": crf.weights_})
        arrays = {"weights": crf.weights_}
        if repeat == 0:
            arrays["beliefs"] = test[:N_SHOWN, ..., 1]
        return Result([row], arrays=arrays)

    def _choice(self, task: Task, results: Results) -> Result:
        """Errors of one method and penalty on the third of the training pictures left out."""
        repeat, noise, name, l2 = int(task[1]), float(task[2]), str(task[3]), float(task[4])
        split = held_out_split(self.split(repeat, noise))
        start = None
        if METHODS[name].start is not None:
            before = self._chosen(repeat, noise, kind_of(CONVEX), results)
            start = results[CHOICE, repeat, noise, CONVEX, before].arrays["weights"]
        crf, seconds = fit_method(METHODS[name], split, replace(self.limits, l2=l2), start)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = np.stack(crf.predict_marginals(list(split.noisy_test)))
        row = {"method": name, "noise": noise, "repeat": repeat, "l2": l2}
        row |= {"held_out_uclass": belief_scores(found, split.test)["uclass"], "seconds": seconds}
        return Result(tables={CHOICE: [row]}, arrays={"weights": crf.weights_})

    def _chosen(self, repeat: int, noise: float, kind: str, results: Results) -> float:
        """The penalty with fewest held-out errors."""

        def held_out(l2: float) -> float:
            (row,) = results[CHOICE, repeat, noise, CHOOSERS[kind], l2].tables[CHOICE]
            return float(row["held_out_uclass"])

        return min(self.design.penalties, key=held_out)

    def outcome(self, results: Results) -> Outcome:
        rows, inks, choices = results.rows(), results.table(INKS), results.table(CHOICE)
        figures = {"errors": error_curves(rows)}
        for noise in self.design.noises:
            beliefs = {
                method: results[MAIN, 0, noise, method].arrays["beliefs"]
                for method in self.design.methods_at(noise, 0)
            }
            figures[f"pictures-{100 * noise:.0f}"] = pictures(self.split(0, noise), beliefs)
        return Outcome(
            rows=rows,
            table=table(rows),
            report=report(rows, inks, self._ink_shares(), self.design),
            tables={CHOICE: choices, **({INKS: inks} if inks else {})},
            figures=figures,
            headline=headline(rows),
        )

    def warm_up(self) -> None:
        """One iteration of every method."""
        few = self.few(self.design.noises[0])
        for name in self.design.methods:
            fit_method(METHODS[name], few, Limits(max_iter=1), None)

    def _ink_shares(self) -> dict[int, float]:
        """Share of ink in the test pictures, by the cut: the error of empty pictures."""
        repeats = range(self.design.n_repeats)
        return {
            ink: float(np.mean([self.split(repeat, 0.0, ink).test.mean() for repeat in repeats]))
            for ink in (INK, *self.design.other_inks)
        }
