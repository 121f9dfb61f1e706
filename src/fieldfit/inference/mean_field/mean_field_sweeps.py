"""Sweeps of naive mean field: coordinate ascent and parallel updates.

    b_j(y_j) ∝ exp(th_j(y_j) + sum_{a on j} E_{b without j}[th_a | y_j])

Hard zeros.  A table entry ``-inf`` whose configuration has positive probability under the
product ``b`` makes the bound ``-inf``.  Updates therefore compare labels in two stages.  The
*forbidden mass* of a label is ``sum_a P(th_a = -inf | y_j)``; only labels of least forbidden mass
keep a belief, and among these the finite energies decide as usual.  The total forbidden mass
is linear in each ``b_j``, so it never rises, and once it is zero it stays zero and the updates
are ordinary coordinate ascent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fieldfit._typing import FloatArray, IntArray
from fieldfit.graph.structure import Structure
from fieldfit.inference.conditioning import BinaryPairwise, GeneralModel
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import SAFE_FASTMATH, fast_exp

# -- product distributions: factor beliefs and expectations from unary beliefs ------------

#: Products of positive beliefs are kept at least this large: zero must mean "impossible".
SMALLEST = 1e-300


@kernel
def positive_product(x: float, y: float) -> float:
    """``x * y`` for beliefs; zero only if one of them is zero."""
    product = x * y
    if product < SMALLEST and x > 0.0 and y > 0.0:
        return SMALLEST
    return product


@kernel
def product_tables(
    structure: Structure,
    beliefs: FloatArray,
    tables: FloatArray,
    products: FloatArray,
    expectations: FloatArray,
) -> None:
    """Fill every factor's belief ``prod_{i in a} b_i`` and its ``E_b[th_a]``.

    An expectation is ``-inf`` if and only if a configuration of positive probability is forbidden.
    """
    for factor in range(len(structure.scope_offsets) - 1):
        begin = structure.table_offsets[factor]
        size = 1
        products[begin] = 1.0
        for slot in range(structure.scope_offsets[factor], structure.scope_offsets[factor + 1]):
            variable = structure.slot_variables[slot]
            cardinality = structure.cardinalities[variable]
            offset = structure.unary_offsets[variable]
            # expand in place from the back: entry i becomes entries i K ... i K + K - 1
            for i in range(size - 1, -1, -1):
                before = products[begin + i]
                for y in range(cardinality):
                    products[begin + i * cardinality + y] = positive_product(
                        before, beliefs[offset + y]
                    )
            size *= cardinality
        expected = 0.0
        for entry in range(begin, begin + size):
            if products[entry] > 0.0:
                expected += products[entry] * tables[entry]
        expectations[factor] = expected


# -- working memory -----------------------------------------------------------------------

#: Forbidden masses within this relative distance of the least one count as equal to it.
TIE = 1e-12


class MeanFieldScratch(NamedTuple):
    """Working memory of one thread."""

    energy: FloatArray  # (largest cardinality,)
    forbidden: FloatArray  # (largest cardinality,)
    offsets: IntArray  # (largest arity,) of one scope's variables among the unary entries
    sizes: IntArray  # (largest arity,) their cardinalities
    digits: IntArray  # (largest arity,)
    partial: FloatArray  # (largest arity + 1,)


@kernel
def make_scratch(model: GeneralModel) -> MeanFieldScratch:
    """Working memory that fits every variable and factor of the model."""
    return MeanFieldScratch(
        np.empty(model.max_labels),
        np.empty(model.max_labels),
        np.empty(model.max_arity, np.int32),
        np.empty(model.max_arity, np.int32),
        np.empty(model.max_arity, np.int32),
        np.empty(model.max_arity + 1),
    )


# -- the terms of one factor --------------------------------------------------------------
#
# Leaf functions take few arrays and unsigned offsets into them: a whole graph as argument costs
# more than a small table, a slice costs a reference count, and a signed index a test (negative
# ones count from the end).  The smallest are inlined, and so compiled with the flags of `_sweep`.


@kernel(inline="always")
def _expect_second(
    tables: FloatArray,
    entry: np.uint64,
    beliefs: FloatArray,
    other: np.uint64,
    n_other: np.uint64,
    energy: FloatArray,
    n_own: np.uint64,
) -> None:
    """Add ``sum_k table[y, k] b(k)`` to each ``energy[y]``."""
    for y in range(n_own):
        total = 0.0
        for k in range(n_other):
            total += tables[entry + k] * beliefs[other + k]
        energy[y] += total
        entry += n_other


@kernel(inline="always")
def _expect_first(
    tables: FloatArray,
    entry: np.uint64,
    beliefs: FloatArray,
    other: np.uint64,
    n_other: np.uint64,
    energy: FloatArray,
    n_own: np.uint64,
) -> None:
    """Add ``sum_k table[k, y] b(k)`` to each ``energy[y]``."""
    for k in range(n_other):
        weight = beliefs[other + k]
        for y in range(n_own):
            energy[y] += weight * tables[entry + y]
        entry += n_own


@kernel
def _expect_others(
    tables: FloatArray,
    entry: np.uint64,
    beliefs: FloatArray,
    arity: int,
    own: int,
    scratch: MeanFieldScratch,
) -> None:
    """Expected table over all positions but ``own``; any arity, hard zeros.

    The scope is in ``scratch.offsets`` and ``scratch.sizes``.  An odometer runs over all
    positions but the last; ``partial[p]`` is the probability of the digits before position
    ``p`` (``own`` counts 1), so advancing digit ``p`` only recomputes the products after it.
    """
    energy, forbidden, offsets, sizes, digits, partial = scratch
    last = arity - 1
    row_length = np.uint64(sizes[last])
    last_offset = np.uint64(offsets[last])
    partial[0] = 1.0
    for p in range(last):
        digits[p] = 0
    changed = 0
    while changed >= 0:
        for p in range(changed, last):
            partial[p + 1] = partial[p]
            if p != own:
                partial[p + 1] = positive_product(partial[p], beliefs[offsets[p] + digits[p]])
        weight = partial[last]
        if weight > 0.0 and own == last:
            for k in range(row_length):
                value = tables[entry + k]
                if value == -np.inf:
                    forbidden[k] += weight
                else:
                    energy[k] += weight * value
        elif weight > 0.0:
            for k in range(row_length):
                value = tables[entry + k]
                mass = positive_product(weight, beliefs[last_offset + k])
                if value == -np.inf:
                    forbidden[digits[own]] += mass
                else:
                    energy[digits[own]] += mass * value
        entry += row_length
        changed = last - 1
        while changed >= 0:
            digits[changed] += 1
            if digits[changed] < sizes[changed]:
                break
            digits[changed] = 0
            changed -= 1


# -- one variable -------------------------------------------------------------------------


@kernel(inline="always")
def _new_belief(
    unary: FloatArray,
    energy: FloatArray,
    forbidden: FloatArray,
    beliefs: FloatArray,
    offset: np.uint64,
    n_labels: np.uint64,
    damping: float,
) -> float:
    """Write one variable's new belief; the largest change it would make without damping.

    Labels without any of the new belief lose the kept fraction of the old one as well:
    a forbidden mass that only fades would hold the bound at -inf.
    """
    least = np.inf
    for y in range(n_labels):
        if unary[offset + y] > -np.inf:
            least = min(least, forbidden[y])
    limit = least * (1.0 + TIE)
    largest = -np.inf
    for y in range(n_labels):
        if unary[offset + y] == -np.inf or forbidden[y] > limit:
            energy[y] = -np.inf
        else:
            # energies that overflow to -inf together are a tie, not an undefined difference
            energy[y] = max(energy[y], -1e308)
            largest = max(largest, energy[y])
    total = 0.0
    for y in range(n_labels):
        energy[y] = fast_exp(energy[y] - largest)
        total += energy[y]
    scale = 1.0 / total
    kept = 0.0
    if damping > 0.0:
        for y in range(n_labels):
            if energy[y] > 0.0:
                kept += beliefs[offset + y]
    change = 0.0
    for y in range(n_labels):
        target = energy[y] * scale
        old = beliefs[offset + y]
        change = max(change, abs(target - old))
        if kept > 0.0:
            old = old / kept if energy[y] > 0.0 else 0.0
            target = damping * old + (1.0 - damping) * target
        beliefs[offset + y] = target
    return change


# -- sweeps -------------------------------------------------------------------------------


@kernel(fastmath=SAFE_FASTMATH)
def _sweep(
    model: GeneralModel,
    source: FloatArray,
    beliefs: FloatArray,
    changes: FloatArray,
    damping: float,
    scratch: MeanFieldScratch,
) -> float:
    """Update every variable once, reading ``source``, writing ``beliefs`` and ``changes``."""
    structure = model.structure
    unary, tables = model.unary, model.tables
    energy, forbidden = scratch.energy, scratch.forbidden
    residual = 0.0
    for variable in model.variables:
        offset = np.uint64(structure.unary_offsets[variable])
        n_labels = np.uint64(structure.cardinalities[variable])
        for y in range(n_labels):
            energy[y] = unary[offset + y]
            forbidden[y] = 0.0
        for position in range(
            structure.variable_slot_offsets[variable],
            structure.variable_slot_offsets[variable + 1],
        ):
            slot = structure.variable_slots[position]
            factor = structure.slot_factors[slot]
            begin = structure.scope_offsets[factor]
            arity = structure.scope_offsets[factor + 1] - begin
            entry = np.uint64(structure.table_offsets[factor])
            if arity == 2 and not model.hard[factor]:
                own_is_first = slot == begin
                neighbor = structure.slot_variables[begin + 1 if own_is_first else begin]
                other = np.uint64(structure.unary_offsets[neighbor])
                n_other = np.uint64(structure.cardinalities[neighbor])
                if own_is_first:
                    _expect_second(tables, entry, source, other, n_other, energy, n_labels)
                else:
                    _expect_first(tables, entry, source, other, n_other, energy, n_labels)
            else:
                for p in range(arity):
                    neighbor = structure.slot_variables[begin + p]
                    scratch.offsets[p] = structure.unary_offsets[neighbor]
                    scratch.sizes[p] = structure.cardinalities[neighbor]
                _expect_others(tables, entry, source, arity, slot - begin, scratch)
        change = _new_belief(unary, energy, forbidden, beliefs, offset, n_labels, damping)
        changes[variable] = change
        residual = max(residual, change)
    return residual


@kernel
def general_sweeps(
    model: GeneralModel,
    beliefs: FloatArray,
    changes: FloatArray,
    parallel: bool,
    damping: float,
    n_sweeps: int,
    tol: float,
) -> tuple[int, float]:
    """Up to ``n_sweeps`` sweeps over any graph; how many were made, and the last residual.

    The residual is the largest entry of ``changes``: by how much each variable's belief would
    have moved in the last sweep without damping, its distance from the update's fixed point.

    A parallel step that would raise the forbidden mass (two neighbours stepping onto each
    other's forbidden labels at once) is replaced by a coordinate sweep, which cannot.
    """
    scratch = make_scratch(model)
    previous = np.empty(len(beliefs) if parallel else 0)
    guarded = parallel and model.hard.any()
    mass = forbidden_mass(model, beliefs, scratch) if guarded else 0.0
    residual = np.inf
    for sweep in range(n_sweeps):
        if parallel:
            previous[:] = beliefs
            residual = _sweep(model, previous, beliefs, changes, damping, scratch)
            new_mass = forbidden_mass(model, beliefs, scratch) if guarded else 0.0
            if new_mass > mass * (1.0 + TIE):
                beliefs[:] = previous
                residual = _sweep(model, beliefs, beliefs, changes, damping, scratch)
                new_mass = forbidden_mass(model, beliefs, scratch)
            mass = new_mass
        else:
            residual = _sweep(model, beliefs, beliefs, changes, damping, scratch)
        if residual <= tol:
            return sweep + 1, residual
    return n_sweeps, residual


@kernel
def binary_sweeps(
    model: BinaryPairwise,
    beliefs: FloatArray,
    changes: FloatArray,
    parallel: bool,
    damping: float,
    n_sweeps: int,
    tol: float,
) -> tuple[int, float]:
    """`general_sweeps` for a `BinaryPairwise` model."""
    previous = np.empty(len(beliefs) if parallel else 0)
    residual = np.inf
    for sweep in range(n_sweeps):
        if parallel:
            previous[:] = beliefs
        source = previous if parallel else beliefs
        residual = 0.0
        for row in range(len(model.fields)):
            field = model.fields[row]
            for entry in range(model.offsets[row], model.offsets[row + 1]):
                field += model.couplings[entry] * source[2 * model.neighbors[entry] + 1]
            # exp of a negative number: no overflow, and infinite fields give exactly 0 and 1
            ratio = fast_exp(-abs(field))
            larger = 1.0 / (1.0 + ratio)
            smaller = ratio * larger
            one = larger if field > 0.0 else smaller
            zero = smaller if field > 0.0 else larger
            target = 2 * model.variables[row]
            change = abs(one - beliefs[target + 1])
            changes[model.variables[row]] = change
            residual = max(residual, change)
            if damping > 0.0:
                one = damping * beliefs[target + 1] + (1.0 - damping) * one
                zero = damping * beliefs[target] + (1.0 - damping) * zero
            beliefs[target] = zero
            beliefs[target + 1] = one
        if residual <= tol:
            return sweep + 1, residual
    return n_sweeps, residual


@kernel
def forbidden_mass(model: GeneralModel, beliefs: FloatArray, scratch: MeanFieldScratch) -> float:
    """``sum_a P_b(th_a = -inf)``."""
    structure = model.structure
    total = 0.0
    for factor in range(len(model.hard)):
        if model.hard[factor]:
            begin = structure.scope_offsets[factor]
            arity = structure.scope_offsets[factor + 1] - begin
            for p in range(arity):
                variable = structure.slot_variables[begin + p]
                scratch.offsets[p] = structure.unary_offsets[variable]
                scratch.sizes[p] = structure.cardinalities[variable]
            scratch.forbidden[:] = 0.0
            entry = np.uint64(structure.table_offsets[factor])
            _expect_others(model.tables, entry, beliefs, arity, arity - 1, scratch)
            for y in range(scratch.sizes[arity - 1]):
                belief = beliefs[scratch.offsets[arity - 1] + y]
                total += positive_product(belief, scratch.forbidden[y])
    return total
