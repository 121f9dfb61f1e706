r"""Newton-CG on Bethe's free energy: trust region steps by conjugate gradients (Steihaug).

Strong couplings make Bethe's free energy ``F(q)`` so ill-conditioned that a step along the gradient
must be tiny; Newton's steps are not held back by this.  A step solves

    (H + damping M) z = - gradient

with the Hessian ``H`` of `hessian_blocks` (entropy weights ``w_a = 1``, ``w_i = 1 - d_i``) and the
metric ``M`` of the natural gradient (Levenberg and Marquardt); in the units of ``H`` damping is
added to the weights ``w_i``.  ``H`` is indefinite away from a minimum: conjugate gradients end at
the first direction of negative curvature, which is taken if it is the first of all.  Each example
has its own damping, which rises when a step would raise its free energy.

Binary pairs have blocks without cancellation (condition up to `MAX_CONDITION`), so that the
products ``H z`` are right in soft directions, too.  Nothing is factorised here; `marginal_hessian`
says why.

References: Steihaug, "The conjugate gradient method and trust regions in large scale optimization",
SIAM J. Numerical Analysis 20 (1983); Nocedal and Wright, "Numerical Optimization", section 7.1, for
the accuracy of the inner iteration.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np

from fieldfit._typing import BoolArray, FloatArray, Index, LongArray
from fieldfit.graph.batch import Batch
from fieldfit.graph.structure import Structure
from fieldfit.inference.base import Progress
from fieldfit.inference.free_energy.anderson import ROUNDING, SUFFICIENT, Points, examine
from fieldfit.inference.free_energy.bethe_free_energy import BetheEnergy
from fieldfit.inference.free_energy.natural_gradient import (
    DescentResult,
    step_examples,
)
from fieldfit.inference.messages.message_arrays import NO_WEIGHT
from fieldfit.inference.second_order.hessian_blocks import (
    BlockLayout,
    HessianBlocks,
    VariableTerms,
    block_layout,
    fill_blocks,
    fill_variable_terms,
    hessian_matvec,
    hessian_vector_product,
    reference_labels,
    widest_factor,
)
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.conjugate_gradient import conjugate_gradients, linear_operator
from fieldfit.numeric.simd import load, store

__all__ = ["BetheHessian", "newton_candidates", "newton_descend", "newton_memory"]

#: Condition of a block at most: beyond it labels are tied to more digits than beliefs have.
MAX_CONDITION = 1e14
#: Log-beliefs move by at most this in one step: the quadratic model knows nothing of larger
#: changes.
MAX_LOG_STEP = 5.0
#: Iterations of conjugate gradients for each label: rounding delays them when blocks are
#: ill-conditioned.
ITERATIONS_PER_LABEL = 5
#: What the preconditioner takes the weight of a variable without coupling for.
MIN_CURVATURE = 1e-3
#: A direction has negative curvature if it is below this fraction of its length (rounding).
FLAT = 1e-14

#: Damping to begin with, and what it is multiplied by after a step that was refused or taken.
FIRST_DAMPING = 1.0
DAMPING_INCREASE = 6.0
DAMPING_DECREASE = 0.25
#: Below this it is as good as none; above, steps are shorter than rounding.
MIN_DAMPING = 1e-8
MAX_DAMPING = 1e16
#: Fraction of the gradient that conjugate gradients may leave, by how far a full step would move
#: beliefs (the forcing sequence): convergence is then quadratic in the end and cheap at first.
FORCING = 0.1
MIN_FORCING = 1e-10
MAX_FORCING = 1e-2


# -- the linear system of one example -------------------------------------------------------------


class _DampedHessian(NamedTuple):
    """``H + damping M`` of one example, and its preconditioner (see `_fill_preconditioner`)."""

    structure: Structure
    layout: BlockLayout
    blocks: HessianBlocks
    terms: VariableTerms  # weights 1 - d_i + damping
    variables: tuple[int, int]
    factors: tuple[int, int]
    shift: Index  # first unknown
    scratch: FloatArray
    inverse_diagonal: FloatArray  # by unknown of the example
    rank_one: FloatArray  # by variable of the example


@kernel
def _multiply(system: _DampedHessian, z: FloatArray, out: FloatArray) -> None:
    hessian_vector_product(
        system.structure, system.layout, system.blocks, system.terms, system.variables,
        system.factors, system.shift, z, out, system.scratch,
    )  # fmt: skip


@kernel
def _precondition(system: _DampedHessian, residual: FloatArray, out: FloatArray) -> None:
    roots, inverse = system.terms.roots, system.inverse_diagonal
    begin, end = system.variables
    for i in range(begin, end):
        row = system.layout.rows[i] - system.shift
        last = row + system.structure.cardinalities[i] - 1
        product = 0.0
        for u in range(row, last):
            value = load(inverse, u) * load(residual, u)
            store(out, u, value)
            product += load(roots, u) * value
        product *= load(system.rank_one, i - begin)
        for u in range(row, last):
            store(out, u, load(out, u) - product * load(roots, u) * load(inverse, u))


linear_operator(_DampedHessian, _multiply, _precondition)


@kernel
def _add_block_diagonals(system: _DampedHessian, diagonal: FloatArray) -> None:
    """Add what couplings add to the curvature of each unknown, by many orders of magnitude."""
    structure, layout, blocks = system.structure, system.layout, system.blocks
    for factor in range(system.factors[0], system.factors[1]):
        begin, end = layout.offsets[factor], layout.offsets[factor + 1]
        if end == begin:
            continue
        is_pair, n, size = layout.is_pair[factor], 0, 0
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        for slot in range(first, stop):
            size += structure.cardinalities[structure.slot_variables[slot]] - 1
        for slot in range(first, stop):
            i = structure.slot_variables[slot]
            unary, reference = structure.unary_offsets[i], blocks.reference[i]
            root = blocks.sqrt_beliefs[unary + reference]
            for u in range(structure.cardinalities[i] - 1):
                row = layout.rows[i] - system.shift + u
                if is_pair:
                    scale = blocks.values[begin + n]
                    diagonal[row] += scale * scale * abs(blocks.values[begin + 3])
                else:
                    # less what the block of independent variables has
                    own = blocks.sqrt_beliefs[unary + u + (1 if u >= reference else 0)] / root
                    value = blocks.values[begin + n * (size + 1)] - (1.0 + own * own)
                    diagonal[row] += max(0.0, value)
                n += 1


@kernel
def _fill_preconditioner(system: _DampedHessian, damping: float) -> None:
    """``P_i = D_i + (MIN_CURVATURE + damping) M_i`` with the diagonal of the blocks ``D``.

    ``M_i = I + s s' / b_i(ref)`` with ``s = sqrt(b)``, so that ``P_i^-1`` is a diagonal matrix less
    one of rank one (Sherman and Morrison).
    """
    structure, blocks, roots = system.structure, system.blocks, system.terms.roots
    system.inverse_diagonal[:] = 0.0
    _add_block_diagonals(system, system.inverse_diagonal)
    metric = MIN_CURVATURE + damping
    begin, end = system.variables
    for i in range(begin, end):
        row = system.layout.rows[i] - system.shift
        root = blocks.sqrt_beliefs[structure.unary_offsets[i] + blocks.reference[i]]
        factor, product = metric / (root * root), 0.0
        for u in range(row, row + structure.cardinalities[i] - 1):
            inverse = 1.0 / (system.inverse_diagonal[u] + metric)
            system.inverse_diagonal[u] = inverse
            product += roots[u] * roots[u] * inverse
        system.rank_one[i - begin] = factor / (1.0 + factor * product)


@kernel
def _fill_residual(system: _DampedHessian, negative_gradient: FloatArray, out: FloatArray) -> None:
    """The negative gradient by unknowns; 0 for what may not move."""
    structure, blocks = system.structure, system.blocks
    for i in range(system.variables[0], system.variables[1]):
        first, row = structure.unary_offsets[i], system.layout.rows[i] - system.shift
        reference = blocks.reference[i]
        for u in range(structure.cardinalities[i] - 1):
            label = first + u + (1 if u >= reference else 0)
            root = system.terms.roots[row + u]
            difference = negative_gradient[label] - negative_gradient[first + reference]
            out[row + u] = root * difference if blocks.free[i] and root > 0.0 else 0.0


@kernel
def _fill_candidates(
    system: _DampedHessian,
    z: FloatArray,
    log_beliefs: FloatArray,
    beliefs: FloatArray,
    negative_gradient: FloatArray,
    candidates: FloatArray,
) -> float:
    """Log-beliefs after a step, each moved by at most `MAX_LOG_STEP`; returns the slope."""
    structure, blocks, roots = system.structure, system.blocks, system.terms.roots
    slope = 0.0
    for i in range(system.variables[0], system.variables[1]):
        first, row = structure.unary_offsets[i], system.layout.rows[i] - system.shift
        reference, total = blocks.reference[i], 0.0
        for u in range(row, row + structure.cardinalities[i] - 1):
            total += roots[u] * z[u]
        for y in range(structure.cardinalities[i]):
            root = blocks.sqrt_beliefs[first + y]
            step = 0.0
            if y == reference:
                step = -total / (root * root)
            elif root > 0.0:
                step = z[row + y - (1 if y > reference else 0)] / root
            step = min(max(step, -MAX_LOG_STEP), MAX_LOG_STEP)
            slope -= beliefs[first + y] * negative_gradient[first + y] * step
            is_out = log_beliefs[first + y] == NO_WEIGHT
            candidates[first + y] = NO_WEIGHT if is_out else log_beliefs[first + y] + step
    return slope


@kernel
def newton_candidates(
    structure: Structure,
    layout: BlockLayout,
    variable_offsets: LongArray,
    factor_offsets: LongArray,
    examples: LongArray,
    damping: FloatArray,
    accuracy: FloatArray,
    blocks: HessianBlocks,
    log_beliefs: FloatArray,
    beliefs: FloatArray,
    negative_gradient: FloatArray,
    candidates: FloatArray,
    slopes: FloatArray,
) -> None:
    """Where a damped Newton step would take some examples, and its slopes.

    ``damping`` and ``accuracy``, the fraction of the gradient that conjugate gradients may leave,
    are by example.
    """
    most_labels, most_variables = 0, 0
    for index in range(len(examples)):
        begin, end = variable_offsets[examples[index]], variable_offsets[examples[index] + 1]
        n_labels = structure.unary_offsets[end] - structure.unary_offsets[begin]
        most_labels, most_variables = max(most_labels, n_labels), max(most_variables, end - begin)
    work, by_variable = np.empty((7, most_labels)), np.empty((2, most_variables))
    weights, scratch = np.empty(len(beliefs)), np.empty((2, widest_factor(structure)))
    for index in range(len(examples)):
        m = examples[index]
        begin, end = variable_offsets[m], variable_offsets[m + 1]
        n_labels = structure.unary_offsets[end] - structure.unary_offsets[begin]
        n = n_labels - (end - begin)
        for i in range(begin, end):
            degree = structure.variable_slot_offsets[i + 1] - structure.variable_slot_offsets[i]
            for y in range(structure.unary_offsets[i], structure.unary_offsets[i + 1]):
                weights[y] = 1.0 - degree + damping[m]
        shift = layout.rows[begin] if begin < end else np.int32(0)
        terms = VariableTerms(work[0, :n], work[1, :n], by_variable[0])
        fill_variable_terms(structure, layout, blocks, weights, (begin, end), shift, terms)
        system = _DampedHessian(
            structure, layout, blocks, terms, (begin, end),
            (factor_offsets[m], factor_offsets[m + 1]), shift, scratch, work[2, :n],
            by_variable[1],
        )  # fmt: skip
        z, residual, direction, image = work[3, :n], work[4, :n], work[5, :n], work[6, :n]
        _fill_preconditioner(system, damping[m])
        _fill_residual(system, negative_gradient, residual)
        conjugate_gradients(
            system, accuracy[m], ITERATIONS_PER_LABEL * n_labels, FLAT, residual, z, direction,
            image,
        )  # fmt: skip
        slopes[m] = _fill_candidates(system, z, log_beliefs, beliefs, negative_gradient, candidates)


@kernel
def _update_blocks(
    structure: Structure,
    layout: BlockLayout,
    variable_offsets: LongArray,
    factor_offsets: LongArray,
    examples: LongArray,
    beliefs: FloatArray,
    tables: FloatArray,
    blocks: HessianBlocks,
) -> None:
    """The blocks of some examples at these beliefs of variables and factors."""
    ranges = np.empty((len(examples), 2), dtype=np.int64)
    for index in range(len(examples)):
        m = examples[index]
        begin, end = variable_offsets[m], variable_offsets[m + 1]
        reference_labels(structure, begin, end, beliefs, blocks.reference)
        for y in range(structure.unary_offsets[begin], structure.unary_offsets[end]):
            blocks.sqrt_beliefs[y] = sqrt(beliefs[y])
        ranges[index, 0], ranges[index, 1] = factor_offsets[m], factor_offsets[m + 1]
    fill_blocks(structure, layout, tables, blocks, 1.0 / MAX_CONDITION, ranges)


# -- descent --------------------------------------------------------------------------------------


class BetheHessian:
    """The Hessian of Bethe's free energy at the current beliefs of every example of a batch."""

    def __init__(self, batch: Batch, free: BoolArray) -> None:
        graph = batch.graph
        self.batch = batch
        self.layout = block_layout(graph)
        self.blocks = HessianBlocks(
            sqrt_beliefs=np.zeros(int(graph.unary_offsets[-1])),
            reference=np.zeros(graph.n_variables, dtype=np.int32),
            free=free,
            values=np.zeros(int(self.layout.offsets[-1])),
        )

    def update(self, beliefs: FloatArray, tables: FloatArray, examples: LongArray) -> None:
        """Take the beliefs of some examples over."""
        _update_blocks(
            self.batch.graph.structure, self.layout, self.batch.variable_offsets,
            self.batch.factor_offsets, examples, beliefs, tables, self.blocks,
        )  # fmt: skip

    def matvec(self, z: FloatArray) -> FloatArray:
        """``H z`` without damping, in the units ``dq / sqrt(q)`` and the order of ``layout``."""
        graph = self.batch.graph
        weights = np.repeat(1.0 - graph.degrees, graph.cardinalities)
        return hessian_matvec(graph, self.layout, self.blocks, weights, z)


def newton_descend(
    batch: Batch,
    energy: BetheEnergy,
    log_unary: FloatArray,
    free: BoolArray,
    max_iter: int,
    tol: float,
    examples: LongArray,
    progress: Progress | None = None,
) -> DescentResult:
    """Damped Newton steps of some examples; the figures of all others mean nothing."""
    graph = batch.graph
    entries = graph.unary_offsets[batch.variable_offsets].astype(np.int64)
    current, trial = Points(log_unary.copy()), Points(log_unary.copy())
    start = np.full(batch.n_examples, np.inf)
    start[examples] = energy(current.log_unary, examples, current.targets)
    energies = start.copy()
    _, residuals = examine(batch, current, free, examples)
    hessian = BetheHessian(batch, free)
    candidates, slopes = np.zeros_like(log_unary), np.zeros(batch.n_examples)
    damping = np.full(batch.n_examples, FIRST_DAMPING)
    full_steps = np.ones(batch.n_examples)
    n_steps = np.zeros(batch.n_examples, dtype=np.int64)
    is_stale = np.zeros(batch.n_examples, dtype=np.bool_)
    active = examples[np.isfinite(energies[examples]) & (residuals[examples] > tol)]
    moved = active
    n_evaluations = 1
    while len(active) and n_evaluations <= max_iter:
        if len(moved):
            hessian.update(current.beliefs, energy.tables(), moved)
        newton_candidates(
            graph.structure, hessian.layout, batch.variable_offsets, batch.factor_offsets, active,
            damping, np.clip(FORCING * residuals, MIN_FORCING, MAX_FORCING), hessian.blocks,
            current.log_unary, current.beliefs, current.negative_gradient, candidates, slopes,
        )  # fmt: skip
        step_examples(
            graph.structure, batch.variable_offsets, active, full_steps, current.log_unary,
            candidates, free, trial.log_unary,
        )  # fmt: skip
        values = energy(trial.log_unary, active, trial.targets)
        n_evaluations += 1
        slack = ROUNDING * (1.0 + np.abs(energies[active]))
        predicted = SUFFICIENT * np.minimum(slopes[active], 0.0)
        lower = values <= energies[active] + predicted + slack
        moved, refused = active[lower], active[~lower]
        is_stale[active] = ~lower
        energies[moved] = np.minimum(values[lower], energies[moved])
        n_steps[moved] += 1
        damping[moved] = np.maximum(DAMPING_DECREASE * damping[moved], MIN_DAMPING)
        damping[refused] *= DAMPING_INCREASE
        _, changed = examine(batch, trial, free, moved)
        residuals[moved] = changed[moved]
        trial.copy_from(current, entries, refused)
        current, trial = trial, current
        stays = (residuals[active] > tol) & (damping[active] < MAX_DAMPING)
        trial.copy_from(current, entries, active[~stays])
        active, moved = active[stays], moved[np.isin(moved, active[stays])]
        if progress is not None:
            progress(n_evaluations - 1, float(residuals[examples].max(initial=0.0)))
    return DescentResult(
        log_unary=current.log_unary,
        free_energies=energies,
        start_free_energies=start,
        residuals=residuals,
        converged_examples=(residuals <= tol) & np.isfinite(energies),
        n_steps=n_steps,
        refused=np.flatnonzero(is_stale),
        n_evaluations=n_evaluations,
    )


def newton_memory(batch: Batch) -> float:
    """Bytes that the blocks of the Hessian take."""
    return 8.0 * float(block_layout(batch.graph).offsets[-1])
