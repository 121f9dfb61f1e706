"""Two-sided bounds on log-likelihoods where the log-partition is out of reach.

    log p(y) = A(th; y) - A(th)

``A(th)`` is the log-partition, ``A(th; y)`` the one with the labels ``y`` observed (the score, if
all are).  Tree-reweighted message passing bounds both from above and mean field from below, so

    A_low(th; y) - A_high(th)  <=  log p(y)  <=  A_high(th; y) - A_low(th)

Reference: Wainwright, Jaakkola and Willsky, "A new class of upper bounds on the log partition
function", IEEE Trans. Information Theory 51 (2005).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fieldfit._arrays import plain_array
from fieldfit._typing import FloatArray, LabelArray
from fieldfit.entropy.counting_numbers import Convex, TreeReweighted
from fieldfit.errors import TooLargeError, ZeroWeightError
from fieldfit.graph.batch import Batch
from fieldfit.graph.potentials import Potentials, observed_labels, selected_entries
from fieldfit.inference.base import require_model
from fieldfit.inference.junction_tree.exact import Exact
from fieldfit.inference.mean_field.mean_field import MeanField
from fieldfit.inference.messages.sum_product import SumProduct

__all__ = ["log_likelihood_bounds", "log_partition_bounds"]

#: Beyond these a bound is quicker than the exact value by far.
MAX_EXACT_MEMORY = 2e8
MAX_EXACT_OPERATIONS = 2e8


def log_partition_bounds(
    batch: Batch, potentials: Potentials, observed: LabelArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Lower and upper bounds on the log-partition of each example; equal where exact is cheap.

    An example's bounds do not depend on its company: examples that are too many for exact inference
    are bounded one by one, each exactly if it can be.
    """
    exact = Exact(max_memory=MAX_EXACT_MEMORY, max_operations=MAX_EXACT_OPERATIONS)
    try:
        result = exact.run_batch(batch, potentials, observed)
    except TooLargeError:
        if batch.n_examples > 1:
            return _joined(
                [log_partition_bounds(*one) for one in _one_by_one(batch, potentials, observed)]
            )
    else:
        assert result.log_partitions is not None
        return result.log_partitions, result.log_partitions
    lower = MeanField(n_restarts=2, random_state=0).run_batch(batch, potentials, observed)
    upper = SumProduct(TreeReweighted(), tol=1e-6).run_batch(batch, potentials, observed)
    assert lower.log_partitions is not None
    assert upper.log_partitions is not None
    assert upper.converged_examples is not None
    values = upper.log_partitions
    if not upper.converged_examples.all():
        # tree-reweighted values bound only at convergence; the convex dual bounds anywhere
        convex = SumProduct(Convex(unary=0.0, factor=1.0)).run_batch(batch, potentials, observed)
        assert convex.log_partitions is not None
        values = np.where(upper.converged_examples, values, convex.log_partitions)
    return lower.log_partitions, values


def log_likelihood_bounds(
    batch: Batch, potentials: Potentials, labels: LabelArray
) -> tuple[FloatArray, FloatArray]:
    """Lower and upper bounds on ``log p(labels)`` of each example; ``-1`` is a missing label.

    Both are ``-inf`` where the labels are impossible.

    Parameters
    ----------
    batch
        The examples.
    potentials
        Of their union graph.
    labels
        One for each variable of the union graph.

    Returns
    -------
    lower, upper : array
        One value each for every example.

    Examples
    --------
    >>> import fieldfit as ff
    >>> batch = ff.graph.Batch.of([ff.FactorGraph.chain(2, 2)])
    >>> lower, upper = log_likelihood_bounds(batch, ff.Potentials(batch.graph), np.array([0, 1]))
    >>> lower.round(6).tolist(), upper.round(6).tolist()
    ([-1.386294], [-1.386294])
    """
    require_model(batch, potentials, None)
    labels = observed_labels(batch.graph, plain_array("labels", labels), name="labels")
    free_low, free_high = log_partition_bounds(batch, potentials)
    if np.all(labels >= 0):
        unary, table = selected_entries(batch.graph, labels)
        low = batch.sum_variables(potentials.unary_values[unary])
        low = low + batch.sum_factors(potentials.factor_values[table])
        high = low
    else:
        low, high = _observed_bounds(batch, potentials, labels)
    return low - free_high, np.minimum(high - free_low, 0.0)


def _observed_bounds(
    batch: Batch, potentials: Potentials, labels: LabelArray
) -> tuple[FloatArray, FloatArray]:
    """Bounds on the log-partition with labels observed, ``-inf`` where they are impossible."""
    try:
        return log_partition_bounds(batch, potentials, labels)
    except ZeroWeightError:
        if batch.n_examples == 1:
            return np.array([-np.inf]), np.array([-np.inf])
    # some example is impossible; this is rare, so each one is bounded by itself
    return _joined([_observed_bounds(*one) for one in _one_by_one(batch, potentials, labels)])


Bounds = tuple[FloatArray, FloatArray]


def _joined(found: list[Bounds]) -> Bounds:
    return np.concatenate([low for low, _ in found]), np.concatenate([high for _, high in found])


def _one_by_one(
    batch: Batch, potentials: Potentials, labels: LabelArray | None
) -> Iterator[tuple[Batch, Potentials, Any]]:
    """Each example as a batch of its own."""
    unary, table, variables = batch.unary_offsets, batch.table_offsets, batch.variable_offsets
    for m, alone in enumerate(batch.graphs):
        own = Potentials.from_flat(
            alone,
            potentials.unary_values[unary[m] : unary[m + 1]],
            potentials.factor_values[table[m] : table[m + 1]],
        )
        known = None if labels is None else labels[variables[m] : variables[m + 1]]
        yield Batch.of([alone]), own, known
