"""Speed at equal quality: F1 of speakers against processor time, for every way of learning.

The paper says that five steps from the data learn as well as belief propagation, 13.7 times faster.
How much faster depends on when one stops, and on what propagation is compared.  So trainings are
followed on a quarter of the training mails that is held out, every method stops by the same rule,
and propagation has the paper's schedule and starts, fieldfit's, or one of each.  The mails, the
features and the two models are those of ``contrastive-seminars``; in the *4-clique* model the
penalty is chosen on the held-out mails, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from experiments.base import Outcome, Plan, Result, Results, Task
from experiments.seminar_mails import Example, Folds, in_matrices, split_mails
from experiments.welling_sutton2005.seminars.methods import SHARE, Meter
from experiments.welling_sutton2005.seminars.run import MODELS, linked_mails
from experiments.welling_sutton2005.speed.figures import courses, gradients
from experiments.welling_sutton2005.speed.methods import (
    CONTRASTIVE,
    FASTEST,
    METHODS,
    PROPAGATION,
    REFERENCE,
    Judge,
    Maker,
    follow,
    objective_of,
)
from experiments.welling_sutton2005.speed.report import headline, report, table
from experiments.welling_sutton2005.speed.stopping import course_row, course_rows
from fieldfit import SkipChainCRF
from fieldfit.learners import Learner, TemplateProblem
from fieldfit.objectives import Objective

TWO, FOUR = MODELS
#: Kinds of tasks besides trainings: messages of one gradient for several tolerances.
GRADIENTS = "gradients"
#: Method whose weights these are computed at.
AT = "CF5"


@dataclass(frozen=True)
class Design:
    """Size of the experiment.

    ``n_mails`` are taken at random (``None``: all) and split into ``n_folds`` parts, of which
    ``n_runs`` are used for testing in turn with the 2-clique model, the first ``n_penalty_runs`` of
    them with the 4-clique model, too.  ``max_links`` is the rule for links that every fold of
    ``contrastive-seminars`` has chosen on its training mails.  ``l2`` is the paper's penalty;
    ``penalties`` are tried for the 4-clique model.  ``tolerances`` of messages are compared at the
    weights of one training.
    """

    n_mails: int | None = None
    n_folds: int = 5
    n_runs: int = 3
    n_penalty_runs: int = 2
    max_iter: int = 100
    tol: float = 1e-4
    min_count: int = 2
    max_links: int = 2
    l2: float = 0.1
    penalties: tuple[float, ...] = (0.1, 1.0, 10.0)
    tolerances: tuple[float, ...] = (1e-2, 1e-4, 1e-6, 1e-8)


FULL = Design()
QUICK = Design(n_mails=100, n_folds=4, n_runs=1, n_penalty_runs=1, max_iter=30, tol=1e-3)


@dataclass(frozen=True)
class Mails:
    """What to learn from, what to stop by, and what to test on: examples and labels."""

    training: tuple[list[Any], list[Any]]
    held_out: tuple[list[Any], list[Any]]
    test: tuple[list[Any], list[Any]]


class Speed(Plan[Design]):
    """A task is one training that is followed."""

    full, quick = FULL, QUICK

    def tasks(self) -> Sequence[Task]:
        """``(fold, model, method, l2)``; l2 is 0 where an earlier task has chosen it."""
        design, found = self.design, list[Task]()
        for fold in range(design.n_runs):
            found += [(fold, TWO, method, design.l2) for method in METHODS]
            if fold == 0:
                found.append((fold, TWO, GRADIENTS, design.l2))
            if fold < design.n_penalty_runs:
                found += [
                    (fold, FOUR, method, l2) for method in (AT, FASTEST) for l2 in design.penalties
                ]
                found.append((fold, FOUR, REFERENCE, 0.0))
        return found

    def run_task(self, task: Task, results: Results) -> Result:
        """Train one method, and follow it."""
        fold, model, method, l2 = int(task[0]), str(task[1]), str(task[2]), float(task[3])
        if method == GRADIENTS:
            weights = results[fold, TWO, AT, l2].arrays["weights"]
            return Result(tables={GRADIENTS: self._gradients(fold, weights)})
        if not l2:
            # the same objective as that of the fastest propagation
            l2 = self._penalty(fold, FASTEST, results)
        mails = self._mails(fold)
        course = follow(
            self._maker(model, l2),
            method,
            *mails.training,
            self._score(fold, model),
            self.design.max_iter,
            self.design.tol,
        )
        name = {"model": model, "fold": fold, "method": method, "l2": l2}
        keeps_weights = (fold, model, method) == (0, TWO, AT)
        return Result(
            [{**name, **course_row(course)}],
            tables={"courses": [{**name, **row} for row in course_rows(course)]},
            arrays={"weights": course.weights} if keeps_weights else {},
        )

    def outcome(self, results: Results) -> Outcome:
        tried = results.rows()
        rows = self._with_chosen_penalties(tried, results)
        points, costs = results.table("courses"), results.table(GRADIENTS)
        return Outcome(
            rows=tried,
            table=table(rows, points),
            report=report(rows, points, costs, tried, self.design),
            tables={"courses": points, GRADIENTS: costs},
            figures={"curves": courses(rows, points), "gradients": gradients(rows, points)},
            headline=headline(rows, points),
        )

    def warm_up(self) -> None:
        """One iteration of every method on a few mails."""
        examples, labels = self.examples[:8], self.labels[:8]
        split = in_matrices(split_mails(examples, labels, slice(0, 4), 1))
        for model in MODELS:
            make = self._maker(model, 1.0)
            for method in METHODS:
                data = split.training, split.training_labels
                follow(make, method, *data, lambda weights: (0.0, 0.0), 1, 1.0)

    # -- data -----------------------------------------------------------------------------

    @cached_property
    def folds(self) -> Folds:
        """Which mails are in which fold."""
        return Folds.read(self.settings.data_folder, self.design, self.settings.seed)

    @cached_property
    def examples(self) -> list[Example]:
        """Features and links of all mails."""
        rule = self.design.max_links
        return linked_mails(self.folds.mails, [rule])[rule]

    @cached_property
    def labels(self) -> list[list[int]]:
        """Whether tokens are in the name of a speaker."""
        return [
            [int(label.endswith("-speaker")) for label in mail.labels] for mail in self.folds.mails
        ]

    def _mails(self, fold: int) -> Mails:
        return self.kept("mails", fold, lambda: self._cut(fold))

    def _cut(self, fold: int) -> Mails:
        """Test mails are a fold; the quarter of the others that follows it is held out.

        So no two folds learn from the same mails.
        """
        test = self.folds.of(fold)
        order = [*range(test.stop, len(self.examples)), *range(test.start)]
        n_held_out = len(order) // SHARE
        order = [*order[:n_held_out], *range(test.start, test.stop), *order[n_held_out:]]
        examples = [self.examples[index] for index in order]
        labels = [self.labels[index] for index in order]
        unseen = slice(0, n_held_out + test.stop - test.start)
        split = in_matrices(split_mails(examples, labels, unseen, self.design.min_count))
        return Mails(
            (split.training, split.training_labels),
            (split.test[:n_held_out], split.test_labels[:n_held_out]),
            (split.test[n_held_out:], split.test_labels[n_held_out:]),
        )

    def _judge(self, fold: int, model: str) -> Judge:
        training = self._mails(fold).training
        return self.kept("judge", (fold, model), lambda: Judge(self._maker(model, 1.0), *training))

    def _score(self, fold: int, model: str) -> Callable[[Any], tuple[float, float]]:
        """F1 of held-out and of test mails."""
        mails, judge = self._mails(fold), self._judge(fold, model)
        return lambda weights: (
            judge.f1(weights, *mails.held_out),
            judge.f1(weights, *mails.test),
        )

    def _maker(self, model: str, l2: float) -> Maker:
        """Builds the estimator of an objective."""

        def make(objective: Objective, learner: Learner) -> SkipChainCRF:
            return SkipChainCRF(
                objective,
                edge_features=MODELS[model],
                l2=l2,
                learner=learner,
                fit_intercept=False,  # features have a constant
                all_possible_transitions=True,
                n_jobs=1,  # processor time is then what a method costs
                random_state=self.settings.seed,
            )

        return make

    # -- choices and counts ---------------------------------------------------------------

    def _penalty(self, fold: int, method: str, results: Results) -> float:
        """The penalty whose kept weights have the best held-out F1; ties go to the smaller one."""
        return max(
            self.design.penalties,
            key=lambda l2: results[fold, FOUR, method, l2].rows[0]["held_out_f1"],
        )

    def _with_chosen_penalties(
        self, tried: Sequence[dict[str, Any]], results: Results
    ) -> list[dict[str, Any]]:
        chosen = {
            (fold, method): self._penalty(fold, method, results)
            for fold in range(self.design.n_penalty_runs)
            for method in (AT, FASTEST)
        }
        return [
            row
            for row in tried
            if row["model"] == TWO
            or row["l2"] == chosen.get((row["fold"], row["method"]), row["l2"])
        ]

    def _gradients(self, fold: int, weights: Any) -> list[dict[str, Any]]:
        """Messages of one cold evaluation at given weights, for several tolerances."""
        given = self._judge(fold, TWO).problem
        assert isinstance(given, TemplateProblem)
        found: list[dict[str, Any]] = []
        cold = [method for method, (_, is_warm) in PROPAGATION.items() if not is_warm]
        for method in (*CONTRASTIVE, *cold):
            for tol in [None] if method in CONTRASTIVE else self.design.tolerances:
                meter = Meter()
                objective = objective_of(method, meter, *([] if tol is None else [tol]))
                value = TemplateProblem(objective, given.parts).evaluate(np.asarray(weights))
                found.append(
                    {
                        "method": method,
                        "tol": tol,
                        "messages": meter.n_messages,
                        "unconverged": value.n_unconverged,
                    }
                )
        return found
