r"""Upper bounds on a concave free energy at any multipliers, converged or not.

Let ``lam_ai(y_i)`` be any multipliers, ``b_a = exp((th_a + sum_i lam_ai) / c_a)`` (not normalised),
``b_ai`` its margins, and ``k`` a split of the entropy (`fieldfit.entropy.entropy_split`).  Then

    max_{tau in L} <th, tau> + H_c(tau)  <=  U(lam) = sum_a k_a log sum_{y_a} b_a(y_a)
        + sum_i k_i log sum_{y_i} exp((th_i + sum_a [k_ai log b_ai - lam_ai]) / k_i),

with equality at the multipliers of the maximum.  The proof: give every term ``k_ai (H_a - H_i)`` of
the split a table of its own, ``k_ai log b_a - lam_ai`` with what it lacks of ``log b_ai``, and
``k_a log b_a`` to the term ``k_a H_a``.  These tables sum to ``th_a``, and each term has its
maximum, given ``tau_i``, in closed form: ``<f_ai, tau_i>`` with ``f_ai = k_ai log b_ai - lam_ai``.
Where ``k_i`` is zero the sum over ``y_i`` is a maximum.

For pairs this is the dual of Globerson and Jaakkola, "Convergent propagation algorithms via
oriented trees", UAI 2007, at tables that follow from messages.  With all ``k_ai = 0`` it is the
dual of `convex_problem`.
"""

from __future__ import annotations

import numpy as np

from fieldfit._typing import FloatArray
from fieldfit.entropy.entropy_split import EntropySplit
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.structure import Structure, next_row
from fieldfit.numeric.compile import kernel
from fieldfit.numeric.simd import fast_exp, fast_log

__all__ = ["messages_of_multipliers", "split_dual_values"]

NO_WEIGHT = -np.inf


def split_dual_values(
    batch: Batch,
    unary: FloatArray,
    tables: FloatArray,
    split: EntropySplit,
    multipliers: FloatArray,
) -> FloatArray:
    """``U`` of every example, without the constants of factors of arity zero.

    Parameters
    ----------
    batch
        The graphs.
    unary, tables
        Potentials with evidence; ``unary`` holds those of factors of arity one.
    split
        Non-negative weights of the entropy.
    multipliers
        By message entry; ``-inf`` excludes a label.
    """
    graph = batch.graph
    by_factor, terms = np.zeros(graph.n_factors), np.zeros(len(multipliers))
    _conditional_terms(
        graph.structure, tables, split.factor_total, split.factor, split.slot, multipliers,
        by_factor, terms,
    )  # fmt: skip
    by_variable = np.empty(graph.n_variables)
    _root_terms(graph.structure, unary, split.variable, terms, by_variable)
    return batch.sum_variables(by_variable) + batch.sum_factors(by_factor)


def messages_of_multipliers(
    graph: FactorGraph, tables: FloatArray, factor_weights: FloatArray, multipliers: FloatArray
) -> FloatArray:
    """``c_a log b_ai - lam_ai``: what factors tell variables, by message entry."""
    slot_weights = factor_weights[graph.slot_factors]
    messages = np.zeros(len(multipliers))
    _conditional_terms(
        graph.structure, tables, factor_weights, np.zeros(graph.n_factors), slot_weights,
        multipliers, np.zeros(graph.n_factors), messages,
    )  # fmt: skip
    return messages


# -- kernels ------------------------------------------------------------------------------------


@kernel
def _conditional_terms(
    structure: Structure,
    tables: FloatArray,
    factor_weights: FloatArray,
    factor_split: FloatArray,
    slot_split: FloatArray,
    multipliers: FloatArray,
    by_factor: FloatArray,
    terms: FloatArray,
) -> None:
    """``k_a log sum b_a`` by factor, and ``f_ai = k_ai log b_ai - lam_ai`` by message entry."""
    width, arity = 1, 1
    for factor in range(len(structure.scope_offsets) - 1):
        first, stop = structure.scope_offsets[factor], structure.scope_offsets[factor + 1]
        width = max(width, structure.message_offsets[stop] - structure.message_offsets[first])
        arity = max(arity, stop - first)
    tops, sums = np.empty(width), np.empty(width)
    digits = np.empty(arity, dtype=np.int32)
    for factor in range(len(structure.scope_offsets) - 1):
        first, last = structure.scope_offsets[factor], structure.scope_offsets[factor + 1] - 1
        if last <= first:
            continue
        base = structure.message_offsets[first]
        n = structure.message_offsets[last + 1] - base
        tops[:n], sums[:n] = NO_WEIGHT, 0.0
        inverse = 1.0 / factor_weights[factor]
        # two passes: the largest exponent of each label, then sums relative to it
        for is_sum in (False, True):
            digits[: last - first + 1] = 0
            for entry in range(
                structure.table_offsets[factor], structure.table_offsets[factor + 1]
            ):
                value = tables[entry]
                for slot in range(first, last + 1):
                    value += multipliers[structure.message_offsets[slot] + digits[slot - first]]
                value *= inverse
                for slot in range(first, last + 1):
                    place = structure.message_offsets[slot] - base + digits[slot - first]
                    if not is_sum:
                        tops[place] = max(tops[place], value)
                    elif value > NO_WEIGHT:
                        sums[place] += fast_exp(value - tops[place])
                next_row(structure, first, last + 1, digits)
        for slot in range(first, last + 1):
            begin, end = structure.message_offsets[slot], structure.message_offsets[slot + 1]
            for z in range(begin, end):
                if tops[z - base] == NO_WEIGHT:
                    terms[z] = NO_WEIGHT
                    continue
                log_margin = tops[z - base] + fast_log(sums[z - base])
                terms[z] = slot_split[slot] * log_margin - multipliers[z]
                tops[z - base] = log_margin
        if factor_split[factor] > 0.0:
            stop = structure.message_offsets[first + 1] - base
            by_factor[factor] = factor_split[factor] * _log_sum(tops, stop)


@kernel
def _log_sum(values: FloatArray, stop: int) -> float:
    """Log-sum-exp of the first entries."""
    top = NO_WEIGHT
    for z in range(stop):
        top = max(top, values[z])
    if top == NO_WEIGHT:
        return top
    total = 0.0
    for z in range(stop):
        total += fast_exp(values[z] - top)
    return top + fast_log(total)


@kernel
def _root_terms(
    structure: Structure,
    unary: FloatArray,
    weights: FloatArray,
    terms: FloatArray,
    by_variable: FloatArray,
) -> None:
    """``k_i log sum_y exp((th_i + sum_a f_ai) / k_i)``, the largest exponent if ``k_i = 0``."""
    most = 1
    for i in range(len(structure.cardinalities)):
        most = max(most, structure.cardinalities[i])
    scores = np.empty(most)
    for i in range(len(structure.cardinalities)):
        n, begin = structure.cardinalities[i], structure.unary_offsets[i]
        top = NO_WEIGHT
        for y in range(n):
            scores[y] = unary[begin + y]
            for position in range(
                structure.variable_slot_offsets[i], structure.variable_slot_offsets[i + 1]
            ):
                slot = structure.variable_slots[position]
                scores[y] += terms[structure.message_offsets[slot] + y]
            top = max(top, scores[y])
        by_variable[i] = top
        weight = weights[i]
        if weight > 0.0 and top > NO_WEIGHT:
            for y in range(n):
                scores[y] = (scores[y] - top) / weight
            by_variable[i] = top + weight * _log_sum(scores, n)
