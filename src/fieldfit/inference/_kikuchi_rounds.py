"""The two loops on a region graph: rounds of concave problems, and plain messages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fieldfit.inference._message_run import Progress
from fieldfit.inference._region_run import RegionRun

__all__ = ["Rounds", "plain_messages", "run_rounds"]

FloatArray = NDArray[np.float64]

#: A round is solved until regions agree to this share of the last change of beliefs: exact enough
#: for values to rise, and a third of the sweeps that a fixed tolerance costs.
ACCURACY = 0.01
#: Share of the tolerance that rounds are not solved beyond, ...
FINEST = 0.1
#: ... unless a value has fallen by more than `SLACK` times its size: then they are solved once
#: more, this much better.
MUCH_BETTER = 1e-4
SLACK = 1e-12

#: Damping of plain messages when the disagreement has not fallen for `PATIENCE` calls.
DAMPING_STEPS = (0.3, 0.6, 0.9)
PATIENCE = 8
SWEEPS_PER_CALL = 8


@dataclass(frozen=True)
class Rounds:
    """What rounds led to, for each example; ``values`` has a row for each round."""

    values: FloatArray
    changes: FloatArray
    moving: NDArray[np.bool_]
    n_rounds: int


def run_rounds(
    run: RegionRun,
    max_rounds: int,
    max_sweeps: int,
    tol: float,
    accuracy: float = ACCURACY,
    start_values: FloatArray | None = None,
    progress: Progress | None = None,
) -> Rounds:
    """Solve concave problems, each with its lines at the beliefs of the last one.

    A dual value is never below that of the maximum, so that a round that is solved loosely is
    overrated, by the square of what regions disagree; when the next round shows it, the value is
    put right.  ``start_values`` are those of consistent beliefs where the lines are at first.
    """
    n_examples = run.batch.n_examples
    bent = run.has_lines()
    values = np.full(n_examples, -np.inf) if start_values is None else start_values.copy()
    changes = np.where(run.n_sweeps > 0, np.minimum(run.gaps, 1.0), 1.0)
    moving = np.ones(n_examples, dtype=np.bool_)
    history: list[FloatArray] = []
    while moving.any() and len(history) < max_rounds:
        left = np.flatnonzero(moving)
        if history:
            run.relinearise_at_beliefs(left)
        closeness = np.maximum(np.where(bent, accuracy * changes, 0.0), FINEST * tol)
        run.sweep(left, closeness, max_sweeps)
        found, moved = run.values(left)
        fell = left[found[left] < (values - SLACK * (1.0 + np.abs(values)))[left]]
        if len(fell):
            run.sweep(fell, MUCH_BETTER * closeness, max_sweeps)
            found[fell], moved[fell] = (result[fell] for result in run.values(fell))
        values[left], changes[left] = found[left], moved[left]
        changes[~bent] = 0.0  # without a line there is nothing to come back to
        history.append(values.copy())
        moving &= (changes > tol) | (run.gaps > tol)
        if progress is not None:
            progress(len(history), float(changes.max(initial=0.0)))
    rows = np.array(history).reshape(len(history), n_examples)
    risen = np.minimum.accumulate(rows[::-1], axis=0)[::-1]
    if start_values is not None:
        risen = np.maximum(risen, start_values)  # up to rounding they are
    return Rounds(risen, changes, moving, len(history))


def plain_messages(
    run: RegionRun,
    max_sweeps: int,
    tol: float,
    damping: float | None,
    progress: Progress | None = None,
) -> None:
    """Sweeps in which every update moves its line along; fast, but they may run in circles.

    Without a given ``damping`` each example gets some when its disagreement stops falling; one
    whose multipliers run away starts again with more.
    """
    n_examples = run.batch.n_examples
    start = run.copy_of_state()
    shares = np.full(n_examples, 0.0 if damping is None else damping)
    steps = np.zeros(n_examples, dtype=np.int64)
    best = np.full(n_examples, np.inf)
    waited = np.zeros(n_examples, dtype=np.int64)
    moving, n_sweeps = np.ones(n_examples, dtype=np.bool_), 0
    while moving.any() and n_sweeps < max_sweeps:
        n_more = min(SWEEPS_PER_CALL, max_sweeps - n_sweeps)
        run.sweep(np.flatnonzero(moving), np.full(n_examples, tol), n_more, shares)
        n_sweeps += n_more
        if progress is not None:
            progress(n_sweeps, float(run.gaps.max(initial=0.0)))
        better = run.gaps < 0.9 * best
        best = np.minimum(best, run.gaps)
        waited = np.where(better, 0, waited + 1)
        lost = moving & np.isinf(run.gaps)
        run.reset(np.flatnonzero(lost), start)
        stuck = moving & ((waited > PATIENCE) | lost)
        moving &= (run.gaps > tol) & ~(lost & (steps >= len(DAMPING_STEPS)))
        if damping is None:
            raised = stuck & (steps < len(DAMPING_STEPS))
            shares[raised] = np.array(DAMPING_STEPS)[steps[raised]]
            steps[raised] += 1
            waited[raised], best[raised] = 0, np.inf
        else:
            moving &= ~lost
