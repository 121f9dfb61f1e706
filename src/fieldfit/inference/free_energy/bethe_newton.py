"""Newton's descent on Bethe's free energy: a few long steps where gradients crawl.

Strong couplings tie neighbours together so tightly that a step along the gradient must be tiny;
Newton's steps (`kernels.stiffness`) are not held back by this.  Each example has its own damping
(Levenberg and Marquardt's), which rises when a step would raise the free energy.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from fieldfit._typing import BoolArray, ByteArray, FloatArray, IntArray, LongArray
from fieldfit.graph.batch import Batch
from fieldfit.graph.structure import next_row
from fieldfit.inference.base import Progress
from fieldfit.inference.free_energy.anderson import ROUNDING, SUFFICIENT, Points, examine
from fieldfit.inference.free_energy.bethe_free_energy import BetheEnergy
from fieldfit.inference.free_energy.binary_pair_fitting import GENERAL, PAIR
from fieldfit.inference.free_energy.natural_gradient import Relaxed, step_examples
from fieldfit.inference.messages.message_arrays import NO_WEIGHT
from fieldfit.numeric.compile import kernel

__all__ = [
    "Springs",
    "empty_springs",
    "fill_springs",
    "newton_descend",
    "newton_memory",
    "newton_targets",
]

# -- Stiffness -----------------------------------------------------------------------------
# Newton's steps on Bethe's free energy as a function of beliefs of variables (see `springs`).
#
# A step solves ``(H + damping) z = force`` in the coordinates of the natural gradient, by
# conjugate gradients, up to the first direction of negative curvature (Steihaug's rule).
#
# Reference: Steihaug, "The conjugate gradient method and trust regions in large scale
# optimization", SIAM J. Numerical Analysis 20 (1983).


#: Log-beliefs move by at most this in one step: the quadratic model knows nothing of larger
#: changes.
LONGEST = 5.0
#: Steps of conjugate gradients for each label: rounding delays them when springs are stiff.
STEPS_PER_LABEL = 5
#: What the preconditioner takes a label without springs for.
LEAST_STIFFNESS = 1e-3
#: A direction has negative curvature if it is below this share of its length (rounding).
FLAT = 1e-14


@kernel
def _pull_pair(
    springs: Any,
    factor: int,
    left: int,
    right: int,
    widths: FloatArray,
    z: FloatArray,
    pull: FloatArray,
) -> None:
    """Along ``(-sqrt q(1), sqrt q(0))``, the only direction that a binary variable has."""
    own = widths[left] * z[left + 1] - widths[left + 1] * z[left]
    other = widths[right] * z[right + 1] - widths[right + 1] * z[right]
    size, sign = abs(springs.stiff[factor]), 1.0 if springs.stiff[factor] >= 0.0 else -1.0
    stretch = size * (own - sign * other)
    own = springs.soft[factor] * own + stretch
    other = springs.soft[factor] * other - sign * stretch
    pull[left] -= widths[left + 1] * own
    pull[left + 1] += widths[left] * own
    pull[right] -= widths[right + 1] * other
    pull[right + 1] += widths[right] * other


@kernel
def _pull(
    structure: Any,
    springs: Any,
    begin: int,
    end: int,
    shift: int,
    shifts: FloatArray,
    widths: FloatArray,
    z: FloatArray,
    pull: FloatArray,
    scratch: FloatArray,
) -> None:
    """``pull = (H + damping) z`` for the factors ``begin`` to ``end`` of one example.

    ``shifts`` is ``1 - d_i + damping``; unary entry ``x`` is at ``x - shift`` in all vectors.
    """
    for x in range(len(z)):
        pull[x] = shifts[x] * z[x]
    for factor in range(begin, end):
        first = structure.scope_offsets[factor]
        if springs.kinds[factor] == PAIR:
            left = structure.unary_offsets[structure.slot_variables[first]] - shift
            right = structure.unary_offsets[structure.slot_variables[first + 1]] - shift
            _pull_pair(springs, factor, left, right, widths, z, pull)
        elif springs.kinds[factor] == GENERAL:
            stop = structure.scope_offsets[factor + 1]
            base = structure.message_offsets[first]
            size = structure.message_offsets[stop] - base
            for slot in range(first, stop):
                start = structure.message_offsets[slot] - base
                source = structure.unary_offsets[structure.slot_variables[slot]] - shift
                for y in range(structure.message_offsets[slot + 1] - base - start):
                    scratch[start + y] = z[source + y]
            row = springs.offsets[factor]
            for slot in range(first, stop):
                source = structure.unary_offsets[structure.slot_variables[slot]] - shift
                for y in range(
                    structure.message_offsets[slot + 1] - structure.message_offsets[slot]
                ):
                    value = 0.0
                    for column in range(size):
                        value += springs.inverses[row + column] * scratch[column]
                    pull[source + y] += value
                    row += size


@kernel
def _project(
    structure: Any,
    begin: int,
    end: int,
    shift: int,
    free: BoolArray,
    widths: FloatArray,
    values: FloatArray,
) -> None:
    """Make the values of each variable orthogonal to ``sqrt(q_i)``; 0 where it is not free."""
    for i in range(begin, end):
        product = 0.0
        for x in range(structure.unary_offsets[i] - shift, structure.unary_offsets[i + 1] - shift):
            product += widths[x] * values[x]
        for x in range(structure.unary_offsets[i] - shift, structure.unary_offsets[i + 1] - shift):
            is_moving = free[i] and widths[x] > 0.0
            values[x] = values[x] - product * widths[x] if is_moving else 0.0


@kernel
def _fill_diagonal(
    structure: Any, springs: Any, begin: int, end: int, shift: int, scale: FloatArray
) -> None:
    """Add what the springs of each label come to: they differ by many orders of magnitude."""
    for factor in range(begin, end):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        base = structure.message_offsets[first]
        size = structure.message_offsets[stop] - base
        for slot in range(first, stop if stop - first > 1 else first):
            start = structure.message_offsets[slot] - base
            source = structure.unary_offsets[structure.slot_variables[slot]] - shift
            for y in range(structure.message_offsets[slot + 1] - base - start):
                if springs.kinds[factor] == PAIR:
                    scale[source + y] += abs(springs.stiff[factor])
                else:
                    place = springs.offsets[factor] + (start + y) * (size + 1)
                    scale[source + y] += max(0.0, springs.inverses[place] - 1.0)


@kernel
def newton_targets(
    structure: Any,
    variable_offsets: LongArray,
    factor_offsets: LongArray,
    examples: LongArray,
    damping: FloatArray,
    accuracy: FloatArray,
    springs: Any,
    log_beliefs: FloatArray,
    beliefs: FloatArray,
    force: FloatArray,
    free: BoolArray,
    targets: FloatArray,
    slopes: FloatArray,
) -> None:
    """Where a damped Newton step would take some examples, and its slopes.

    ``damping`` and ``accuracy``, the share of the force that conjugate gradients may leave, are by
    example.
    """
    widest, longest = 0, 1
    for k in range(len(examples)):
        begin, end = variable_offsets[examples[k]], variable_offsets[examples[k] + 1]
        widest = max(widest, structure.unary_offsets[end] - structure.unary_offsets[begin])
    for factor in range(len(springs.kinds)):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        longest = max(longest, structure.message_offsets[stop] - structure.message_offsets[first])
    work, scratch = np.empty((7, widest)), np.empty(longest)
    for k in range(len(examples)):
        m = examples[k]
        begin, end = variable_offsets[m], variable_offsets[m + 1]
        shift = structure.unary_offsets[begin]
        n = structure.unary_offsets[end] - shift
        z, rest, way, pull = work[0, :n], work[1, :n], work[2, :n], work[3, :n]
        shifts, widths, scale = work[4, :n], work[5, :n], work[6, :n]
        for i in range(begin, end):
            degree = structure.variable_slot_offsets[i + 1] - structure.variable_slot_offsets[i]
            for x in range(
                structure.unary_offsets[i] - shift, structure.unary_offsets[i + 1] - shift
            ):
                widths[x] = sqrt(beliefs[shift + x])
                shifts[x] = 1.0 - degree + damping[m]
                scale[x] = LEAST_STIFFNESS + damping[m]
                z[x] = 0.0
                rest[x] = widths[x] * force[shift + x]
        _project(structure, begin, end, shift, free, widths, rest)
        _fill_diagonal(structure, springs, factor_offsets[m], factor_offsets[m + 1], shift, scale)
        start = 0.0
        for x in range(n):
            way[x] = rest[x] / scale[x]
        _project(structure, begin, end, shift, free, widths, way)
        for x in range(n):
            start += rest[x] * way[x]
        product = start
        for step in range(STEPS_PER_LABEL * n):
            _pull(
                structure, springs, factor_offsets[m], factor_offsets[m + 1], shift, shifts,
                widths, way, pull, scratch,
            )  # fmt: skip
            _project(structure, begin, end, shift, free, widths, pull)
            curvature, length = 0.0, 0.0
            for x in range(n):
                curvature += way[x] * pull[x]
                length += way[x] * way[x] * scale[x]
            if not curvature > FLAT * length:
                if step == 0:
                    z[:] = way
                break
            share = product / curvature
            for x in range(n):
                z[x] += share * way[x]
                rest[x] -= share * pull[x]
                pull[x] = rest[x] / scale[x]  # the preconditioned rest, in memory that is free
            _project(structure, begin, end, shift, free, widths, pull)
            new = 0.0
            for x in range(n):
                new += rest[x] * pull[x]
            if new <= accuracy[m] * accuracy[m] * start:
                break
            for x in range(n):
                way[x] = pull[x] + (new / product) * way[x]
            product = new
        slope = 0.0
        for x in range(n):
            move = 0.0
            if widths[x] > 0.0:
                move = min(max(z[x] / widths[x], -LONGEST), LONGEST)
            slope -= beliefs[shift + x] * force[shift + x] * move
            targets[shift + x] = NO_WEIGHT
            if log_beliefs[shift + x] > NO_WEIGHT:
                targets[shift + x] = log_beliefs[shift + x] + move
        slopes[m] = slope


# -- The second derivative of Bethe's free energy by beliefs of variables (see `scaling`) ---
# In the coordinates ``z_i(y) = dq_i(y) / sqrt(q_i(y))`` of the natural gradient, orthogonal to
# ``sqrt(q_i)``, the second derivative of the free energy is
#
#     (H z)_i = (1 - d_i) z_i + sum_a (A_a^-1 z_a)_i
#
# because the Hessian of the best factor term by its margins is the inverse of their covariance.
# ``A_a`` has ones on its diagonal and, between the labels of two variables of the factor, the
# covariance of their indicators under ``xi_a`` divided by ``sqrt(q_i(y) q_j(y'))``.  For two binary
# variables with correlation ``rho`` this is a spring between them,
#
#     z_i / (1 + |rho|) + stiff (z_i - sign(rho) z_j),     stiff = |rho| / (1 - rho^2)
#
# where nothing cancels in ``1 - rho^2 = (sum of products of three entries of xi) / (p p' r r')``.
# Strong couplings are stiff springs, which steps along the gradient cannot bend and Newton's steps
# leave alone.


#: Springs are not stiffer than this: stiffer ones tie labels to more digits than beliefs have.
STIFFEST = 1e14


class Springs(NamedTuple):
    """The second derivative, factor by factor."""

    kinds: ByteArray
    soft: FloatArray  # 1 / (1 + |rho|) of a binary pair
    stiff: FloatArray  # with the sign of rho
    inverses: FloatArray  # A_a^-1 of all other factors, row by row, one factor after the other
    offsets: LongArray  # where each of them begins


@kernel
def _fill_pair(tables: FloatArray, table: int, springs: Any, factor: int) -> None:
    x00, x01, x10, x11 = tables[table], tables[table + 1], tables[table + 2], tables[table + 3]
    springs.soft[factor] = 1.0
    springs.stiff[factor] = 0.0
    covariance = x11 * x00 - x10 * x01
    product = (x00 + x01) * (x10 + x11) * (x00 + x10) * (x01 + x11)
    determinant = x00 * x01 * (x10 + x11) + x10 * x11 * (x00 + x01)
    if not product > 0.0:
        return  # a label is certain, and tells the other variable nothing
    correlation = min(1.0, abs(covariance) / sqrt(product))
    size = STIFFEST
    if correlation * product < STIFFEST * determinant:
        size = correlation * product / determinant
    springs.soft[factor] = 1.0 / (1.0 + correlation)
    springs.stiff[factor] = size if covariance >= 0.0 else -size


@kernel
def _invert(matrix: FloatArray, size: int, root: FloatArray) -> None:
    """Inverse of a symmetric matrix with unit diagonal, by Cholesky; pivots below rounding stop."""
    for row in range(size):
        for column in range(row + 1):
            value = matrix[row * size + column]
            for k in range(column):
                value -= root[row, k] * root[column, k]
            if column < row:
                root[row, column] = value / root[column, column]
            else:
                root[row, row] = sqrt(max(value, 1.0 / STIFFEST))
    for column in range(size):
        for row in range(size):  # forward
            value = 1.0 if row == column else 0.0
            for k in range(column, row):
                value -= root[row, k] * matrix[k * size + column]
            matrix[row * size + column] = value / root[row, row] if row >= column else 0.0
        for row in range(size - 1, -1, -1):  # and back
            value = matrix[row * size + column]
            for k in range(row + 1, size):
                value -= root[k, row] * matrix[k * size + column]
            matrix[row * size + column] = value / root[row, row]


@kernel
def _fill_general(
    structure: Any,
    tables: FloatArray,
    beliefs: FloatArray,
    springs: Any,
    factor: int,
    digits: IntArray,
    root: FloatArray,
) -> None:
    first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
    base = structure.message_offsets[first]
    size = structure.message_offsets[stop] - base
    matrix = springs.inverses[springs.offsets[factor] : springs.offsets[factor + 1]]
    matrix[:] = 0.0
    digits[: stop - first] = 0
    for z in range(structure.table_offsets[factor], structure.table_offsets[factor + 1]):
        for one in range(first + 1, stop):
            row = structure.message_offsets[one] - base + digits[one - first]
            for two in range(first, one):
                column = structure.message_offsets[two] - base + digits[two - first]
                matrix[row * size + column] += tables[z]
        next_row(structure, first, stop, digits)
    for one in range(first, stop):
        start = structure.message_offsets[one] - base
        source = structure.unary_offsets[structure.slot_variables[one]] - start
        for row in range(start, structure.message_offsets[one + 1] - base):
            matrix[row * size + row] = 1.0
            for two in range(first, one):
                begin = structure.message_offsets[two] - base
                other = structure.unary_offsets[structure.slot_variables[two]] - begin
                for column in range(begin, structure.message_offsets[two + 1] - base):
                    product = beliefs[source + row] * beliefs[other + column]
                    value = matrix[row * size + column] - product
                    value = value / sqrt(product) if product > 0.0 else 0.0
                    matrix[row * size + column] = value
    _invert(matrix, size, root)


@kernel
def fill_springs(
    structure: Any,
    tables: FloatArray,
    beliefs: FloatArray,
    factor_offsets: LongArray,
    examples: LongArray,
    springs: Any,
) -> None:
    """The springs of some examples from their factor beliefs ``tables``."""
    size, arity = 1, 1
    for factor in range(len(springs.kinds)):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        if springs.kinds[factor] == GENERAL:
            size = max(size, structure.message_offsets[stop] - structure.message_offsets[first])
            arity = max(arity, stop - first)
    root, digits = np.empty((size, size)), np.empty(arity, dtype=np.int32)
    for k in range(len(examples)):
        for factor in range(factor_offsets[examples[k]], factor_offsets[examples[k] + 1]):
            if springs.kinds[factor] == PAIR:
                _fill_pair(tables, structure.table_offsets[factor], springs, factor)
            elif springs.kinds[factor] == GENERAL:
                _fill_general(structure, tables, beliefs, springs, factor, digits, root)


# -- The algorithm -------------------------------------------------------------------------


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
