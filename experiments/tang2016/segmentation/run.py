"""Horses cut out of photographs: MLE-Struct against double loops, in seconds and in pixels.

The model is a binary field over 64 x 64 pixels with image features.  Tree-reweighted likelihood is
minimised in two ways, by MLE-Struct in the dual and by L-BFGS around message passing, and the value
of the same penalised objective is followed over processor time (`_mle_struct_segmentation_methods`)
for several penalties; one of them is chosen on held-out pictures.  Other objectives of the same
model are learned with that penalty and compared by the labels of test pictures.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fieldfit.errors import InvalidInputError
from experiments.base import Outcome, Settings
from experiments.tang2016.segmentation.data import Horses, LabelArray, read_horses
from experiments.tang2016.segmentation.figures import curves, shown_indices, shown_labels
from experiments.tang2016.segmentation.methods import (
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
    optimum_of,
    speed_row,
    trace_rows,
    variant_row,
)

__all__ = ["FULL", "QUICK", "Design", "intersection_over_union", "run", "run_design"]

#: Share of the training pictures that the penalty is chosen on.
HELD_OUT = 0.25
#: Descents for that choice end early.
CHOICE_VALUE_TOL = 1e-4


@dataclass(frozen=True)
class Design:
    """Size of the experiment.

    ``penalties`` are for `n_training` pictures; with fewer they shrink in proportion, so that a
    picture's share is the same.  Variants of MLE-Struct are compared on ``n_variants`` pictures.
    """

    n_training: int = 100
    n_test: int = 115
    side: int = 64
    penalties: tuple[float, ...] = (1e3, 3e3, 1e4, 3e4)
    n_variants: int = 30
    limits: Limits = field(default_factory=Limits)


FULL = Design()
QUICK = Design(
    n_training=60,
    n_test=40,
    side=32,
    penalties=(1.5e3, 5e3),
    n_variants=20,
    limits=Limits(max_iter=50, n_passes=15, n_map_passes=15, n_epochs=10),
)


def run(settings: Settings) -> Outcome:
    """The experiment of ``fieldfit reproduce mle-struct-segmentation``."""
    return run_design(QUICK if settings.quick else FULL, settings)


def run_design(design: Design, settings: Settings) -> Outcome:
    """Speed for every penalty, methods and variants for the chosen one."""
    if settings.data is None:
        raise InvalidInputError(
            "--data must name the folder of the data sets for mle-struct-segmentation"
        )
    horses = read_horses(
        settings.data, design.n_training, design.n_test, design.side, settings.seed
    )
    work = _Work(design, settings, horses)
    work.compile()
    held_out = {l2: work.held_out_error(l2) for l2 in design.penalties}
    chosen = min(design.penalties, key=lambda l2: held_out[l2])
    speed: list[dict[str, Any]] = []
    trace: list[dict[str, Any]] = []
    for l2 in design.penalties:
        courses = work.courses(l2, (SINGLE_LOOP, *DOUBLE_LOOPS))
        if l2 == chosen:
            kept = courses
            courses = courses | work.courses(l2, ("mle-struct-map",))
            work.courses_of_chosen = courses
        optimum = optimum_of(courses.values())
        speed += [
            speed_row(l2, held_out[l2], method, course, optimum, courses[SINGLE_LOOP])
            for method, course in courses.items()
        ]
        trace += trace_rows(l2, courses, optimum)
    rows, labels = work.methods(chosen)
    variants = work.variants(chosen)
    work.step("done")
    shown = shown_indices(_errors(horses.test_labels, labels[SINGLE_LOOP]))
    sizes = Sizes(
        n_training=design.n_training,
        n_test=design.n_test,
        side=design.side,
        n_features=horses.training[0].shape[2],
        n_weights=len(kept[SINGLE_LOOP].trained.weights[0]),
        n_variants=design.n_variants,
        horse_share=float(np.mean([np.mean(truth) for truth in horses.test_labels])),
        chosen=chosen,
    )
    return Outcome(
        rows=rows,
        table=table(rows, speed),
        report=report(rows, speed, trace, variants, sizes),
        tables={"speed": speed, "trace": trace, "variants": variants},
        figures={
            "curves": curves(trace),
            "pictures": shown_labels(horses, labels, shown),
        },
        headline=headline(rows, speed, chosen),
    )


class _Work:
    """What a run does, step by step; reports progress."""

    def __init__(self, design: Design, settings: Settings, horses: Horses) -> None:
        self.design, self.settings, self.horses = design, settings, horses
        self.courses_of_chosen: dict[str, Course] = {}
        n_penalties = len(design.penalties)
        self._total = 1 + n_penalties * (2 + len(DOUBLE_LOOPS)) + 5 + len(VARIANTS) + 2
        self._done = 0

    def step(self, what: str) -> None:
        """Say what comes next."""
        self._done = self._total if what == "done" else min(self._done + 1, self._total - 1)
        self.settings.progress(self._done, self._total, what)

    def compile(self) -> None:
        """Run everything on two pictures, so that no clock sees a compiler."""
        self.step("compiling")
        pictures, labels = self.horses.training[:2], self.horses.training_labels[:2]
        limits = replace(self.design.limits, max_iter=2, n_passes=6, n_map_passes=2, n_epochs=1)
        for method in METHODS:
            train(objective_of(method), pictures, labels, 100.0, limits, 0).predict(pictures[:1])
        for objective in VARIANTS.values():
            train(objective, pictures, labels, 100.0, limits, 0)

    def held_out_error(self, l2: float) -> float:
        """Share of wrong pixels of held-out training pictures, learned from the others."""
        self.step(f"held-out pictures, l2 = {l2:g}")
        pictures, labels = self.horses.training, self.horses.training_labels
        n_seen = len(pictures) - int(HELD_OUT * len(pictures))
        limits = replace(self.design.limits, value_tol=CHOICE_VALUE_TOL)
        trained = train(
            objective_of("trw-loose"),
            pictures[:n_seen],
            labels[:n_seen],
            l2 * n_seen / len(pictures),
            limits,
            0,
        )
        return float(np.mean(_errors(labels[n_seen:], trained.predict(pictures[n_seen:]))))

    def courses(self, l2: float, methods: tuple[str, ...]) -> dict[str, Course]:
        """Train, and value the weights of every iteration off the clock."""
        pictures, labels = self.horses.training, self.horses.training_labels
        surrogate = Surrogate(pictures, labels)
        found = {}
        for method in methods:
            self.step(f"{method}, l2 = {l2:g}")
            trained = self._train(method, l2)
            found[method] = course_of(trained, surrogate, l2, is_value=method == "trw")
        return found

    def methods(self, l2: float) -> tuple[list[dict[str, Any]], dict[str, list[LabelArray]]]:
        """Rows of the results, and labels of the test pictures."""
        horses, rows, labels = self.horses, [], {}
        optimum = optimum_of(self.courses_of_chosen.values())
        surrogate = Surrogate(horses.training, horses.training_labels)
        for method in METHODS:
            course = self.courses_of_chosen.get(method)
            if course is None:
                self.step(method)
                trained = self._train(method, l2)
            else:
                trained = course.trained
            labels[method] = trained.predict(horses.test)
            errors = _errors(horses.test_labels, labels[method])
            value = surrogate.value(trained.weights[-1], l2)
            gap = trained.gaps[-1]
            rows.append(
                {
                    "method": method,
                    "objective": method,
                    "test_error": float(np.mean(errors)),
                    "seconds": trained.seconds[-1],
                    "converged": bool(trained.crf.converged_),
                    "test_error_se": float(np.std(errors, ddof=1) / np.sqrt(len(errors))),
                    "iou": intersection_over_union(horses.test_labels, labels[method]),
                    "l2": l2,
                    "iterations": len(trained.crf.trace_),
                    "value": value,
                    "suboptimality": value / optimum - 1.0,
                    "gap": None if gap is None else gap / optimum,
                    "seconds_to_1_percent": (
                        None if course is None else course.seconds_to(optimum, 0.01)
                    ),
                }
            )
        return rows, labels

    def variants(self, l2: float) -> list[dict[str, Any]]:
        """What each variant of MLE-Struct does on fewer pictures, beside the double loops."""
        n = self.design.n_variants
        pictures, labels = self.horses.training[:n], self.horses.training_labels[:n]
        scaled = l2 * n / self.design.n_training
        surrogate = Surrogate(pictures, labels)
        courses = {}
        for name in ("trw", "trw-loose", *VARIANTS):
            self.step(name)
            objective = VARIANTS[name] if name in VARIANTS else objective_of(name)
            trained = train(
                objective, pictures, labels, scaled, self.design.limits, self.settings.seed
            )
            courses[name] = course_of(trained, surrogate, scaled, is_value=name == "trw")
        optimum = optimum_of(courses.values())
        return [variant_row(name, course, optimum) for name, course in courses.items()]

    def _train(self, method: str, l2: float) -> Trained:
        return train(
            objective_of(method), self.horses.training, self.horses.training_labels, l2,
            self.design.limits, self.settings.seed,
        )  # fmt: skip


def _errors(truth: list[LabelArray], found: list[LabelArray]) -> list[float]:
    """Share of wrong pixels of each picture."""
    return [float(np.mean(y != labels)) for y, labels in zip(truth, found, strict=True)]


def intersection_over_union(truth: list[LabelArray], found: list[LabelArray]) -> float:
    """Pixels that are horse in both, as a share of those that are in either, over all pictures."""
    both = sum(int(np.sum((y == 1) & (z == 1))) for y, z in zip(truth, found, strict=True))
    either = sum(int(np.sum((y == 1) | (z == 1))) for y, z in zip(truth, found, strict=True))
    return both / max(either, 1)
