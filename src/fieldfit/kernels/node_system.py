r"""How beliefs give way to forces: the linear system of a concave problem, factors eliminated.

Let ``F(b) = sum_a w_a b_a log b_a + sum_i w_i b_i log b_i`` have a weight for every configuration.
Its second derivative is diagonal, and a step ``d`` that keeps the beliefs consistent under forces
``x`` is

    d_a = c_a (x_a + sum_i lam_ai - const),   c_a = b_a / w_a,     margins of d_a = q_i - r_ai
    (w_i / b_i) q_i + sum_a lam_ai - const = x_i

where ``q_i`` is the step of the beliefs of variable ``i`` and ``r`` what margins lack at the start.
With the covariances ``C_a`` of label indicators under ``c_a`` (centred, the label of largest belief
of each variable left out) the multipliers of a factor follow from the steps of its variables,
``lam_a = C_a^-1 (q_a - r_a)``, which leaves a system for variables alone,

    (N + sum_a P_a' C_a^-1 P_a) q = x + sum_a P_a' C_a^-1 r_a,
    N_i = diag(w_i / b_i) + w_i(ref) / b_i(ref)

of size ``sum_i (K_i - 1)`` and with the sparsity of the graph.  It is positive definite whenever
``F`` is convex on the consistent beliefs, even if some weights of variables are zero or negative.

**Range.**  The unknowns are ``z = q / sqrt(b)``: then ``N`` is of the size of the weights and
``C_a`` of their inverse, whatever the beliefs are.  Factors that tie variables together (a hard
constraint, or beliefs next to one) make ``C_a`` singular; the pivots of its correlations are kept
above ``GUARD``.  That spoils the solution by as much, and a repetition with what is left (`respond`
measures it) restores it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fieldfit.kernels.node_blocks import widest

__all__ = ["fill_node_matrix", "fill_right_hand_side", "recover_steps", "respond"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]


@njit(cache=True, nogil=True, error_model="numpy")
def fill_node_matrix(
    structure: Any,
    pattern: Any,
    blocks: Any,
    beliefs: FloatArray,
    weights: FloatArray,
    values: FloatArray,
) -> None:
    """The upper triangle of the node system, column by column."""
    values[:] = 0.0
    for i in range(len(structure.cardinalities)):
        begin = structure.unary_offsets[i]
        n = structure.cardinalities[i] - 1
        start, length = pattern.column_starts[i], pattern.column_lengths[i]
        own = length - n
        reference = blocks.reference[i]
        common = weights[begin + reference] / beliefs[begin + reference]
        for k in range(n):
            label = k + (1 if k >= reference else 0)
            size = blocks.scale[begin + label]
            place = start + k * length + own
            if size == 0.0 or not blocks.free[i]:
                values[place + k] = 1.0
                continue
            for v in range(n):
                other = v + (1 if v >= reference else 0)
                values[place + v] = common * size * blocks.scale[begin + other]
            # where a belief was raised to the least one, so is w / b lowered
            values[place + k] += weights[begin + label]
    for factor in range(len(structure.scope_offsets) - 1):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        begin, end = pattern.inverse_offsets[factor], pattern.inverse_offsets[factor + 1]
        if end == begin:
            continue
        inverse = blocks.inverses[begin:end]
        n = 0
        for slot in range(first, stop):
            n += structure.cardinalities[structure.slot_variables[slot]] - 1
        arity = stop - first
        column_base = 0
        for q in range(arity):
            right = structure.slot_variables[first + q]
            n_right = structure.cardinalities[right] - 1
            start, length = pattern.column_starts[right], pattern.column_lengths[right]
            row_base = 0
            for p in range(arity):
                left = structure.slot_variables[first + p]
                n_left = structure.cardinalities[left] - 1
                within = pattern.block_rows[pattern.block_offsets[factor] + p * arity + q]
                if within >= 0 and blocks.free[left] and blocks.free[right]:
                    for v in range(n_right):
                        place = start + v * length + within
                        source = (column_base + v) * n + row_base
                        for u in range(n_left):
                            values[place + u] += inverse[source + u]
                row_base += n_left
            column_base += n_right


@njit(cache=True, nogil=True, error_model="numpy")
def _gather_lack(structure: Any, first: int, stop: int, blocks: Any, lack: FloatArray,
                 out: FloatArray) -> int:  # fmt: skip
    """What the margins of one factor lack, in scaled unknowns; returns their number."""
    n = 0
    for slot in range(first, stop):
        variable = structure.slot_variables[slot]
        begin, source = structure.unary_offsets[variable], structure.message_offsets[slot]
        for y in range(structure.cardinalities[variable]):
            if y != blocks.reference[variable]:
                size = blocks.scale[begin + y]
                out[n] = lack[source + y] / size if size > 0.0 else 0.0
                n += 1
    return n


@njit(cache=True, nogil=True, error_model="numpy")
def fill_right_hand_side(
    structure: Any, pattern: Any, blocks: Any, force: FloatArray, lack: FloatArray, out: FloatArray
) -> None:
    """``x + sum_a P_a' C_a^-1 r_a`` for forces by unary entry and ``r`` by message entry."""
    for i in range(len(structure.cardinalities)):
        begin, reference, row = structure.unary_offsets[i], blocks.reference[i], pattern.rows[i]
        for y in range(structure.cardinalities[i]):
            if y == reference:
                continue
            size = blocks.scale[begin + y] if blocks.free[i] else 0.0
            out[row] = size * (force[begin + y] - force[begin + reference]) if size > 0.0 else 0.0
            row += 1
    scaled = np.empty(widest(structure))
    for factor in range(len(structure.scope_offsets) - 1):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        begin = pattern.inverse_offsets[factor]
        if pattern.inverse_offsets[factor + 1] == begin:
            continue
        n = _gather_lack(structure, first, stop, blocks, lack, scaled)
        base = 0
        for slot in range(first, stop):
            variable = structure.slot_variables[slot]
            count = structure.cardinalities[variable] - 1
            if blocks.free[variable]:
                for u in range(count):
                    total = 0.0
                    for v in range(n):
                        total += blocks.inverses[begin + (base + u) * n + v] * scaled[v]
                    out[pattern.rows[variable] + u] += total
            base += count
    for i in range(len(structure.cardinalities)):  # impossible labels do not move
        begin, reference, row = structure.unary_offsets[i], blocks.reference[i], pattern.rows[i]
        for y in range(structure.cardinalities[i]):
            if y != reference:
                if blocks.scale[begin + y] == 0.0 or not blocks.free[i]:
                    out[row] = 0.0
                row += 1


@njit(cache=True, nogil=True, error_model="numpy")
def recover_steps(
    structure: Any,
    pattern: Any,
    blocks: Any,
    solution: FloatArray,
    lack: FloatArray,
    steps: FloatArray,
    messages: FloatArray,
) -> None:
    """Add ``q`` to the steps of variables, and ``C_a^-1 (q_a - r_a)`` to the multipliers."""
    for i in range(len(structure.cardinalities)):
        begin, reference, row = structure.unary_offsets[i], blocks.reference[i], pattern.rows[i]
        total = 0.0
        for y in range(structure.cardinalities[i]):
            if y != reference:
                step = blocks.scale[begin + y] * solution[row]
                steps[begin + y] += step
                total += step
                row += 1
        steps[begin + reference] -= total
    scaled = np.empty(widest(structure))
    for factor in range(len(structure.scope_offsets) - 1):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        begin = pattern.inverse_offsets[factor]
        if pattern.inverse_offsets[factor + 1] == begin:
            continue
        n = _gather_lack(structure, first, stop, blocks, lack, scaled)
        u = 0
        for slot in range(first, stop):
            variable = structure.slot_variables[slot]
            for k in range(structure.cardinalities[variable] - 1):
                scaled[u] = solution[pattern.rows[variable] + k] - scaled[u]
                u += 1
        u = 0
        for slot in range(first, stop):
            variable = structure.slot_variables[slot]
            entry, target = structure.unary_offsets[variable], structure.message_offsets[slot]
            for y in range(structure.cardinalities[variable]):
                if y == blocks.reference[variable]:
                    continue
                total = 0.0
                for v in range(n):
                    total += blocks.inverses[begin + u * n + v] * scaled[v]
                if blocks.scale[entry + y] > 0.0:
                    messages[target + y] += total / blocks.scale[entry + y]
                u += 1


@njit(cache=True, nogil=True, error_model="numpy")
def respond(offsets: IntArray, compliance: FloatArray, tables: FloatArray) -> None:
    """``c (x - <c, x> / sum c)`` for every vector, in place; 0 where ``c`` is."""
    for k in range(len(offsets) - 1):
        begin, end = offsets[k], offsets[k + 1]
        total, mean = 0.0, 0.0
        for z in range(begin, end):
            if compliance[z] > 0.0:
                total += compliance[z]
                mean += compliance[z] * tables[z]
        mean = mean / total if total > 0.0 else 0.0
        for z in range(begin, end):
            tables[z] = compliance[z] * (tables[z] - mean) if compliance[z] > 0.0 else 0.0
