r"""Implicit differentiation: vector-Jacobian products of the solution of a concave problem.

The beliefs ``b*`` maximise ``<th, b> - sum w b log b`` under the linear constraints ``A b = d`` of
local consistency.  With ``D = diag(w / b*)`` and the derivative ``g`` of a loss by the beliefs,

    dL/dth = (D^-1 - D^-1 A' (A D^-1 A')^-1 A D^-1) g =: m,
    dL/dw  = - m (log b* + 1)

because a change of ``w`` moves the condition of stationarity like a change of ``th`` by ``-(log b +
1)`` times as much.  ``m`` is itself the step of consistent beliefs under the gradient ``g``, so one
solve of the reduced KKT system (`marginal_hessian`) gives it.  ``D^-1 = b / w`` is always finite:
configurations without belief, by hard zeros or because they have vanished, get no gradient.

Weights of variables may be zero or negative (tree-reweighted entropies), as long as the whole
entropy is concave on consistent beliefs; those of factors of arity two or more are positive.

`perturbation_gradient` needs no linear system.  If the beliefs ``b`` are the gradient of a convex
function of the potentials, their Jacobian is symmetric, so

    dL/dth = (db/dth)' g = (db/dth) g ~ (b(th + r g) - b(th - r g)) / 2r,    g = dL/db,

by two more inferences.  The derivative by entropy weights is not of this form.

References: Domke, "Learning convex inference of marginals", thesis (2009), sections 4.5 and 4.6;
Domke, "Implicit differentiation by perturbation", Advances in Neural Information Processing
Systems 23 (2010).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray
from fieldfit.entropy.configuration_weights import EntropyWeights
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.potentials import Beliefs, Potentials, add_to_single_factors, folded_unary
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.second_order.marginal_hessian import IndefiniteError, MarginalHessian

__all__ = [
    "RELATIVE_STEP",
    "ImplicitGradient",
    "implicit_gradient",
    "perturbation_gradient",
    "perturbation_steps",
]


@dataclass(frozen=True)
class ImplicitGradient:
    """Derivatives of a loss on the solution of a concave problem.

    Attributes
    ----------
    potentials
        By the potentials.
    weights
        By the entropy weights, laid out likewise; zero for factors of arity zero and one.
    residual
        The fraction of the right-hand side that the solve of the linear system left.
    """

    potentials: Potentials
    weights: Potentials
    residual: float


def implicit_gradient(
    beliefs: Beliefs,
    weights: EntropyWeights,
    derivative: Potentials,
    *,
    direct: bool | None = None,
    hessian: MarginalHessian | None = None,
) -> ImplicitGradient:
    """Derivatives of a loss by potentials and entropy weights (a vector-Jacobian product).

    Parameters
    ----------
    beliefs
        The maximum, to high accuracy: the theorem holds nowhere else.
    weights
        Entropy weights with which it is the maximum.
    derivative
        ``dL/db``, laid out like potentials.
    direct
        Factorise the system (true) or use conjugate gradients (false); by its size if ``None``.
    hessian
        The system at these beliefs, if a solver has left it (``convex_solver.run_with_hessian``).

    Raises
    ------
    IndefiniteError
        Where beliefs under positive weights are so nearly certain that rounding leaves no solution.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(2, 2)
    >>> potentials = ff.Potentials(graph, unary=[[0.0, 1.0], None])
    >>> beliefs = ff.SumProduct(ff.Convex()).run(graph, potentials).beliefs
    >>> loss = ff.Potentials(graph, unary=[[1.0, 0.0], None])
    >>> found = implicit_gradient(beliefs, EntropyWeights.of(ff.Convex(), graph), loss)
    >>> found.potentials.unary(0).round(4)
    array([ 0.1956, -0.1956])
    """
    graph = beliefs.graph
    if not (derivative.graph.has_structure_of(graph) and weights.graph.has_structure_of(graph)):
        raise InvalidInputError(
            f"derivative and weights must belong to the graph of the beliefs ({graph!r}), "
            f"got {derivative.graph!r} and {weights.graph!r}"
        )
    linking = np.repeat(graph.arities >= 2, np.diff(graph.table_offsets))
    if np.any(weights.factor_values[linking] <= 0.0):
        raise InvalidInputError("weights of factors must be above 0, got others")
    factors = np.where(linking, beliefs.factor_values, 0.0)
    try:
        if hessian is None:
            hessian = MarginalHessian(
                graph, beliefs.unary_values, factors, weights.unary_values, weights.factor_values,
                direct=direct,
            )  # fmt: skip
        step = hessian.solve(
            folded_unary(derivative), np.where(linking, derivative.factor_values, 0.0)
        )
    except IndefiniteError as error:
        if weights.is_positive:  # the entropy is concave; what fails is arithmetic
            raise
        raise InvalidInputError(
            "weights must make an entropy that is concave at the beliefs, got others: the reduced "
            "KKT matrix is not positive definite"
        ) from error
    by_weights = Potentials.from_flat(
        graph,
        _by_weights(beliefs.unary_values, step.unary),
        _by_weights(factors, step.factors),
    )
    tables = step.factors
    add_to_single_factors(graph, step.unary, tables)
    gradient = Potentials.from_flat(graph, step.unary, tables)
    return ImplicitGradient(gradient, by_weights, step.residual)


def _by_weights(beliefs: FloatArray, gradient: FloatArray) -> FloatArray:
    """``- m (log b + 1)``, 0 where there is no belief."""
    logs = np.log(beliefs, out=np.full(len(beliefs), -1.0), where=beliefs > 0.0)
    return -gradient * (logs + 1.0)


# -- by perturbation ----------------------------------------------------------------------------

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
    The step follows from what rounding and the cubic term cost together: ``r = (1 + max |th|) / max
    |g|`` times the cube root of the rounding unit, by example, as examples do not share potentials.
    An error ``e`` of the beliefs becomes ``e / r``, so the inference has to be run to a tight
    tolerance.
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
