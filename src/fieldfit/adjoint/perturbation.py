r"""The derivative of a loss on beliefs by two more inferences, for any concave surrogate.

If the beliefs ``b`` are the gradient of a convex function of the potentials, their derivative is
symmetric, so

    dL/dth = (db/dth)' g = (db/dth) g ~ (b(th + r g) - b(th - r g)) / 2r,    g = dL/db.

This needs nothing of the inference but its beliefs.  The derivative by entropy weights is not of
this form; for those there is `implicit`.

The step follows from what rounding and the cubic term cost together: ``r = (1 + max |th|) / max
|g|`` times the cube root of the rounding unit, by example, as examples do not share potentials.  An
error ``e`` of the beliefs becomes ``e / r``, so the inference has to be run to a tight tolerance,
from the solution at hand.

Reference: Domke, "Implicit differentiation by perturbation", Advances in Neural Information
Processing Systems 23 (2010).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.batch import Batch
from fieldfit.core.potentials import Potentials
from fieldfit.core.result import InferenceResult

__all__ = ["RELATIVE_STEP", "perturbation_gradient", "perturbation_steps"]

FloatArray = NDArray[np.float64]

#: Cube root of the rounding unit: the best for central differences of functions of order one.
RELATIVE_STEP = float(np.finfo(np.float64).eps ** (1.0 / 3.0))


def perturbation_gradient(
    batch: Batch,
    potentials: Potentials,
    derivative: Potentials,
    infer: Callable[[Potentials], InferenceResult],
    relative_step: float = RELATIVE_STEP,
) -> tuple[Potentials, NDArray[np.bool_]]:
    """The derivative by potentials, and which examples' inferences converged.

    ``infer`` gives the beliefs for potentials near the given ones; it may start from those at hand.
    """
    graph = batch.graph
    steps = perturbation_steps(batch, potentials, derivative, relative_step)
    by_unary = np.repeat(steps, np.diff(graph.unary_offsets[batch.variable_offsets]))
    by_table = np.repeat(steps, np.diff(graph.table_offsets[batch.factor_offsets]))
    moved_unary, moved_tables = (
        by_unary * derivative.unary_values,
        by_table * derivative.factor_values,
    )
    found = []
    converged = np.ones(batch.n_examples, dtype=np.bool_)
    for sign in (1.0, -1.0):
        moved = Potentials.from_flat(
            graph,
            potentials.unary_values + sign * moved_unary,
            potentials.factor_values + sign * moved_tables,
        )
        result = infer(moved)
        found.append(result.beliefs)
        if result.converged_examples is not None:
            converged &= result.converged_examples
        else:
            converged &= result.converged
    plus, minus = found
    # an example whose loss has no slope at all has no gradient either
    gradient = Potentials.from_flat(
        graph,
        _quotient(plus.unary_values - minus.unary_values, by_unary),
        _quotient(plus.factor_values - minus.factor_values, by_table),
    )
    return gradient, converged


def perturbation_steps(
    batch: Batch, potentials: Potentials, derivative: Potentials, relative_step: float
) -> FloatArray:
    """``r`` of each example; 0 where the derivative vanishes."""
    sizes = 1.0 + _largest(batch, potentials)
    slopes = _largest(batch, derivative)
    return np.divide(
        relative_step * sizes, slopes, out=np.zeros(batch.n_examples), where=slopes > 0.0
    )


def _largest(batch: Batch, vector: Potentials) -> FloatArray:
    """The largest size of a finite entry of each example."""
    graph = batch.graph
    largest = np.zeros(batch.n_examples)
    for values, offsets in (
        (vector.unary_values, graph.unary_offsets[batch.variable_offsets]),
        (vector.factor_values, graph.table_offsets[batch.factor_offsets]),
    ):
        filled = np.flatnonzero(np.diff(offsets))
        if len(filled):
            sizes = np.where(np.isfinite(values), np.abs(values), 0.0)
            found = np.maximum.reduceat(sizes, offsets[filled])
            largest[filled] = np.maximum(largest[filled], found)
    return largest


def _quotient(difference: FloatArray, steps: FloatArray) -> FloatArray:
    return np.divide(difference, 2.0 * steps, out=np.zeros(len(difference)), where=steps > 0.0)
