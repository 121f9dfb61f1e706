"""Relaxation: beliefs of variables that slide down a free energy, example by example.

A free energy ``F(q)`` of beliefs of variables has *targets*: ``dF/dq_i = log q_i - target_i`` up to
a constant for each variable (mean field: the usual update; Bethe: see `kernels.scaling`).  A step

    log q_i <- (1 - t) log q_i + t target_i,   normalised,

is a natural gradient step of length ``t``; at ``t = 1`` every belief jumps to its target.  Every
example of a batch has its own length, which is cut when its free energy would rise and grows when
it has fallen, so that no example ever gets worse and none depends on its company.

Reference: Welling and Sutton, "Learning in Markov random fields with contrastive free energies",
AISTATS 2005, section 5: damping adapted so that the free energy never rises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.batch import Batch
from fieldfit.kernels.relaxation import copy_ranges, full_step_residuals, step_examples

__all__ = ["Evaluate", "Relaxed", "example_ranges", "relax", "residuals_by_example"]

FloatArray = NDArray[np.float64]
LongArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: A length that did not lower the free energy is multiplied by this, one that did by `GROWTH`.
CUT = 0.5
GROWTH = 1.1
#: A step shorter than this moves no belief by more than rounding does: the example has settled.
SHORTEST = 1e-9


class Evaluate(Protocol):
    """A free energy of the examples of a batch, as a function of flat log-beliefs."""

    def __call__(
        self, log_unary: FloatArray, examples: LongArray, targets: FloatArray
    ) -> FloatArray:
        """Free energies of these examples, in their order, and their entries of ``targets``.

        Entries of other examples may be left as they are or be written; nothing else may be
        changed.  ``examples`` is sorted.
        """
        ...


@dataclass(frozen=True)
class Relaxed:
    """Where a relaxation ended: one entry for each example, and the beliefs of all variables.

    ``refused`` are the examples whose last evaluation was of a point that was not taken.
    """

    log_unary: FloatArray
    free_energies: FloatArray
    start_free_energies: FloatArray
    residuals: FloatArray
    converged_examples: BoolArray
    n_steps: LongArray
    refused: LongArray
    n_evaluations: int


def relax(
    batch: Batch,
    evaluate: Evaluate,
    log_unary: FloatArray,
    free: BoolArray,
    n_steps: int,
    tol: float = 1e-8,
) -> Relaxed:
    """``n_steps`` steps of each example from ``log_unary``, none of which raises its free energy.

    Variables that are not ``free`` keep their beliefs.  An example stops early when a full step
    would move none of its beliefs by more than rounding.
    """
    graph = batch.graph
    entries = graph.unary_offsets[batch.variable_offsets].astype(np.int64)
    current, trial = log_unary.copy(), log_unary.copy()
    targets, trial_targets = np.empty_like(current), np.empty_like(current)
    everyone = np.arange(batch.n_examples)
    start = evaluate(current, everyone, targets)
    energies = start.copy()
    lengths = np.ones(batch.n_examples)
    taken = np.zeros(batch.n_examples, dtype=np.int64)
    movable = np.zeros(batch.n_examples, dtype=np.bool_)
    movable[batch.variable_examples()[free]] = True
    active = np.flatnonzero(movable & np.isfinite(energies)) if n_steps else everyone[:0]
    is_stale = np.zeros(batch.n_examples, dtype=np.bool_)
    n_evaluations = 1
    while len(active):
        step_examples(
            graph.structure,
            batch.variable_offsets,
            active,
            lengths,
            current,
            targets,
            free,
            trial,
        )
        values = evaluate(trial, active, trial_targets)
        n_evaluations += 1
        lower = values <= energies[active]
        refused, accepted = active[~lower], active[lower]
        energies[accepted] = values[lower]
        is_stale[active] = ~lower
        taken[accepted] += 1
        lengths[accepted] = np.minimum(1.0, GROWTH * lengths[accepted])
        lengths[refused] *= CUT
        # the trial becomes the current point; who has refused it or stops is copied over
        for old, new in ((current, trial), (targets, trial_targets)):
            copy_ranges(old, new, entries, refused)
        current, trial, targets, trial_targets = trial, current, trial_targets, targets
        stays = (taken[active] < n_steps) & (lengths[active] > SHORTEST)
        for old, new in ((current, trial), (targets, trial_targets)):
            copy_ranges(old, new, entries, active[~stays])
        active = active[stays]
    residuals = residuals_by_example(batch, current, targets, free)
    return Relaxed(
        log_unary=current,
        free_energies=energies,
        start_free_energies=start,
        residuals=residuals,
        converged_examples=(residuals <= tol) & np.isfinite(energies),
        n_steps=taken,
        refused=np.flatnonzero(is_stale),
        n_evaluations=n_evaluations,
    )


def residuals_by_example(
    batch: Batch, log_unary: FloatArray, targets: FloatArray, free: BoolArray
) -> FloatArray:
    """How far a full step would move a belief of each example, at most."""
    graph = batch.graph
    residuals = np.zeros(graph.n_variables)
    full_step_residuals(graph.structure, log_unary, targets, free, residuals)
    return batch.max_variables(residuals)


def example_ranges(offsets: LongArray, examples: LongArray) -> LongArray:
    """Ranges ``[begin, end)`` of sorted examples; neighbours are joined, so there are few."""
    begin, end = offsets[examples], offsets[examples + 1]
    if len(examples) == 0:
        return np.zeros((0, 2), dtype=np.int64)
    breaks = np.flatnonzero(begin[1:] != end[:-1])
    starts = np.concatenate([begin[:1], begin[1:][breaks]])
    stops = np.concatenate([end[:-1][breaks], end[-1:]])
    return np.stack([starts, stops], axis=1).astype(np.int64)
