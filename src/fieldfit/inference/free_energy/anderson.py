"""Anderson acceleration of natural gradient descent on a free energy, safeguarded.

The fixed-point residual of a variable is its negative natural gradient ``f_i = target_i - log q_i``
with mean zero under ``q_i`` (`natural_gradient`).  From the last few steps ``dl_k`` of log-beliefs
and the changes ``df_k`` of residuals that came with them, the accelerated step is

    f - sum_k g_k (dl_k + df_k),     g = argmin | f - sum_k g_k df_k |

in the norm ``sum_i <q_i, f_i^2>``, which is that of the natural gradient.  The small least-squares
problem is solved by Gram and Schmidt's method, newest change first; one that is nearly a
combination of newer ones is left out.

An accelerated step is taken if it lowers the free energy by a small fraction of what its slope
predicts (Armijo's rule); if not, the history is dropped and a plain step follows, whose length is
cut until it does.  Every example of a batch has its own history and step lengths; those that have
converged are left alone.

References: Anderson, "Iterative procedures for nonlinear integral equations", J. ACM 12 (1965);
Walker and Ni, "Anderson acceleration for fixed-point iterations", SIAM J. Numerical Analysis 49
(2011).
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np

from fieldfit._typing import BoolArray, FloatArray, LongArray
from fieldfit.graph.batch import Batch
from fieldfit.graph.structure import Structure
from fieldfit.inference.free_energy.natural_gradient import (
    CUT,
    GROWTH,
    DescentResult,
    Evaluate,
    copy_ranges,
    example_ranges,
    step_examples,
)
from fieldfit.inference.messages.message_arrays import NO_WEIGHT
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH, fast_exp, load, store

__all__ = [
    "Descent",
    "Points",
    "accelerated_candidates",
    "descend",
    "examine",
    "negative_gradients",
    "remember",
]

# -- kernels --------------------------------------------------------------------------------------

#: A change of residuals of which newer ones leave no more than this fraction is left out.
DEPENDENT = 1e-7


@kernel(fastmath=SAFE_FASTMATH)
def negative_gradients(
    structure: Structure,
    log_beliefs: FloatArray,
    targets: FloatArray,
    free: BoolArray,
    ranges: LongArray,
    beliefs: FloatArray,
    negative_gradient: FloatArray,
    slopes: FloatArray,
    residuals: FloatArray,
) -> None:
    """Beliefs and negative gradients in some ranges of variables, and two numbers for each.

    The slope, minus the variance of the gradient, is how fast a step along it changes the free
    energy; the residual is how far a full step steps a belief.
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
                store(negative_gradient, z, value)
                mean += load(beliefs, z) * value
            variance, largest = 0.0, 0.0
            for z in range(first, stop):
                if free[i] and load(log_beliefs, z) > NO_WEIGHT:
                    store(negative_gradient, z, load(negative_gradient, z) - mean)
                    variance += (
                        load(beliefs, z) * load(negative_gradient, z) * load(negative_gradient, z)
                    )
                    target = fast_exp(load(targets, z) - top_target) / total_target
                    largest = max(largest, abs(load(beliefs, z) - target))
            slopes[i] = -variance
            residuals[i] = largest


@kernel
def remember(
    offsets: LongArray,
    examples: LongArray,
    rows: LongArray,
    before: FloatArray,
    after: FloatArray,
    gradient_before: FloatArray,
    gradient_after: FloatArray,
    steps: FloatArray,
    changes: FloatArray,
) -> None:
    """Write the last step of some examples and its change of gradients into the history."""
    for k in range(len(examples)):
        row = rows[k]
        for z in range(offsets[examples[k]], offsets[examples[k] + 1]):
            is_out = after[z] == NO_WEIGHT
            steps[row, z] = 0.0 if is_out else after[z] - before[z]
            changes[row, z] = gradient_after[z] - gradient_before[z]


@kernel
def _centre(
    structure: Structure, beliefs: FloatArray, begin: int, end: int, values: FloatArray, shift: int
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
def accelerated_candidates(
    structure: Structure,
    variable_offsets: LongArray,
    examples: LongArray,
    counts: LongArray,
    heads: LongArray,
    log_beliefs: FloatArray,
    beliefs: FloatArray,
    negative_gradient: FloatArray,
    steps: FloatArray,
    changes: FloatArray,
    candidates: FloatArray,
    slopes: FloatArray,
) -> None:
    """Where an accelerated step of length 1 would take some examples, and its slopes.

    Of example ``m`` the last ``counts[m]`` rows of the history count; the next one will go to row
    ``heads[m]``.  A slope that is not negative says that the step is of no use.
    """
    depth = len(steps)
    widest = 0
    for k in range(len(examples)):
        begin, end = variable_offsets[examples[k]], variable_offsets[examples[k] + 1]
        widest = max(widest, structure.unary_offsets[end] - structure.unary_offsets[begin])
    basis, residual, step = np.empty((depth, widest)), np.empty(widest), np.empty(widest)
    triangle, coefficients = np.empty((depth, depth)), np.empty(depth)
    rows = np.empty(depth, dtype=np.int64)
    for index in range(len(examples)):
        m = examples[index]
        begin, end = variable_offsets[m], variable_offsets[m + 1]
        first = structure.unary_offsets[begin]
        width = structure.unary_offsets[end] - first
        for z in range(width):
            residual[z] = sqrt(beliefs[first + z]) * negative_gradient[first + z]
        used = 0
        for age in range(counts[m]):
            row = (heads[m] - 1 - age) % depth
            for z in range(width):
                step[z] = changes[row, first + z]
            _centre(structure, beliefs, begin, end, step, first)
            before = 0.0
            for z in range(width):
                value = sqrt(beliefs[first + z]) * step[z]
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
                product += basis[used, z] * residual[z]
            for z in range(width):
                residual[z] -= product * basis[used, z]
            triangle[used, used] = length
            coefficients[used] = product
            rows[used] = row
            used += 1
        for z in range(width):
            step[z] = negative_gradient[first + z]
        for k in range(used - 1, -1, -1):
            for column in range(k + 1, used):
                coefficients[k] -= triangle[k, column] * coefficients[column]
            coefficients[k] /= triangle[k, k]
            for z in range(width):
                row = rows[k]
                step[z] -= coefficients[k] * (steps[row, first + z] + changes[row, first + z])
        _centre(structure, beliefs, begin, end, step, first)
        slope = 0.0
        for z in range(width):
            slope -= beliefs[first + z] * negative_gradient[first + z] * step[z]
            # a label that is out stays out: -inf plus anything finite
            candidates[first + z] = log_beliefs[first + z] + step[z]
        slopes[m] = slope if used > 0 else 0.0


# -- descent --------------------------------------------------------------------------------------


#: Steps that are remembered; 5 to 20 need about the same number of steps on grids.
DEPTH = 10
#: Fraction of the predicted decrease that a step has to reach (Armijo's rule).
SUFFICIENT = 1e-4
#: Free energies are sums with rounding errors of about this size, relative to their own.
ROUNDING = 1e-13
#: Length of an accelerated step that is tried when a full one fails.
SHORT = 0.25
#: A plain step shorter than this moves no belief by more than rounding.
SHORTEST = 1e-12
#: So many accelerated steps in a row that had to be given up mean that plain ones are slow too;
#: where the descent converges, on grids of 400 variables, there are about ten in all.
PATIENCE = 20


class Points:
    """A point of every example: log-beliefs, targets, and what follows from them."""

    def __init__(self, log_unary: FloatArray) -> None:
        self.log_unary = log_unary
        self.targets = np.zeros_like(log_unary)
        self.beliefs = np.zeros_like(log_unary)
        self.negative_gradient = np.zeros_like(log_unary)

    def copy_from(self, other: Points, offsets: LongArray, examples: LongArray) -> None:
        for name in ("log_unary", "targets", "beliefs", "negative_gradient"):
            copy_ranges(getattr(other, name), getattr(self, name), offsets, examples)


def examine(
    batch: Batch, points: Points, free: BoolArray, examples: LongArray
) -> tuple[FloatArray, FloatArray]:
    """Slopes and residuals of some examples (0 for all others); fills in beliefs and gradients."""
    graph = batch.graph
    slopes, residuals = np.zeros(graph.n_variables), np.zeros(graph.n_variables)
    negative_gradients(
        graph.structure,
        points.log_unary,
        points.targets,
        free,
        example_ranges(batch.variable_offsets, examples),
        points.beliefs,
        points.negative_gradient,
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
        self.steps = np.zeros((DEPTH, n_entries))
        self.changes = np.zeros((DEPTH, n_entries))
        self.counts = np.zeros(n_examples, dtype=np.int64)
        self.heads = np.zeros(n_examples, dtype=np.int64)
        self.plain_lengths = np.ones(n_examples)
        self.lengths = np.ones(n_examples)
        self.candidates = np.zeros(n_entries)
        self.candidate_slopes = np.zeros(n_examples)
        self.is_plain = np.ones(n_examples, dtype=np.bool_)
        self.n_steps = np.zeros(n_examples, dtype=np.int64)
        self.n_given_up = np.zeros(n_examples, dtype=np.int64)
        self.is_stale = np.zeros(n_examples, dtype=np.bool_)
        self.n_evaluations = 1
        self.active = np.flatnonzero(np.isfinite(self.energies) & (self.residuals > tol))
        self._choose(self.active)

    def _choose(self, examples: LongArray) -> None:
        """Choose where examples at a new point go next: accelerated if there is a history."""
        current = self.current
        accelerated_candidates(
            self.batch.graph.structure,
            self.batch.variable_offsets,
            examples,
            self.counts,
            self.heads,
            current.log_unary,
            current.beliefs,
            current.negative_gradient,
            self.steps,
            self.changes,
            self.candidates,
            self.candidate_slopes,
        )
        useful = self.candidate_slopes[examples] < 0.0
        self.is_plain[examples] = ~useful
        self.lengths[examples[useful]] = 1.0
        self._choose_plain(examples[~useful])

    def _choose_plain(self, examples: LongArray) -> None:
        copy_ranges(self.current.targets, self.candidates, self.entries, examples)
        self.is_plain[examples] = True
        self.candidate_slopes[examples] = self.slopes[examples]
        self.lengths[examples] = self.plain_lengths[examples]
        self.counts[examples] = 0

    def step(self) -> None:
        """One evaluation of every active example."""
        batch, active = self.batch, self.active
        current, trial = self.current, self.trial
        step_examples(
            batch.graph.structure,
            batch.variable_offsets,
            active,
            self.lengths,
            current.log_unary,
            self.candidates,
            self.free,
            trial.log_unary,
        )
        values = self.evaluate(trial.log_unary, active, trial.targets)
        self.n_evaluations += 1
        predicted = SUFFICIENT * self.lengths[active] * self.candidate_slopes[active]
        slack = ROUNDING * (1.0 + np.abs(self.energies[active]))
        lower = values <= self.energies[active] + predicted + slack
        accepted, refused = active[lower], active[~lower]
        self.is_stale[active] = ~lower
        self._accept(accepted, values[lower])
        self._refuse(refused)
        trial.copy_from(current, self.entries, refused)
        self.current, self.trial = trial, current
        self._choose(accepted)
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
            self.current.negative_gradient,
            self.trial.negative_gradient,
            self.steps,
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
        self._choose_plain(others[~full])

    def result(self) -> DescentResult:
        return DescentResult(
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
) -> DescentResult:
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
