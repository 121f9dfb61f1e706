"""Descent of beliefs to a stationary point of a free energy: accelerated steps, never uphill.

The steps of `_relaxation`, with Anderson's acceleration (`kernels.acceleration`).  An accelerated
step is taken if it lowers the free energy as much as its slope promises, to a small share; if not,
the history is forgotten and a plain step follows, whose length is cut until it does.  Every
example of a batch has its own history and lengths; those that have come to rest are left alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.batch import Batch
from fieldfit.inference._relaxation import CUT, GROWTH, Evaluate, Relaxed, example_ranges
from fieldfit.kernels.acceleration import accelerated_targets, forces, remember
from fieldfit.kernels.relaxation import copy_ranges, step_examples

__all__ = ["Descent", "Points", "descend", "examine"]

FloatArray = NDArray[np.float64]
LongArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

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
