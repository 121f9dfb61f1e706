"""Newton's descent on Bethe's free energy: a few long steps where gradients crawl.

Strong couplings tie neighbours together so tightly that a step along the gradient must be tiny;
Newton's steps (`kernels.stiffness`) are not held back by this.  Each example has its own damping
(Levenberg and Marquardt's), which rises when a step would raise the free energy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.batch import Batch
from fieldfit.inference._bethe_energy import BetheEnergy
from fieldfit.inference._descent import ROUNDING, SUFFICIENT, Points, examine
from fieldfit.inference._message_run import Progress
from fieldfit.inference._relaxation import Relaxed
from fieldfit.kernels.relaxation import step_examples
from fieldfit.kernels.scaling import GENERAL
from fieldfit.kernels.springs import Springs, fill_springs
from fieldfit.kernels.stiffness import newton_targets

__all__ = ["empty_springs", "newton_descend", "newton_memory"]

FloatArray = NDArray[np.float64]
LongArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: Damping to begin with, and what it is multiplied by after a step that was refused or taken.
FIRST_DAMPING = 1.0
RISE = 6.0
FALL = 0.25
#: Below this it is as good as none; above, steps are shorter than rounding.
LEAST_DAMPING = 1e-8
LARGEST_DAMPING = 1e16
#: Share of the force that conjugate gradients may leave, by how far a full step would move beliefs:
#: convergence is then quadratic in the end and cheap at first.
FORCING = 0.1
MOST_ACCURATE = 1e-10
LEAST_ACCURATE = 1e-2


def newton_descend(
    batch: Batch,
    energy: BetheEnergy,
    log_unary: FloatArray,
    free: BoolArray,
    max_iter: int,
    tol: float,
    examples: LongArray,
    progress: Progress | None = None,
) -> Relaxed:
    """Damped Newton steps of some examples; the figures of all others mean nothing."""
    graph = batch.graph
    entries = graph.unary_offsets[batch.variable_offsets].astype(np.int64)
    current, trial = Points(log_unary.copy()), Points(log_unary.copy())
    start = np.full(batch.n_examples, np.inf)
    start[examples] = energy(current.log_unary, examples, current.targets)
    energies = start.copy()
    _, residuals = examine(batch, current, free, examples)
    springs = empty_springs(energy)
    aims, slopes = np.zeros_like(log_unary), np.zeros(batch.n_examples)
    damping = np.full(batch.n_examples, FIRST_DAMPING)
    lengths = np.ones(batch.n_examples)
    n_steps = np.zeros(batch.n_examples, dtype=np.int64)
    is_stale = np.zeros(batch.n_examples, dtype=np.bool_)
    active = examples[np.isfinite(energies[examples]) & (residuals[examples] > tol)]
    fresh = active
    n_evaluations = 1
    while len(active) and n_evaluations <= max_iter:
        if len(fresh):
            fill_springs(
                graph.structure,
                energy.tables(),
                current.beliefs,
                batch.factor_offsets,
                fresh,
                springs,
            )
        newton_targets(
            graph.structure,
            batch.variable_offsets,
            batch.factor_offsets,
            active,
            damping,
            np.clip(FORCING * residuals, MOST_ACCURATE, LEAST_ACCURATE),
            springs,
            current.log_unary,
            current.beliefs,
            current.force,
            free,
            aims,
            slopes,
        )
        step_examples(
            graph.structure,
            batch.variable_offsets,
            active,
            lengths,
            current.log_unary,
            aims,
            free,
            trial.log_unary,
        )
        values = energy(trial.log_unary, active, trial.targets)
        n_evaluations += 1
        slack = ROUNDING * (1.0 + np.abs(energies[active]))
        lower = values <= energies[active] + SUFFICIENT * np.minimum(slopes[active], 0.0) + slack
        fresh, refused = active[lower], active[~lower]
        is_stale[active] = ~lower
        energies[fresh] = np.minimum(values[lower], energies[fresh])
        n_steps[fresh] += 1
        damping[fresh] = np.maximum(FALL * damping[fresh], LEAST_DAMPING)
        damping[refused] *= RISE
        _, changed = examine(batch, trial, free, fresh)
        residuals[fresh] = changed[fresh]
        trial.copy_from(current, entries, refused)
        current, trial = trial, current
        stays = (residuals[active] > tol) & (damping[active] < LARGEST_DAMPING)
        trial.copy_from(current, entries, active[~stays])
        active, fresh = active[stays], fresh[np.isin(fresh, active[stays])]
        if progress is not None:
            progress(n_evaluations - 1, float(residuals[examples].max(initial=0.0)))
    return Relaxed(
        log_unary=current.log_unary,
        free_energies=energies,
        start_free_energies=start,
        residuals=residuals,
        converged_examples=(residuals <= tol) & np.isfinite(energies),
        n_steps=n_steps,
        refused=np.flatnonzero(is_stale),
        n_evaluations=n_evaluations,
    )


def newton_memory(energy: BetheEnergy) -> float:
    """Bytes that the second derivative takes."""
    return 8.0 * float(_sizes(energy).sum())


def empty_springs(energy: BetheEnergy) -> Springs:
    """Room for the second derivative."""
    kinds, sizes = energy.model.kinds, _sizes(energy)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    inverses = np.zeros(int(offsets[-1]))
    return Springs(kinds, np.zeros(len(kinds)), np.zeros(len(kinds)), inverses, offsets)


def _sizes(energy: BetheEnergy) -> LongArray:
    """Entries of each factor's matrix; binary pairs have none."""
    graph = energy.batch.graph
    labels = np.diff(graph.message_offsets[graph.scope_offsets]).astype(np.int64)
    return np.where(energy.model.kinds == GENERAL, labels * labels, 0)
