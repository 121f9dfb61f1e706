"""Optimised edge appearance probabilities of tree-reweighted bounds, by conditional gradient.

As a function of the weights the bound is

    B(rho) = max_tau <th, tau> + sum_i H(tau_i) - sum_a rho_a I_a(tau),

with ``I_a`` the multi-information of factor ``a`` (mutual information for pairs): a maximum of
functions linear in ``rho``, hence convex, with derivative ``-I_a(tau*)``.  The best vertex of the
forest polytope is the spanning forest of maximum weight under ``I``; the step towards it is halved
until the bound improves, so the bound never loosens.  ``sum_a (forest_a - rho_a) I_a`` bounds what
is left to gain.  Wainwright, Jaakkola and Willsky (2005), section VI.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fieldfit._typing import FloatArray, IntArray
from fieldfit.entropy.counting_numbers import CountingNumbers
from fieldfit.graph.batch import Batch
from fieldfit.graph.potentials import Beliefs
from fieldfit.graph.ragged import reduce_rows, row_numbers
from fieldfit.graph.result import InferenceResult
from fieldfit.graph.spanning_forests import maximum_weight_forest

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["multi_information", "optimize_weights"]

MAX_STEPS = 50
MAX_HALVINGS = 6
#: Fraction of the starting weights that every vertex keeps: no weight can then vanish, and messages
#: (which divide by weights) stay well conditioned. The bound loosens by at most this fraction.
KEPT = 0.02
#: Stop when at most this much can be gained, relative to the bound.
RELATIVE_GAP = 1e-6


def multi_information(beliefs: Beliefs) -> FloatArray:
    """``I_a = sum_{i in a} H(tau_i) - H(tau_a)`` of every factor, at least 0."""
    graph = beliefs.graph
    of_variables = _entropies(beliefs.unary_values, graph.unary_offsets)
    of_factors = _entropies(beliefs.factor_values, graph.table_offsets)
    sums = np.bincount(
        graph.slot_factors, weights=of_variables[graph.slot_variables], minlength=graph.n_factors
    )
    return np.maximum(sums - of_factors, 0.0)


def optimize_weights(
    batch: Batch,
    start: CountingNumbers,
    solve: Callable[[CountingNumbers, InferenceResult | None], InferenceResult],
) -> InferenceResult:
    """Improve the weights of ``start``; ``solve`` runs message passing with given numbers.

    Every example of the batch has its own step, taken only where its own bound improves.
    """
    graph = batch.graph
    rho, first = start.factor.copy(), start.factor
    best = solve(start, None)
    if not best.converged or graph.is_acyclic:
        return best
    examples = row_numbers(batch.factor_offsets)
    for step in range(MAX_STEPS):
        information = multi_information(best.beliefs)
        forest = maximum_weight_forest(graph, information)
        target = np.where(graph.arities >= 2, (1.0 - KEPT) * forest + KEPT * first, 0.0)
        bounds = _bounds(best)
        gap = batch.sum_factors((target - rho) * information)
        wanted = gap > RELATIVE_GAP * np.maximum(1.0, np.abs(bounds))
        if not wanted.any():
            break
        size = np.where(wanted, 2.0 / (step + 2.0) if step else 0.5, 0.0)
        improved = False
        for _ in range(MAX_HALVINGS):
            trial = rho + size[examples] * (target - rho)
            result = solve(_numbers(batch, trial), best)
            gained = (_bounds(result) < bounds) & np.asarray(result.converged_examples)
            accepted = gained | (size == 0.0)
            if accepted.all():
                rho, best, improved = trial, result, True
                break
            size = np.where(accepted, size, size / 2.0)
        if not improved:
            # keep what helped: steps of the examples that gained, none for the others
            size = np.where(gained, size, 0.0)
            trial = rho + size[examples] * (target - rho)
            result = solve(_numbers(batch, trial), best)
            if not (result.converged and gained.any() and np.all(_bounds(result) <= bounds)):
                break
            rho, best = trial, result
    return best


def _numbers(batch: Batch, rho: FloatArray) -> CountingNumbers:
    return CountingNumbers.of_tree_weights(
        batch.graph, rho, bound="upper", reason="Optimised weights, a mixture of forests."
    )


def _bounds(result: InferenceResult) -> FloatArray:
    return np.asarray(result.log_partitions)


def _entropies(values: FloatArray, offsets: IntArray) -> FloatArray:
    """``-sum b log b`` of each row."""
    positive = np.where(values > 0.0, values, 1.0)
    return -reduce_rows(np.add, values * np.log(positive), offsets)
