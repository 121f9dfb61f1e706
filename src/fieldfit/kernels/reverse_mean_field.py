r"""The way back through coordinate sweeps of mean field (see `mean_field`).

    forward    e_j(y_j) = th_j(y_j) + sum_{a on j} sum_{y_a \ y_j} th_a(y_a) prod_{i != j} b_i(y_i)
               p = exp(e_j) / sum exp(e_j),    b_j = (1 - d) p + d b_j
    backward   h = (1 - d) p (g - <g, p>)  with g = g[b_j];    g[b_j] = d g;    g[th_j] += h;
               g[th_a](y_a) += h(y_j) prod_{i != j} b_i(y_i);
               g[b_i](y_i) += sum_{y_a \ y_i} h(y_j) th_a(y_a) prod_{k != i, j} b_k(y_k)

Variables are met in the reverse order, and each takes back the belief it had before the sweep; the
others then have the beliefs that its update has seen.  Tables must be finite.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["reverse_mean_field_sweep", "reverse_products"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]


@njit(cache=True, nogil=True, error_model="numpy")
def reverse_mean_field_sweep(
    structure: Any,
    variables: IntArray,
    tables: FloatArray,
    damping: float,
    before: FloatArray,
    beliefs: FloatArray,
    gradient: FloatArray,
    unary_gradient: FloatArray,
    table_gradient: FloatArray,
) -> None:
    """Back over one sweep: ``beliefs`` become ``before``, ``gradient`` is that by the beliefs."""
    widest, arity = 1, 1
    for i in range(len(structure.cardinalities)):
        widest = max(widest, structure.cardinalities[i])
    for factor in range(len(structure.scope_offsets) - 1):
        arity = max(arity, structure.scope_offsets[factor + 1] - structure.scope_offsets[factor])
    slope = np.empty(widest)
    digits = np.empty(arity, dtype=np.int64)
    for index in range(len(variables) - 1, -1, -1):
        j = variables[index]
        offset = structure.unary_offsets[j]
        n_labels = structure.cardinalities[j]
        mean = 0.0
        for y in range(n_labels):
            # the update without damping
            slope[y] = beliefs[offset + y]
            if damping != 0.0:
                slope[y] = (slope[y] - damping * before[offset + y]) / (1.0 - damping)
            mean += slope[y] * gradient[offset + y]
        for y in range(n_labels):
            slope[y] *= (1.0 - damping) * (gradient[offset + y] - mean)
            gradient[offset + y] *= damping
            unary_gradient[offset + y] += slope[y]
            beliefs[offset + y] = before[offset + y]
        for position in range(
            structure.variable_slot_offsets[j], structure.variable_slot_offsets[j + 1]
        ):
            slot = structure.variable_slots[position]
            factor = structure.slot_factors[slot]
            first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
            entry = structure.table_offsets[factor]
            if stop - first == 2:
                own_is_first = slot == first
                other = structure.slot_variables[first + 1 if own_is_first else first]
                place = structure.unary_offsets[other]
                n_others = structure.cardinalities[other]
                own_stride = n_others if own_is_first else 1
                other_stride = 1 if own_is_first else n_labels
                for k in range(n_others):
                    belief = beliefs[place + k]
                    total = 0.0
                    for y in range(n_labels):
                        z = entry + y * own_stride + k * other_stride
                        table_gradient[z] += slope[y] * belief
                        total += slope[y] * tables[z]
                    gradient[place + k] += total
                continue
            _reverse_large(
                structure, factor, slot, tables, slope, beliefs, gradient, table_gradient, digits
            )


@njit(cache=True, nogil=True, error_model="numpy")
def _reverse_large(
    structure: Any,
    factor: int,
    own: int,
    tables: FloatArray,
    slope: FloatArray,
    beliefs: FloatArray,
    gradient: FloatArray,
    table_gradient: FloatArray,
    digits: NDArray[np.int64],
) -> None:
    """One factor of arity above two: entry by entry, each other variable left out in turn."""
    first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
    digits[: stop - first] = 0
    for z in range(structure.table_offsets[factor], structure.table_offsets[factor + 1]):
        weight = slope[digits[own - first]]
        for left_out in range(first, stop):
            product = weight
            for slot in range(first, stop):
                if slot != own and slot != left_out:
                    place = structure.unary_offsets[structure.slot_variables[slot]]
                    product *= beliefs[place + digits[slot - first]]
            if left_out == own:
                table_gradient[z] += product
            else:
                place = structure.unary_offsets[structure.slot_variables[left_out]]
                gradient[place + digits[left_out - first]] += product * tables[z]
        _advance(structure, first, stop, digits)


@njit(cache=True, nogil=True, error_model="numpy")
def _advance(structure: Any, first: int, stop: int, digits: NDArray[np.int64]) -> None:
    """The next configuration of a scope, its last variable fastest."""
    slot = stop - 1
    while slot >= first:
        digits[slot - first] += 1
        if digits[slot - first] < structure.cardinalities[structure.slot_variables[slot]]:
            return
        digits[slot - first] = 0
        slot -= 1


@njit(cache=True, nogil=True, error_model="numpy")
def reverse_products(
    structure: Any, beliefs: FloatArray, derivative: FloatArray, gradient: FloatArray
) -> None:
    """Derivative by factor beliefs ``prod_i b_i`` to derivative by ``b_i``, added up."""
    arity = 1
    for factor in range(len(structure.scope_offsets) - 1):
        arity = max(arity, structure.scope_offsets[factor + 1] - structure.scope_offsets[factor])
    digits = np.empty(arity, dtype=np.int64)
    for factor in range(len(structure.scope_offsets) - 1):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        digits[: stop - first] = 0
        for z in range(structure.table_offsets[factor], structure.table_offsets[factor + 1]):
            for left_out in range(first, stop):
                product = derivative[z]
                for slot in range(first, stop):
                    if slot != left_out:
                        place = structure.unary_offsets[structure.slot_variables[slot]]
                        product *= beliefs[place + digits[slot - first]]
                place = structure.unary_offsets[structure.slot_variables[left_out]]
                gradient[place + digits[left_out - first]] += product
            _advance(structure, first, stop, digits)
