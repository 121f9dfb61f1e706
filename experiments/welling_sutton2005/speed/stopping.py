"""When to stop, by held-out mails, and when a quality was reached.

The rule is that of fieldfit's learners: the weights with the best held-out score so far are kept,
and learning ends when ``patience`` iterations have brought no better one.  Test scores are never
looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from experiments.welling_sutton2005.speed.methods import Course, Point

#: Iterations without a better score after which learning ends: the default of fieldfit's learners.
PATIENCE = 10
#: Held-out F1 that counts as equal quality: at most so much below the reference's best.
MARGIN = 0.01


def stopped(points: Sequence[Point]) -> tuple[Point, Point]:
    """The point whose weights are kept, and the one at which learning ends.

    >>> points = [Point(i, i, i, 0, score, 0.0) for i, score in enumerate((0.5, 0.7, 0.6), 1)]
    >>> [point.iteration for point in stopped(points)]
    [2, 3]
    """
    best = points[0]
    for point in points:
        if point.held_out_f1 > best.held_out_f1:
            best = point
        if point.iteration - best.iteration >= PATIENCE:
            return best, point
    return best, points[-1]


def course_row(course: Course) -> dict[str, Any]:
    """Columns of ``results.csv``: what the rule keeps, where it ends, and the whole training."""
    kept, end = stopped(course.points)
    last = course.points[-1]
    return {
        "iterations": kept.iteration,
        "seconds": kept.seconds,
        "evaluations": kept.evaluations,
        "messages": kept.messages,
        "messages_per_gradient": kept.messages / max(kept.evaluations, 1),
        "held_out_f1": kept.held_out_f1,
        "test_f1": kept.test_f1,
        "stop_iterations": end.iteration,
        "stop_seconds": end.seconds,
        "end_iterations": last.iteration,
        "end_seconds": last.seconds,
        "end_evaluations": last.evaluations,
        "end_messages_per_gradient": last.messages / max(last.evaluations, 1),
        "end_test_f1": last.test_f1,
        "converged": course.converged,
        "status": course.status,
    }


def course_rows(course: Course) -> list[dict[str, Any]]:
    """One row for each point."""
    return [asdict(point) for point in course.points]
