"""Entropies that are fitted: implicit fitting with eight entropies, each as it is and then learned.

Digits under 50 % noise, as in `domke_digits`.  Reference: Domke, thesis (2009), section 6.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fieldfit._typing import FloatArray
from fieldfit.errors import InvalidInputError
from fieldfit.reproduce._base import Outcome, Settings
from fieldfit.reproduce._domke_digits_data import FILE, DigitSplit, draw_split, read_digits
from fieldfit.reproduce._domke_digits_methods import CONVEX, METHODS, Limits, belief_scores
from fieldfit.reproduce._domke_entropy_fit import (
    NAMED,
    HeldEntropy,
    StartingEntropy,
    digit_parts,
    digit_problem,
    ink_beliefs,
    minimize,
    random_entropy,
)
from fieldfit.reproduce._domke_entropy_report import bars, headline, report, table

__all__ = ["FULL", "QUICK", "Design", "run", "run_design"]


COLUMNS = (
    "method", "entropy", "noise", "repeat", "uclass", "ucl", "train_uclass", "seconds",
    "converged", "n_iter",
)  # fmt: skip


@dataclass(frozen=True)
class Design:
    """Size of the experiment: entropies by name, and the number of random ones."""

    noise: float = 0.5
    n_each: int = 10
    n_repeats: int = 1
    named: tuple[str, ...] = tuple(NAMED)
    n_random: int = 5
    limits: Limits = field(default_factory=lambda: Limits(max_iter=40))


FULL = Design()
QUICK = Design(n_each=1, named=("A", "C"), n_random=1, limits=Limits(max_iter=20))


def run(settings: Settings) -> Outcome:
    """The experiment of ``fieldfit reproduce domke-entropy``."""
    return run_design(QUICK if settings.quick else FULL, settings)


def run_design(design: Design, settings: Settings) -> Outcome:
    """Every entropy on every choice of pictures."""
    if settings.data is None:
        raise InvalidInputError("--data must name the folder of the data sets for domke-entropy")
    digits = read_digits(settings.data / FILE)
    limits = replace(design.limits, n_jobs=settings.n_jobs)
    entropies = {name: NAMED[name] for name in design.named}
    for number in range(design.n_random):
        rng = np.random.default_rng([settings.seed, number])
        entropies[f"r{number + 1}"] = random_entropy(rng)
    rows: list[dict[str, Any]] = []
    total = 2 * design.n_repeats * len(entropies)
    for repeat in range(design.n_repeats):
        split = draw_split(digits, design.n_each, design.noise, (settings.seed, repeat))
        fits = _Fits(split, limits)
        for name, entropy in entropies.items():
            settings.progress(len(rows), total, f"entropy {name}")
            for row in fits.rows(entropy):
                row |= {"method": name, "noise": design.noise, "repeat": repeat}
                rows.append({column: row[column] for column in COLUMNS})
    settings.progress(total, total, "done")
    return Outcome(
        rows=rows,
        table=table(rows),
        report=report(rows, design),
        figures={"entropies": bars(rows)},
        headline=headline(rows),
    )


class _Fits:
    """Fits on one choice of pictures; all start from one convex fit."""

    def __init__(self, split: DigitSplit, limits: Limits) -> None:
        self.split = split
        self.limits = limits
        self.train = digit_parts(split.noisy_train, split.train)
        self.test = digit_parts(split.noisy_test, split.test)
        problem = digit_problem(METHODS[CONVEX].objective, self.train, limits)
        self.start = minimize(problem, np.zeros(problem.n_weights), limits)[0].weights

    def rows(self, entropy: StartingEntropy) -> list[dict[str, Any]]:
        """One row with the entropy as it is, and one with it fitted from there on."""
        problem = digit_problem(entropy.objective, self.train, self.limits)
        held = HeldEntropy(problem, entropy.parameters)
        fixed, seconds = minimize(held, self.start, self.limits)
        weights = np.concatenate([fixed.weights, entropy.parameters])
        first = self._row(entropy, "fixed", weights, fixed, seconds)
        problem.reset_warm_start()
        fitted, seconds = minimize(problem, weights, self.limits)
        return [first, self._row(entropy, "fitted", fitted.weights, fitted, seconds)]

    def _row(
        self, entropy: StartingEntropy, kind: str, weights: FloatArray, fit: Any, seconds: float
    ) -> dict[str, Any]:
        test = belief_scores(
            ink_beliefs(entropy.objective, self.test, weights), self.split.test.ravel()
        )
        train = belief_scores(
            ink_beliefs(entropy.objective, self.train, weights), self.split.train.ravel()
        )
        return {
            "entropy": kind,
            "uclass": test["uclass"],
            "ucl": test["ucl"],
            "train_uclass": train["uclass"],
            "seconds": seconds,
            "converged": fit.converged,
            "n_iter": fit.n_iter,
        }
