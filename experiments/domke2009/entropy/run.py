"""Entropies that are fitted: implicit fitting with eight entropies, each as it is and then learned.

Digits under 50 % noise, as in ``domke-digits``.  Reference: Domke, thesis (2009), section 6.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from experiments.base import Outcome, Result, Results, Task
from experiments.domke2009.digits_methods import CONVEX, METHODS, DigitPlan, Limits, belief_scores
from experiments.domke2009.entropy.methods import (
    NAMED,
    HeldEntropy,
    StartingEntropy,
    digit_parts,
    digit_problem,
    ink_beliefs,
    minimize,
    random_entropy,
)
from experiments.domke2009.entropy.report import bars, headline, report, table

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


#: The task that fits the weights all others start from.
START = "start"
FIXED, FITTED = "fixed", "fitted"


class Entropies(DigitPlan[Design]):
    """A task is one entropy on one choice of pictures, as it is or fitted from there on."""

    full, quick = FULL, QUICK

    def tasks(self) -> Sequence[Task]:
        """``(repeat, "start")``, and for every entropy ``(repeat, name, "fixed" or "fitted")``."""
        found: list[Task] = []
        for repeat in range(self.design.n_repeats):
            found.append((repeat, START))
            found += [(repeat, name, kind) for name in self.entropies for kind in (FIXED, FITTED)]
        return found

    def run_task(self, task: Task, results: Results) -> Result:
        """A row; weights are kept for the tasks that start from them."""
        repeat, name = int(task[0]), str(task[1])
        split = self.split(repeat, self.design.noise)
        train = digit_parts(split.noisy_train, split.train)
        if name == START:
            problem = digit_problem(METHODS[CONVEX].objective, train, self.limits)
            fit, _ = minimize(problem, np.zeros(problem.n_weights), self.limits)
            return Result(arrays={"weights": fit.weights})
        entropy, kind = self.entropies[name], str(task[2])
        problem = digit_problem(entropy.objective, train, self.limits)
        if kind == FIXED:
            held = HeldEntropy(problem, entropy.parameters)
            fit, seconds = minimize(held, results[repeat, START].arrays["weights"], self.limits)
            weights = np.concatenate([fit.weights, entropy.parameters])
        else:
            start = results[repeat, name, FIXED].arrays["weights"]
            fit, seconds = minimize(problem, start, self.limits)
            weights = fit.weights
        test = digit_parts(split.noisy_test, split.test)
        scores = belief_scores(ink_beliefs(entropy.objective, test, weights), split.test.ravel())
        seen = belief_scores(ink_beliefs(entropy.objective, train, weights), split.train.ravel())
        values = (
            name, kind, self.design.noise, repeat, scores["uclass"], scores["ucl"],
            seen["uclass"], seconds, fit.converged, fit.n_iter,
        )  # fmt: skip
        return Result([dict(zip(COLUMNS, values, strict=True))], arrays={"weights": weights})

    def warm_up(self) -> None:
        few, limits = self.few(self.design.noise), Limits(max_iter=1)
        parts = digit_parts(few.noisy_train, few.train)
        for objective in (METHODS[CONVEX].objective, NAMED["A"].objective):
            problem = digit_problem(objective, parts, limits)
            fit, _ = minimize(problem, np.zeros(problem.n_weights), limits)
            ink_beliefs(objective, parts, fit.weights)

    def outcome(self, results: Results) -> Outcome:
        rows = results.rows()
        return Outcome(
            rows=rows,
            table=table(rows),
            report=report(rows, self.design),
            figures={"entropies": bars(rows)},
            headline=headline(rows),
        )

    @cached_property
    def entropies(self) -> dict[str, StartingEntropy]:
        """Those with a name, and random ones."""
        found = {name: NAMED[name] for name in self.design.named}
        for number in range(self.design.n_random):
            rng = np.random.default_rng([self.settings.seed, number])
            found[f"r{number + 1}"] = random_entropy(rng)
        return found
