"""Horses cut out of photographs: MLE-Struct against double loops, in seconds and in pixels.

The model is a binary field over 64 x 64 pixels with image features.  Tree-reweighted likelihood is
minimised in two ways, by MLE-Struct and by L-BFGS around message passing, and the value of the same
penalised objective is followed over processor time (`methods`, `times`) for several penalties; one
of them is chosen on held-out pictures, and with that the test error is followed as well.  Other
objectives of the same model are learned with that penalty and compared by the labels of test
pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from experiments.base import Outcome, Plan, Result, Results, Task
from experiments.tang2016.segmentation.data import Horses, LabelArray, read_horses
from experiments.tang2016.segmentation.figures import (
    curves,
    error_curves,
    shown_indices,
    shown_labels,
)
from experiments.tang2016.segmentation.methods import (
    AVERAGED,
    BLOCKS,
    DOUBLE_LOOPS,
    METHODS,
    SINGLE_LOOP,
    VARIANTS,
    Limits,
    Surrogate,
    Trained,
    objective_of,
    train,
)
from experiments.tang2016.segmentation.report import Sizes, headline, report, table
from experiments.tang2016.segmentation.times import (
    Course,
    course_of,
    error_row,
    optimum_of,
    speed_row,
    step_facts,
    trace_rows,
    variant_row,
)
from fieldfit import InvalidInputError

#: Share of the training pictures that the penalty is chosen on.
HELD_OUT = 0.25
#: Descents for that choice end early.
CHOICE_VALUE_TOL = 1e-4


@dataclass(frozen=True)
class Design:
    """Size of the experiment.

    ``penalties`` are for `n_training` pictures; with fewer they shrink in proportion, so that a
    picture's share is the same.  Trainings are followed for those in ``followed``, of which the one
    that held-out pictures choose must be one; ``methods`` has those in `FOLLOWED` and
    `ALSO_FOLLOWED` at least.  Variants of MLE-Struct (``variants``) are compared
    on ``n_variants`` pictures.
    """

    n_training: int = 100
    n_test: int = 115
    side: int = 64
    penalties: tuple[float, ...] = (1e3, 3e3, 1e4, 3e4)
    followed: tuple[float, ...] = (3e3,)
    methods: tuple[str, ...] = METHODS
    n_variants: int = 30
    variants: tuple[str, ...] = ("marginals, quasi-Newton",)
    limits: Limits = field(default_factory=Limits)


FULL = Design()
QUICK = Design(
    n_training=60,
    n_test=40,
    side=32,
    penalties=(1.5e3, 5e3),
    followed=(1.5e3, 5e3),
    n_variants=20,
    limits=Limits(max_iter=50, n_passes=15, n_map_passes=15, n_epochs=10),
)


#: Kinds of tasks: the error of a penalty on held-out pictures, the course of a training with a
#: penalty, a method or a variant of MLE-Struct with the penalty that was chosen.
HELD_OUT_ERROR, COURSE, METHOD, VARIANT = "held-out", "course", "method", "variant"
#: ... and how long the steps of blocks are with a penalty.
STEPS = "steps"
#: Methods whose courses are followed for every penalty, and for the chosen one alone.
FOLLOWED = (SINGLE_LOOP, *DOUBLE_LOOPS, BLOCKS)
ALSO_FOLLOWED = (AVERAGED,)


class Segmentation(Plan[Design]):
    """A task is one training."""

    full, quick = FULL, QUICK

    def tasks(self) -> Sequence[Task]:
        """``(kind, l2)``, ``("course", l2, method)``, ``("method" or "variant", name)``."""
        design = self.design
        return [
            *((HELD_OUT_ERROR, l2) for l2 in design.penalties),
            *((COURSE, l2, method) for l2 in design.followed for method in FOLLOWED),
            *((STEPS, l2) for l2 in design.penalties),
            *((VARIANT, name) for name in ("trw", "trw-loose", *design.variants)),
            *((METHOD, method) for method in design.methods if method not in FOLLOWED),
        ]

    def run_task(self, task: Task, results: Results) -> Result:
        """Train; the objective at the weights of every iteration is not timed."""
        kind = str(task[0])
        if kind == HELD_OUT_ERROR:
            return Result(facts={"error": self._held_out_error(float(task[1]))})
        if kind == COURSE:
            l2 = float(task[1])
            is_chosen = l2 == self._chosen(results)
            return self._train(str(task[2]), l2, has_course=True, has_errors=is_chosen)
        if kind == STEPS:
            return self._steps(float(task[1]))
        chosen, name = self._chosen(results), str(task[1])
        if kind == METHOD:
            is_followed = name in ALSO_FOLLOWED
            return self._train(name, chosen, has_course=is_followed, has_errors=is_followed)
        return self._train_variant(name, chosen)

    def outcome(self, results: Results) -> Outcome:
        design, horses, chosen = self.design, self.horses, self._chosen(results)
        speed: list[dict[str, Any]] = []
        trace: list[dict[str, Any]] = []
        steps = [{"l2": l2, **results[STEPS, l2].facts} for l2 in design.penalties]
        errors: list[dict[str, Any]] = []
        for l2 in design.followed:
            courses = self._courses(results, l2)
            optimum = optimum_of(courses.values())
            error = results[HELD_OUT_ERROR, l2].facts["error"]
            speed += [
                speed_row(l2, error, method, course, optimum, courses[SINGLE_LOOP])
                for method, course in courses.items()
            ]
            trace += trace_rows(l2, courses, optimum)
            if l2 == chosen:
                final = courses["trw"].errors[-1]
                assert final is not None
                errors = [error_row(name, course, final) for name, course in courses.items()]
        rows, labels = self._methods(results)
        names = [str(task[1]) for task in self.tasks() if task[0] == VARIANT]
        courses = {name: Course.of_facts(results[VARIANT, name].facts) for name in names}
        optimum = optimum_of(courses.values())
        variants = [variant_row(name, course, optimum) for name, course in courses.items()]
        shown = shown_indices(_errors(horses.test_labels, labels[SINGLE_LOOP]))
        sizes = Sizes(
            n_training=design.n_training,
            n_test=design.n_test,
            side=design.side,
            n_features=horses.training[0].shape[2],
            n_weights=int(results[COURSE, chosen, SINGLE_LOOP].facts["n_weights"]),
            n_variants=design.n_variants,
            horse_share=float(np.mean([np.mean(truth) for truth in horses.test_labels])),
            chosen=chosen,
            held_out={l2: results[HELD_OUT_ERROR, l2].facts["error"] for l2 in design.penalties},
        )
        return Outcome(
            rows=rows,
            table=table(rows, speed),
            report=report(rows, speed, trace, errors, steps, variants, sizes),
            tables={
                "speed": speed,
                "trace": trace,
                "variants": variants,
                "errors": errors,
                "steps": steps,
            },
            figures={
                "curves": curves(trace),
                "errors": error_curves([row for row in trace if row["l2"] == chosen]),
                "pictures": shown_labels(horses, labels, shown),
            },
            headline=headline(rows, speed, chosen),
        )

    def warm_up(self) -> None:
        """Run everything on two pictures, so that compilation is not timed."""
        pictures, labels = self.horses.training[:2], self.horses.training_labels[:2]
        limits = replace(
            self.design.limits, max_iter=2, n_steps=6, n_passes=6, n_map_passes=2, n_epochs=1
        )
        for method in self.design.methods:
            train(objective_of(method), pictures, labels, 100.0, limits, 0).predict(pictures[:1])
        for name in self.design.variants:
            train(VARIANTS[name], pictures, labels, 100.0, limits, 0)

    @cached_property
    def horses(self) -> Horses:
        """Training and test pictures."""
        design = self.design
        return read_horses(
            self.settings.data_folder,
            design.n_training,
            design.n_test,
            design.side,
            self.settings.seed,
        )

    @cached_property
    def surrogate(self) -> Surrogate:
        """The objective of all training pictures."""
        return Surrogate(self.horses.training, self.horses.training_labels)

    # -- tasks ----------------------------------------------------------------------------

    def _held_out_error(self, l2: float) -> float:
        """Share of wrong pixels of held-out training pictures, learned from the others."""
        pictures, labels = self.horses.training, self.horses.training_labels
        n_seen = len(pictures) - int(HELD_OUT * len(pictures))
        trained = train(
            objective_of("trw-loose"),
            pictures[:n_seen],
            labels[:n_seen],
            l2 * n_seen / len(pictures),
            replace(self.design.limits, value_tol=CHOICE_VALUE_TOL),
            0,
        )
        return float(np.mean(_errors(labels[n_seen:], trained.predict(pictures[n_seen:]))))

    def _train(self, method: str, l2: float, *, has_course: bool, has_errors: bool) -> Result:
        """One method on all training pictures, with its labels of the test pictures."""
        trained = train(
            objective_of(method), self.horses.training, self.horses.training_labels, l2,
            self.design.limits, self.settings.seed, average=method == AVERAGED,
        )  # fmt: skip
        facts: dict[str, Any] = {
            "n_weights": len(trained.weights[-1]),
            "value": self.surrogate.value(trained.weights[-1], l2),
            "converged": bool(trained.crf.converged_),
            "iterations": len(trained.crf.trace_),
            "last_second": trained.seconds[-1],
            "last_gap": trained.gaps[-1],
        }
        if has_course:
            errors = None
            if has_errors:
                errors = trained.errors(self.horses.test, self.horses.test_labels)
            is_value = method in DOUBLE_LOOPS
            course = course_of(trained, self.surrogate, l2, is_value=is_value, errors=errors)
            facts |= course.facts()
        labels = np.stack(trained.predict(self.horses.test)).astype(np.uint8)
        return Result(facts=facts, arrays={"labels": labels})

    def _trained_on_few(self, name: str, l2: float) -> Trained:
        """A variant of MLE-Struct, or a method, on fewer pictures."""
        n = self.design.n_variants
        objective = VARIANTS[name] if name in VARIANTS else objective_of(name)
        return train(
            objective, self.horses.training[:n], self.horses.training_labels[:n], self._of_few(l2),
            self.design.limits, self.settings.seed, average=name == AVERAGED,
        )  # fmt: skip

    def _of_few(self, l2: float) -> float:
        """A penalty in proportion to fewer pictures."""
        return l2 * self.design.n_variants / self.design.n_training

    def _surrogate_of_few(self) -> Surrogate:
        n = self.design.n_variants
        given = self.horses.training[:n], self.horses.training_labels[:n]
        return self.kept("few", n, lambda: Surrogate(*given))

    def _train_variant(self, name: str, l2: float) -> Result:
        """A variant of MLE-Struct, or a double loop beside it."""
        trained, surrogate = self._trained_on_few(name, l2), self._surrogate_of_few()
        course = course_of(trained, surrogate, self._of_few(l2), is_value=name == "trw")
        return Result(facts=course.facts())

    def _steps(self, l2: float) -> Result:
        """Frank-Wolfe steps of blocks with a penalty, averaged and not."""
        last, mean = (self._trained_on_few(name, l2) for name in (BLOCKS, AVERAGED))
        return Result(facts=step_facts(last, mean, self._surrogate_of_few(), self._of_few(l2)))

    # -- results --------------------------------------------------------------------------

    def _chosen(self, results: Results) -> float:
        """The penalty of smallest error on held-out pictures."""
        chosen = min(
            self.design.penalties, key=lambda l2: float(results[HELD_OUT_ERROR, l2].facts["error"])
        )
        if chosen not in self.design.followed:
            raise InvalidInputError(
                f"followed must have the penalty that was chosen, {chosen:g}, got "
                f"{self.design.followed}"
            )
        return chosen

    def _courses(self, results: Results, l2: float) -> dict[str, Course]:
        found = {name: Course.of_facts(results[COURSE, l2, name].facts) for name in FOLLOWED}
        if l2 == self._chosen(results):
            for name in ALSO_FOLLOWED:
                found[name] = Course.of_facts(results[METHOD, name].facts)
        return found

    def _methods(
        self, results: Results
    ) -> tuple[list[dict[str, Any]], dict[str, list[LabelArray]]]:
        """Rows of the results, and labels of the test pictures."""
        truth, l2 = self.horses.test_labels, self._chosen(results)
        courses = self._courses(results, l2)
        optimum = optimum_of(courses.values())
        rows, labels = [], {}
        for method in self.design.methods:
            is_followed = method in FOLLOWED
            found = results[(COURSE, l2, method) if is_followed else (METHOD, method)]
            labels[method] = list(found.arrays["labels"].astype(np.int32))
            errors = _errors(truth, labels[method])
            course, facts = courses.get(method), found.facts
            rows.append(
                {
                    "method": method,
                    "objective": method,
                    "test_error": float(np.mean(errors)),
                    "seconds": facts["last_second"],
                    "converged": facts["converged"],
                    "test_error_se": float(np.std(errors, ddof=1) / np.sqrt(len(errors))),
                    "iou": intersection_over_union(truth, labels[method]),
                    "l2": l2,
                    "iterations": facts["iterations"],
                    "value": facts["value"],
                    "suboptimality": facts["value"] / optimum - 1.0,
                    "gap": None if facts["last_gap"] is None else facts["last_gap"] / optimum,
                    "seconds_to_1_percent": (
                        None if course is None else course.seconds_to(optimum, 0.01)
                    ),
                }
            )
        return rows, labels


def _errors(truth: list[LabelArray], found: list[LabelArray]) -> list[float]:
    """Share of wrong pixels of each picture."""
    return [float(np.mean(y != labels)) for y, labels in zip(truth, found, strict=True)]


def intersection_over_union(truth: list[LabelArray], found: list[LabelArray]) -> float:
    """Pixels that are horse in both, as a share of those that are in either, over all pictures."""
    both = sum(int(np.sum((y == 1) & (z == 1))) for y, z in zip(truth, found, strict=True))
    either = sum(int(np.sum((y == 1) | (z == 1))) for y, z in zip(truth, found, strict=True))
    return both / max(either, 1)
