"""Descent of beliefs to a stationary point of a free energy: accelerated steps, never uphill.

The steps of `_relaxation`, with Anderson's acceleration (`kernels.acceleration`).  An accelerated
step is taken if it lowers the free energy as much as its slope promises, to a small share; if not,
the history is forgotten and a plain step follows, whose length is cut until it does.  Every
example of a batch has its own history and lengths; those that have come to rest are left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np

from fieldfit._typing import BoolArray, FloatArray, LongArray
from fieldfit.graph.batch import Batch
from fieldfit.inference.free_energy.natural_gradient import (
    CUT,
    GROWTH,
    Evaluate,
    Relaxed,
    copy_ranges,
    example_ranges,
    step_examples,
)
from fieldfit.inference.messages.message_arrays import NO_WEIGHT
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH, fast_exp, load, store

__all__ = ["Descent", "Points", "accelerated_targets", "descend", "examine", "forces", "remember"]

# -- Acceleration --------------------------------------------------------------------------
# Anderson's acceleration of steps towards targets, one example at a time (see `relaxation`).
#
# The *force* on a variable is ``f_i = target_i - log q_i`` with mean zero under ``q_i``; it
# vanishes at a stationary point.  From the last few moves ``dl_k`` of log-beliefs and the changes
# ``df_k`` of forces that came with them, the accelerated move is
#
#     f - sum_k g_k (dl_k + df_k),     g = argmin | f - sum_k g_k df_k |
#
# in the norm ``sum_i <q_i, f_i^2>``, which is that of the natural gradient.  The small
# least-squares problem is solved by Gram and Schmidt's method, newest change first; one that is
# nearly a combination of newer ones is left out.
#
# Reference: Anderson, "Iterative procedures for nonlinear integral equations", J. ACM 12 (1965);
# Walker and Ni, "Anderson acceleration for fixed-point iterations", SIAM J. Numerical Analysis 49
# (2011).


#: A change of forces of which newer ones leave no more than this share is left out.
DEPENDENT = 1e-7


@kernel(fastmath=SAFE_FASTMATH)
def forces(
    structure: Any,
    log_beliefs: FloatArray,
    targets: FloatArray,
    free: BoolArray,
    ranges: LongArray,
    beliefs: FloatArray,
    force: FloatArray,
    slopes: FloatArray,
    residuals: FloatArray,
) -> None:
    """Beliefs and forces in some ranges of variables, and two numbers for each of these.

    The slope, minus the variance of the force, is how fast a step along it changes the free energy;
    the residual is how far a full step moves a belief.
    """
    for run in range(len(ranges)):
        for i in range(ranges[run, 0], ranges[run, 1]):
            first, stop = structure.unary_offsets[i], structure.unary_offsets[i + 1]
            top, total, top_target, total_target = NO_WEIGHT, 0.0, NO_WEIGHT, 0.0
            for z in range(first, stop):
                top = max(top, load(log_beliefs, z))
                top_target = max(top_target, load(targets, z))
            for z in range(first, stop):
                weight = fast_exp(load(log_beliefs, z) - top)
                store(beliefs, z, weight)
                total += weight
                total_target += fast_exp(load(targets, z) - top_target)
            mean = 0.0
            for z in range(first, stop):
                store(beliefs, z, load(beliefs, z) / total)
                value = 0.0
                if free[i] and load(log_beliefs, z) > NO_WEIGHT:
                    value = load(targets, z) - load(log_beliefs, z)
                store(force, z, value)
                mean += load(beliefs, z) * value
            variance, largest = 0.0, 0.0
            for z in range(first, stop):
                if free[i] and load(log_beliefs, z) > NO_WEIGHT:
                    store(force, z, load(force, z) - mean)
                    variance += load(beliefs, z) * load(force, z) * load(force, z)
                    aim = fast_exp(load(targets, z) - top_target) / total_target
                    largest = max(largest, abs(load(beliefs, z) - aim))
            slopes[i] = -variance
            residuals[i] = largest


@kernel
def remember(
    offsets: LongArray,
    examples: LongArray,
    rows: LongArray,
    before: FloatArray,
    after: FloatArray,
    force_before: FloatArray,
    force_after: FloatArray,
    moves: FloatArray,
    changes: FloatArray,
) -> None:
    """Write the last move of some examples and its change of forces into a row of the history."""
    for k in range(len(examples)):
        row = rows[k]
        for z in range(offsets[examples[k]], offsets[examples[k] + 1]):
            is_out = after[z] == NO_WEIGHT
            moves[row, z] = 0.0 if is_out else after[z] - before[z]
            changes[row, z] = force_after[z] - force_before[z]


@kernel
def _centre(
    structure: Any, beliefs: FloatArray, begin: int, end: int, values: FloatArray, shift: int
) -> None:
    """Take the mean under the beliefs from the values of each variable.

    The value of unary entry ``z`` is ``values[z - shift]``.
    """
    for i in range(begin, end):
        mean = 0.0
        for z in range(structure.unary_offsets[i], structure.unary_offsets[i + 1]):
            mean += beliefs[z] * values[z - shift]
        for z in range(structure.unary_offsets[i], structure.unary_offsets[i + 1]):
            values[z - shift] -= mean


@kernel(fastmath=SAFE_FASTMATH)
def accelerated_targets(
    structure: Any,
    variable_offsets: LongArray,
    examples: LongArray,
    counts: LongArray,
    heads: LongArray,
    log_beliefs: FloatArray,
    beliefs: FloatArray,
    force: FloatArray,
    moves: FloatArray,
    changes: FloatArray,
    targets: FloatArray,
    slopes: FloatArray,
) -> None:
    """Where an accelerated step of length 1 would take some examples, and its slopes.

    Of example ``m`` the last ``counts[m]`` rows of the history count; the next one will go to row
    ``heads[m]``.  A slope that is not negative says that the move is of no use.
    """
    depth = len(moves)
    widest = 0
    for k in range(len(examples)):
        begin, end = variable_offsets[examples[k]], variable_offsets[examples[k] + 1]
        widest = max(widest, structure.unary_offsets[end] - structure.unary_offsets[begin])
    basis, rest, move = np.empty((depth, widest)), np.empty(widest), np.empty(widest)
    triangle, shares = np.empty((depth, depth)), np.empty(depth)
    rows = np.empty(depth, dtype=np.int64)
    for index in range(len(examples)):
        m = examples[index]
        begin, end = variable_offsets[m], variable_offsets[m + 1]
        first = structure.unary_offsets[begin]
        width = structure.unary_offsets[end] - first
        for z in range(width):
            rest[z] = sqrt(beliefs[first + z]) * force[first + z]
        used = 0
        for age in range(counts[m]):
            row = (heads[m] - 1 - age) % depth
            for z in range(width):
                move[z] = changes[row, first + z]
            _centre(structure, beliefs, begin, end, move, first)
            before = 0.0
            for z in range(width):
                value = sqrt(beliefs[first + z]) * move[z]
                basis[used, z] = value
                before += value * value
            for column in range(used):
                product = 0.0
                for z in range(width):
                    product += basis[column, z] * basis[used, z]
                for z in range(width):
                    basis[used, z] -= product * basis[column, z]
                triangle[column, used] = product
            after = 0.0
            for z in range(width):
                after += basis[used, z] * basis[used, z]
            if not after > DEPENDENT * DEPENDENT * before:
                continue
            length = sqrt(after)
            product = 0.0
            for z in range(width):
                basis[used, z] /= length
                product += basis[used, z] * rest[z]
            for z in range(width):
                rest[z] -= product * basis[used, z]
            triangle[used, used] = length
            shares[used] = product
            rows[used] = row
            used += 1
        for z in range(width):
            move[z] = force[first + z]
        for k in range(used - 1, -1, -1):
            for column in range(k + 1, used):
                shares[k] -= triangle[k, column] * shares[column]
            shares[k] /= triangle[k, k]
            for z in range(width):
                row = rows[k]
                move[z] -= shares[k] * (moves[row, first + z] + changes[row, first + z])
        _centre(structure, beliefs, begin, end, move, first)
        slope = 0.0
        for z in range(width):
            slope -= beliefs[first + z] * force[first + z] * move[z]
            # a label that is out stays out: -inf plus anything finite
            targets[first + z] = log_beliefs[first + z] + move[z]
        slopes[m] = slope if used > 0 else 0.0


# -- The algorithm -------------------------------------------------------------------------


#: Moves that are remembered; 5 to 20 need about the same number of steps on grids.
DEPTH = 10
#: Share of what the slope promises that a step has to keep (Armijo's rule).
SUFFICIENT = 1e-4
#: Free energies are sums with rounding errors of about this size, relative to their own.
ROUNDING = 1e-13
#: Length of an accelerated step that is tried when a full one fails.
SHORT = 0.25
#: A plain step shorter than this moves no belief by more than rounding.
SHORTEST = 1e-12
#: So many accelerated steps in a row that had to be given up mean that plain ones will crawl too;
#: where the descent converges, on grids of 400 variables, there are about ten in all.
PATIENCE = 20


class Points:
    """A point of every example: log-beliefs, targets, and what follows from them."""

    def __init__(self, log_unary: FloatArray) -> None:
        self.log_unary = log_unary
        self.targets = np.zeros_like(log_unary)
        self.beliefs = np.zeros_like(log_unary)
        self.force = np.zeros_like(log_unary)

    def copy_from(self, other: Points, offsets: LongArray, examples: LongArray) -> None:
        for name in ("log_unary", "targets", "beliefs", "force"):
            copy_ranges(getattr(other, name), getattr(self, name), offsets, examples)


def examine(
    batch: Batch, points: Points, free: BoolArray, examples: LongArray
) -> tuple[FloatArray, FloatArray]:
    """Slopes and residuals of some examples (0 for all others); fills in beliefs and forces."""
    graph = batch.graph
    slopes, residuals = np.zeros(graph.n_variables), np.zeros(graph.n_variables)
    forces(
        graph.structure,
        points.log_unary,
        points.targets,
        free,
        example_ranges(batch.variable_offsets, examples),
        points.beliefs,
        points.force,
        slopes,
        residuals,
    )
    return batch.sum_variables(slopes), batch.max_variables(residuals)


class Descent:
    """A descent in progress."""

    def __init__(
        self,
        batch: Batch,
        evaluate: Evaluate,
        log_unary: FloatArray,
        free: BoolArray,
        tol: float,
        examples: LongArray | None = None,
    ) -> None:
        self.batch = batch
        self.evaluate = evaluate
        self.free = free
        self.tol = tol
        self.entries = batch.graph.unary_offsets[batch.variable_offsets].astype(np.int64)
        self.current = Points(log_unary.copy())
        self.trial = Points(log_unary.copy())
        n_examples, n_entries = batch.n_examples, len(log_unary)
        chosen = np.arange(n_examples) if examples is None else examples
        self.start = np.full(n_examples, np.inf)
        self.start[chosen] = evaluate(self.current.log_unary, chosen, self.current.targets)
        self.energies = self.start.copy()
        self.slopes, self.residuals = examine(batch, self.current, free, chosen)
        self.moves = np.zeros((DEPTH, n_entries))
        self.changes = np.zeros((DEPTH, n_entries))
        self.counts = np.zeros(n_examples, dtype=np.int64)
        self.heads = np.zeros(n_examples, dtype=np.int64)
        self.plain_lengths = np.ones(n_examples)
        self.lengths = np.ones(n_examples)
        self.aims = np.zeros(n_entries)
        self.aim_slopes = np.zeros(n_examples)
        self.is_plain = np.ones(n_examples, dtype=np.bool_)
        self.n_steps = np.zeros(n_examples, dtype=np.int64)
        self.n_given_up = np.zeros(n_examples, dtype=np.int64)
        self.is_stale = np.zeros(n_examples, dtype=np.bool_)
        self.n_evaluations = 1
        self.active = np.flatnonzero(np.isfinite(self.energies) & (self.residuals > tol))
        self._aim(self.active)

    def _aim(self, examples: LongArray) -> None:
        """Choose where examples at a new point go next: accelerated if there is a history."""
        current = self.current
        accelerated_targets(
            self.batch.graph.structure,
            self.batch.variable_offsets,
            examples,
            self.counts,
            self.heads,
            current.log_unary,
            current.beliefs,
            current.force,
            self.moves,
            self.changes,
            self.aims,
            self.aim_slopes,
        )
        useful = self.aim_slopes[examples] < 0.0
        self.is_plain[examples] = ~useful
        self.lengths[examples[useful]] = 1.0
        self._aim_plainly(examples[~useful])

    def _aim_plainly(self, examples: LongArray) -> None:
        copy_ranges(self.current.targets, self.aims, self.entries, examples)
        self.is_plain[examples] = True
        self.aim_slopes[examples] = self.slopes[examples]
        self.lengths[examples] = self.plain_lengths[examples]
        self.counts[examples] = 0

    def step(self) -> None:
        """One evaluation of every example that is still under way."""
        batch, active = self.batch, self.active
        current, trial = self.current, self.trial
        step_examples(
            batch.graph.structure,
            batch.variable_offsets,
            active,
            self.lengths,
            current.log_unary,
            self.aims,
            self.free,
            trial.log_unary,
        )
        values = self.evaluate(trial.log_unary, active, trial.targets)
        self.n_evaluations += 1
        promised = SUFFICIENT * self.lengths[active] * self.aim_slopes[active]
        slack = ROUNDING * (1.0 + np.abs(self.energies[active]))
        lower = values <= self.energies[active] + promised + slack
        accepted, refused = active[lower], active[~lower]
        self.is_stale[active] = ~lower
        self._accept(accepted, values[lower])
        self._refuse(refused)
        trial.copy_from(current, self.entries, refused)
        self.current, self.trial = trial, current
        self._aim(accepted)
        stays = (self.residuals[active] > self.tol) & (self.plain_lengths[active] > SHORTEST)
        stays &= self.n_given_up[active] < PATIENCE
        self.trial.copy_from(self.current, self.entries, active[~stays])
        self.active = active[stays]

    def _accept(self, examples: LongArray, values: FloatArray) -> None:
        slopes, residuals = examine(self.batch, self.trial, self.free, examples)
        remember(
            self.entries,
            examples,
            self.heads[examples],
            self.current.log_unary,
            self.trial.log_unary,
            self.current.force,
            self.trial.force,
            self.moves,
            self.changes,
        )
        self.heads[examples] = (self.heads[examples] + 1) % DEPTH
        self.counts[examples] = np.minimum(self.counts[examples] + 1, DEPTH)
        self.energies[examples] = np.minimum(values, self.energies[examples])
        self.slopes[examples] = slopes[examples]
        self.residuals[examples] = residuals[examples]
        self.n_steps[examples] += 1
        grown = examples[self.is_plain[examples]]
        self.plain_lengths[grown] = np.minimum(1.0, GROWTH * self.plain_lengths[grown])
        self.n_given_up[examples[~self.is_plain[examples]]] = 0

    def _refuse(self, examples: LongArray) -> None:
        plain = self.is_plain[examples]
        cut = examples[plain]
        self.plain_lengths[cut] *= CUT
        self.lengths[cut] = self.plain_lengths[cut]
        others = examples[~plain]
        full = self.lengths[others] == 1.0
        self.lengths[others[full]] = SHORT
        self.n_given_up[others[~full]] += 1
        self._aim_plainly(others[~full])

    def result(self) -> Relaxed:
        return Relaxed(
            log_unary=self.current.log_unary,
            free_energies=self.energies,
            start_free_energies=self.start,
            residuals=self.residuals,
            converged_examples=(self.residuals <= self.tol) & np.isfinite(self.energies),
            n_steps=self.n_steps,
            refused=np.flatnonzero(self.is_stale),
            n_evaluations=self.n_evaluations,
        )


def descend(
    batch: Batch,
    evaluate: Evaluate,
    log_unary: FloatArray,
    free: BoolArray,
    max_iter: int,
    tol: float = 1e-8,
    examples: LongArray | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Relaxed:
    """Steps until no full one would move a belief of any example by more than ``tol``.

    ``examples`` (sorted) are those that may move; the figures of all others mean nothing.

    Free energies never rise by more than the rounding of their own sums, and those that are
    reported not at all.
    """
    descent = Descent(batch, evaluate, log_unary, free, tol, examples)
    while len(descent.active) and descent.n_evaluations <= max_iter:
        descent.step()
        if progress is not None:
            progress(descent.n_evaluations - 1, float(descent.residuals.max(initial=0.0)))
    return descent.result()
