"""How the penalised objective falls over processor time: courses, and rows of tables from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.tang2016.segmentation.methods import Surrogate, Trained

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Course:
    """Processor time, ``P(w)`` and certified gap (if there is one) after every iteration.

    ``errors`` are those of test pictures, where they were computed.
    """

    seconds: list[float]
    values: FloatArray
    gaps: list[float | None]
    errors: list[float | None]

    def facts(self) -> dict[str, Any]:
        """The same in lists, which can be stored."""
        return {
            "seconds": self.seconds,
            "values": self.values.tolist(),
            "gaps": self.gaps,
            "errors": self.errors,
        }

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> Course:
        """The course that was stored."""
        lists = (list(facts[name]) for name in ("gaps", "errors"))
        return cls(list(facts["seconds"]), np.array(facts["values"]), *lists)

    def iterations_to(self, optimum: float, share: float) -> int | None:
        """Iterations after which the objective stays within a share of the optimum."""
        outside = np.flatnonzero(self.values > (1.0 + share) * optimum)
        last = int(outside[-1]) + 1 if len(outside) else 0
        return None if last == len(self.values) else last + 1

    def seconds_to(self, optimum: float, share: float) -> float | None:
        """Processor time of these iterations."""
        count = self.iterations_to(optimum, share)
        return None if count is None else self.seconds[count - 1]

    def seconds_to_error(self, error: float) -> float | None:
        """Processor time from which the test error, where it was computed, stays below this."""
        known = [
            (seconds, own)
            for seconds, own in zip(self.seconds, self.errors, strict=True)
            if own is not None
        ]
        above = [number for number, (_, own) in enumerate(known) if own > error]
        first = above[-1] + 1 if above else 0
        return None if first == len(known) else known[first][0]


def course_of(
    trained: Trained,
    surrogate: Surrogate,
    l2: float,
    *,
    is_value: bool,
    errors: list[float | None] | None = None,
) -> Course:
    """Value all weights; ``is_value`` says that the training's own objective is ``P``."""
    if is_value:
        values = [float(row["objective"]) for row in trained.crf.trace_]
    else:
        values = [surrogate.value(weights, l2) for weights in trained.weights]
    none: list[float | None] = [None] * len(values)
    return Course(trained.seconds, np.array(values), trained.gaps, errors or none)


def optimum_of(courses: Iterable[Course]) -> float:
    """The smallest value that any training came to."""
    return float(min(course.values.min() for course in courses))


def speed_row(
    l2: float, held_out: float, method: str, course: Course, optimum: float, single: Course
) -> dict[str, Any]:
    """When a method came within 10, 1 and 0.1 % of the optimum."""
    own, other = course.seconds_to(optimum, 0.01), single.seconds_to(optimum, 0.01)
    return {
        "l2": l2,
        "held_out_error": held_out,
        "method": method,
        "optimum": optimum,
        "iterations_to_1_percent": course.iterations_to(optimum, 0.01),
        "seconds_to_10_percent": course.seconds_to(optimum, 0.1),
        "seconds_to_1_percent": own,
        "seconds_to_0.1_percent": course.seconds_to(optimum, 0.001),
        "times_mle_struct": None if own is None or other is None else own / other,
        "iterations": len(course.values),
        "seconds": course.seconds[-1],
        "suboptimality": float(course.values[-1]) / optimum - 1.0,
    }


def trace_rows(l2: float, courses: Mapping[str, Course], optimum: float) -> list[dict[str, Any]]:
    """One row for each iteration; gaps are certified, and relative to the optimum."""
    return [
        {
            "l2": l2,
            "method": method,
            "iteration": number + 1,
            "seconds": seconds,
            "objective": float(value),
            "suboptimality": float(value) / optimum - 1.0,
            "gap": None if gap is None else gap / optimum,
            "test_error": error,
        }
        for method, course in courses.items()
        for number, (seconds, value, gap, error) in enumerate(
            zip(course.seconds, course.values, course.gaps, course.errors, strict=True)
        )
    ]


def error_row(method: str, course: Course, final: float) -> dict[str, Any]:
    """When the test error of a method came within one and half a point of ``final``."""
    known = [error for error in course.errors if error is not None]
    return {
        "method": method,
        "seconds_to_1_point": course.seconds_to_error(final + 0.01),
        "seconds_to_half_a_point": course.seconds_to_error(final + 0.005),
        "seconds": course.seconds[-1],
        "test_error": known[-1],
    }


def step_facts(
    trained: Trained, averaged: Trained, surrogate: Surrogate, l2: float
) -> dict[str, Any]:
    """How long the steps of blocks were in the first and the last passes, and where they led.

    The last two entries are how far ``P`` of the last weights, and of their average, is above the
    dual objective in the end, relatively: no less than from the optimum.
    """
    steps = [row["mean_step"] for row in trained.crf.trace_]
    dual = float(trained.crf.trace_[-1]["objective"])
    last, mean = (surrogate.value(one.weights[-1], l2) for one in (trained, averaged))
    return {
        "first_passes": float(np.mean(steps[:5])),
        "last_passes": float(np.mean(steps[-5:])),
        "last_off": last / dual - 1.0,
        "averaged_off": mean / dual - 1.0,
    }


def variant_row(name: str, course: Course, optimum: float) -> dict[str, Any]:
    """How far a variant came, and when."""
    gap = course.gaps[-1]
    return {
        "variant": name,
        "iterations": len(course.values),
        "seconds": course.seconds[-1],
        "seconds_to_10_percent": course.seconds_to(optimum, 0.1),
        "seconds_to_1_percent": course.seconds_to(optimum, 0.01),
        "suboptimality": float(course.values[-1]) / optimum - 1.0,
        "gap": None if gap is None else gap / optimum,
    }
