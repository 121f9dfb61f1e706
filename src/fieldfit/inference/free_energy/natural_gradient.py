"""Natural gradient descent (mirror descent) on a free energy of the beliefs of variables.

A free energy ``F(q)`` of beliefs of variables has *targets*: ``dF/dq_i = log q_i - target_i`` up to
a constant for each variable (mean field: the coordinate update; Bethe: see `binary_pair_fitting`).
A step

    log q_i <- (1 - t) log q_i + t target_i,   normalised,

is a natural gradient step of length ``t``; at ``t = 1`` every belief becomes its target.  Every
example of a batch has its own step length, which is cut when its free energy would rise and grows
when it has fallen, so that no example ever gets worse, and each is what it would be alone.

Reference: Welling and Sutton, "Learning in Markov random fields with contrastive free energies",
AISTATS 2005, section 5: damping adapted so that the free energy never rises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fieldfit._typing import BoolArray, FloatArray, LongArray
from fieldfit.graph.batch import Batch
from fieldfit.graph.structure import Structure
from fieldfit.inference.free_energy.binary_pair_fitting import all_binary
from fieldfit.inference.messages.message_arrays import NO_WEIGHT
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH, fast_exp, fast_log, load, store

__all__ = [
    "DescentResult",
    "Evaluate",
    "copy_ranges",
    "example_ranges",
    "full_step_residuals",
    "natural_gradient_steps",
    "residuals_by_example",
    "step_examples",
    "sum_examples",
]

# -- kernels --------------------------------------------------------------------------------------


@kernel(fastmath=SAFE_FASTMATH)
def step_examples(
    structure: Structure,
    offsets: LongArray,
    examples: LongArray,
    lengths: FloatArray,
    log_beliefs: FloatArray,
    targets: FloatArray,
    free: BoolArray,
    stepped: FloatArray,
) -> None:
    """Log-beliefs of some examples after a step of their length; variables not free stay put.

    ``offsets`` say where the variables of each example begin, ``lengths`` are by example.
    """
    for k in range(len(examples)):
        begin, end = offsets[examples[k]], offsets[examples[k] + 1]
        length = lengths[examples[k]]
        if all_binary(structure.cardinalities, begin, end):
            base = load(structure.unary_offsets, begin)
            for i in range(end - begin):
                z = base + 2 * i
                log_0, log_1 = load(log_beliefs, z), load(log_beliefs, z + 1)
                old = log_1 - log_0
                new = load(targets, z + 1) - load(targets, z)
                odds = old + length * (new - old)
                size = abs(odds)
                above = -fast_log(1.0 + fast_exp(-size))
                below = above - size
                moves = free[begin + i] & (abs(old) < np.inf)
                step_0, step_1 = below if odds > 0.0 else above, above if odds > 0.0 else below
                store(stepped, z, step_0 if moves else log_0)
                store(stepped, z + 1, step_1 if moves else log_1)
            continue
        for i in range(begin, end):
            first, stop = load(structure.unary_offsets, i), load(structure.unary_offsets, i + 1)
            if not free[i]:
                for z in range(first, stop):
                    store(stepped, z, load(log_beliefs, z))
                continue
            top = NO_WEIGHT
            for z in range(first, stop):
                old = load(log_beliefs, z)
                value = old + length * (load(targets, z) - old) if old > NO_WEIGHT else NO_WEIGHT
                store(stepped, z, value)
                top = max(top, value)
            total = 0.0
            for z in range(first, stop):
                total += fast_exp(load(stepped, z) - top)
            top += fast_log(total)
            for z in range(first, stop):
                store(stepped, z, load(stepped, z) - top)


@kernel(fastmath=SAFE_FASTMATH)
def full_step_residuals(
    structure: Structure,
    log_beliefs: FloatArray,
    targets: FloatArray,
    free: BoolArray,
    residuals: FloatArray,
) -> None:
    """For each variable how far a full step would move its belief."""
    n_variables = len(free)
    if all_binary(structure.cardinalities, 0, n_variables):
        for i in range(n_variables):
            old = load(log_beliefs, 2 * i + 1) - load(log_beliefs, 2 * i)
            new = load(targets, 2 * i + 1) - load(targets, 2 * i)
            small, small_new = fast_exp(-abs(old)), fast_exp(-abs(new))
            belief, target = small / (1.0 + small), small_new / (1.0 + small_new)
            # both are the smaller belief: of the same label, or of one and the other
            opposite = 1.0 - target
            distance = abs(belief - (target if (old > 0.0) == (new > 0.0) else opposite))
            moves = free[i] & (abs(old) < np.inf)
            store(residuals, i, distance if moves else 0.0)
        return
    for i in range(n_variables):
        residuals[i] = 0.0
        if not free[i]:
            continue
        first, stop = structure.unary_offsets[i], structure.unary_offsets[i + 1]
        top, total, top_target, total_target = NO_WEIGHT, 0.0, NO_WEIGHT, 0.0
        for z in range(first, stop):
            top = max(top, load(log_beliefs, z))
            top_target = max(top_target, load(targets, z))
        for z in range(first, stop):
            total += fast_exp(load(log_beliefs, z) - top)
            total_target += fast_exp(load(targets, z) - top_target)
        largest = 0.0
        for z in range(first, stop):
            belief = fast_exp(load(log_beliefs, z) - top) / total
            target = fast_exp(load(targets, z) - top_target) / total_target
            largest = max(largest, abs(belief - target))
        residuals[i] = largest


@kernel
def sum_examples(
    values: FloatArray, offsets: LongArray, examples: LongArray, sums: FloatArray
) -> None:
    """Add to ``sums[k]`` the values of example ``examples[k]``, in their order."""
    for k in range(len(examples)):
        total = 0.0
        for z in range(offsets[examples[k]], offsets[examples[k] + 1]):
            total += values[z]
        sums[k] += total


@kernel
def copy_ranges(
    source: FloatArray, target: FloatArray, offsets: LongArray, examples: LongArray
) -> None:
    """Copy the entries of some examples."""
    for k in range(len(examples)):
        for z in range(offsets[examples[k]], offsets[examples[k] + 1]):
            store(target, z, load(source, z))


# -- descent --------------------------------------------------------------------------------------


#: A step length that raised the free energy is multiplied by `CUT`, one that did not by `GROWTH`.
CUT = 0.5
GROWTH = 1.1
#: A step shorter than this moves no belief by more than rounding does: the example stops.
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
class DescentResult:
    """Where a descent ended: one entry for each example, and the beliefs of all variables.

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


def natural_gradient_steps(
    batch: Batch,
    evaluate: Evaluate,
    log_unary: FloatArray,
    free: BoolArray,
    n_steps: int,
    tol: float = 1e-8,
) -> DescentResult:
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
        # the trial becomes the current point; examples that refused it or stop are copied over
        for old, new in ((current, trial), (targets, trial_targets)):
            copy_ranges(old, new, entries, refused)
        current, trial, targets, trial_targets = trial, current, trial_targets, targets
        stays = (taken[active] < n_steps) & (lengths[active] > SHORTEST)
        for old, new in ((current, trial), (targets, trial_targets)):
            copy_ranges(old, new, entries, active[~stays])
        active = active[stays]
    residuals = residuals_by_example(batch, current, targets, free)
    return DescentResult(
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
