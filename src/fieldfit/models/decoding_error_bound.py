"""Bound on the excess mean squared error of a surrogate model (Wainwright 2006), computable.

For two components, predictions from exact marginals ``mu`` and from a surrogate's ``tau`` differ by

    (tau_s(1) - mu_s(1)) (nu + gam y_s),     gam = om_1 - om_0,
                                             nu  = (1 - alpha om_1) nu_1 - (1 - alpha om_0) nu_0,

and because the exact prediction is the conditional expectation, the mean squared error grows by
the mean of the square of this.  With ``D`` a bound on the root mean square of
``tau_s(1) - mu_s(1)``, the inequality of Cauchy and Schwarz gives Theorem 1 of Wainwright,

    increase <= E[ D^2 nu^2 + D gam^2 sqrt(mean y^4) + 2 D |nu gam| sqrt(mean y^2) ],
    D = min{1, d_0 + L |r| / sqrt(N)},       r_s = log p(y_s | 1) / p(y_s | 0).

``d_0`` is the difference without any observation (0 in the limit of many samples, where fitted
beliefs are the true moments), and ``L`` bounds how differently the two react to a change of the
unary potentials.  Two facts make ``L`` computable.  Both reactions are positive semidefinite
matrices, so their difference is at most the larger of their norms; and these norms have bounds that
no unary potential can exceed (see `exact_stability` and `surrogate_stability`).

A second bound needs no theorem: whatever the other labels, the log-odds of a variable lie in an
interval given by its own tables, for the exact field as for the surrogate.  It is the sharper one
for weak couplings.

References: Wainwright, "Estimating the 'wrong' Markov random field", Advances in Neural Information
Processing Systems 18 (2005), and J. Machine Learning Research 7 (2006).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fieldfit._arrays import real_numbers
from fieldfit._typing import FloatArray
from fieldfit._validation import require_instance, require_number
from fieldfit.entropy.counting_numbers import CountingNumbers, Entropy
from fieldfit.errors import InvalidInputError, Place
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials, require_graph
from fieldfit.graph.spanning_forests import label_components
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.models.mixture_field import MixtureField
from fieldfit.models.mixture_problem import as_field

__all__ = ["ErrorBound", "error_bound", "exact_stability", "surrogate_stability"]


@dataclass(frozen=True)
class ErrorBound:
    """Bounds on the increase of the mean squared error, per variable.

    Attributes
    ----------
    bound
        Mean over the observed fields of the smaller of the two bounds.
    theorem, interval
        For each observed field the bound of Theorem 1, and the one from intervals of log-odds.
    distance
        ``D`` for each observed field.
    stability_exact, stability_surrogate
        Norms that bound the reaction to unary potentials; ``L`` is the larger one.
    """

    bound: float
    theorem: FloatArray
    interval: FloatArray
    distance: FloatArray
    stability_exact: float
    stability_surrogate: float


def error_bound(
    model: MixtureField,
    Y: ArrayLike,
    alpha: ArrayLike,
    truth: Potentials,
    *,
    offset: float = 0.0,
) -> ErrorBound:
    """Bound what predicting with the fitted surrogate can cost against the Bayes estimator.

    Parameters
    ----------
    model
        Fitted, with two components and a surrogate of proved strong concavity
        (`TreeReweighted` or `Convex`).
    Y, alpha
        Observed fields ``(n, N)`` from the true model, over which the bound is averaged, and
        the share of the signal in them: a number, or one for each field.
    truth
        Potentials of the true field, on the graph of the model.
    offset
        ``d_0``: root mean square difference of the model's beliefs and the true marginals
        without observations.

    Returns
    -------
    ErrorBound
        The bound and its parts.

    Examples
    --------
    >>> graph = FactorGraph.grid(4, 4, 2)
    >>> truth = Potentials(graph, factors=0.02 * np.array([[1.0, -1.0], [-1.0, 1.0]]))
    >>> model = MixtureField().assume(graph, truth)          # weak: nearly its own surrogate
    >>> observed = model.sample(50, alpha=0.3, random_state=0).observations
    >>> error_bound(model, observed, 0.3, truth).bound < 0.02
    True
    """
    require_instance("model", model, MixtureField, "MixtureField().fit(labels)")
    require_instance("truth", truth, Potentials, "Potentials(model.graph_)")
    require_number("offset", offset, at_least=0)
    model._require_fit()
    components = model._components()
    if components.n_components != 2:
        raise InvalidInputError(
            f"model must have two components for this bound, got {components.n_components}"
        )
    graph = model.graph_
    require_graph(graph, truth)
    share = real_numbers("alpha", alpha)
    if share.ndim == 1:
        share = share.reshape(-1, *(1 for _ in np.shape(Y)[1:]))
    given, shares = as_field("Y", Y, share, model.shape_)
    if np.isnan(given).any():
        raise InvalidInputError("must be completely observed for this bound, got NaN", Place("Y"))
    entropy = _entropy_of(model)
    exact = exact_stability(graph, truth)
    surrogate = surrogate_stability(graph, model.potentials_, entropy)

    likelihood, _, _ = components.condition(given, shares)
    ratio = likelihood[..., 1] - likelihood[..., 0]
    gain = components.gains(shares[:, 0])
    slope = gain[:, 1] - gain[:, 0]
    level = np.diff((1.0 - shares[:, :1] * gain) * components.means, axis=1)[:, 0]
    distance = np.minimum(1.0, offset + max(exact, surrogate) * np.sqrt(np.mean(ratio**2, axis=1)))
    theorem = (
        distance**2 * level**2
        + distance * slope**2 * np.sqrt(np.mean(given**4, axis=1))
        + 2.0 * distance * np.abs(level * slope) * np.sqrt(np.mean(given**2, axis=1))
    )
    totals = entropy.counting_numbers(graph).variable_total
    spread = _largest_difference(
        _odds(graph, truth, ratio, np.ones(graph.n_variables)),
        _odds(graph, model.potentials_, ratio, totals),
    )
    interval = np.mean((spread * (level[:, None] + slope[:, None] * given)) ** 2, axis=1)
    return ErrorBound(
        bound=float(np.mean(np.minimum(theorem, interval))),
        theorem=theorem,
        interval=interval,
        distance=distance,
        stability_exact=exact,
        stability_surrogate=surrogate,
    )


def exact_stability(graph: FactorGraph, potentials: Potentials) -> float:
    r"""Largest change of the exact marginals for a unit change of unary potentials, at most.

    The derivative is the covariance of the labels.  By Dobrushin's comparison theorem its
    entries are at most ``(1/4) (I - C)^{-1}``, where ``C_st = tanh |J_st|`` is the most that
    one label can move the other's conditional probability (``4 J`` is the log odds ratio of the
    table).  So its norm is at most ``1 / (4 (1 - |C|))`` if ``|C| < 1``, and never more than a
    quarter of the number of variables in a component.

    References: Dobrushin, Theory of Probability and its Applications 15 (1970); Künsch,
    Communications in Mathematical Physics 84 (1982).
    """
    influence = np.tanh(np.abs(_couplings(graph, potentials)))
    return min(_neumann(graph, influence), _largest_component(graph) / 4.0)


def surrogate_stability(graph: FactorGraph, potentials: Potentials, entropy: Entropy) -> float:
    r"""Largest change of a surrogate's unary beliefs for a unit change of unary potentials.

    For a tree-reweighted entropy, an average ``sum_F p_F H_F`` over forests, the derivative is at
    most the average over ``F`` of the covariances of the forest distributions that have the
    beliefs as marginals.  On a forest correlations multiply along paths, and the correlation of a
    pair is at most ``tanh(|J| / rho)`` because its log odds ratio is ``4 J / rho``.  The forests
    may be chosen as thinned random spanning trees, which contain a path with a probability of at
    most the product of its ``rho``.  Summing over paths gives the bound of `exact_stability` with
    ``C_st = rho_st tanh(|J_st| / rho_st)``.

    If no counting number is negative, the entropy is strongly concave with modulus
    ``4 c_i + 2 sum_a c_a`` in the direction of variable ``i``, and its inverse is a bound.
    """
    counting = entropy.counting_numbers(graph)
    coupling = np.abs(_couplings(graph, potentials))
    bounds = []
    if counting.bound is not None and bool(np.all(counting.variable_total == 1.0)):
        rho = np.where(counting.factor > 0.0, counting.factor, 1.0)
        bounds += [_neumann(graph, rho * np.tanh(coupling / rho)), _largest_component(graph) / 4.0]
    if bool(np.all(counting.variable >= 0.0)):
        bounds.append(1.0 / float(_modulus(graph, counting).min()))
    if not bounds:
        raise InvalidInputError(
            "entropy must be proved strongly concave, as TreeReweighted() or Convex() are, got "
            f"{entropy!r}: {counting.reason}"
        )
    return min(bounds)


# -- helpers ------------------------------------------------------------------------------


def _entropy_of(model: MixtureField) -> Entropy:
    inference = model._objective().prediction(model.graph_)
    if not isinstance(inference, SumProduct):
        raise InvalidInputError(
            f"model must predict with SumProduct under a concave entropy, got {inference!r}"
        )
    return inference.entropy


def _tables(graph: FactorGraph, potentials: Potentials) -> FloatArray:
    if graph.uniform_cardinality != 2 or not bool(np.all(graph.arities == 2)):
        raise InvalidInputError(f"graph must have two labels and pairwise factors, got {graph!r}")
    return potentials.factor_values.reshape(-1, 2, 2)


def _couplings(graph: FactorGraph, potentials: Potentials) -> FloatArray:
    """``J``: a quarter of the log odds ratio of every table."""
    tables = _tables(graph, potentials)
    odds: FloatArray = tables[:, 0, 0] + tables[:, 1, 1] - tables[:, 0, 1] - tables[:, 1, 0]
    return 0.25 * odds


def _neumann(graph: FactorGraph, influence: FloatArray) -> float:
    """``1 / (4 (1 - |C|))`` for the symmetric matrix of influences, or infinity."""
    from scipy.sparse import coo_matrix

    if graph.n_factors == 0:
        return 0.25
    first, second = graph.slot_variables.reshape(-1, 2).T
    matrix = coo_matrix(
        (
            np.concatenate([influence, influence]),
            (np.concatenate([first, second]), np.concatenate([second, first])),
        ),
        shape=(graph.n_variables, graph.n_variables),
    ).tocsr()
    radius = _upper_radius(matrix, graph.n_variables)
    return 0.25 / (1.0 - radius) if radius < 1.0 else np.inf


def _upper_radius(matrix: object, size: int) -> float:
    """A proved upper bound on the spectral radius of a non-negative symmetric matrix.

    By Collatz and Wielandt ``max_i (C v)_i / v_i`` is one for any positive vector ``v``; power
    iterations of ``I + C`` make it tight.
    """
    vector = np.ones(size)
    best = np.inf
    for _ in range(200):
        image = matrix @ vector  # type: ignore[operator]
        best = min(best, float(np.max(image / vector)))
        vector = vector + image
        vector /= vector.max()
        vector = np.maximum(vector, 1e-12)  # components of smaller radius fade, but stay positive
    return best


def _largest_component(graph: FactorGraph) -> int:
    labels = np.empty(graph.n_variables, dtype=np.int32)
    linking = graph.arities >= 2
    label_components(graph.scope_offsets, graph.slot_variables, linking, labels)
    return int(np.bincount(labels).max())


def _modulus(graph: FactorGraph, counting: CountingNumbers) -> FloatArray:
    around = np.bincount(
        graph.slot_variables,
        weights=counting.factor[graph.slot_factors],
        minlength=graph.n_variables,
    )
    modulus: FloatArray = 4.0 * counting.variable + 2.0 * around
    return modulus


def _odds(
    graph: FactorGraph, potentials: Potentials, ratio: FloatArray, totals: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Least and largest probability of label 1, whatever the messages or the other labels say.

    A table contributes to the log-odds of its first variable between the least and the largest
    ``t[1, k] - t[0, k]``; message passing then divides by the totals of the counting numbers.
    """
    tables = _tables(graph, potentials)
    first, second = graph.slot_variables.reshape(-1, 2).T
    unary = potentials.unary_matrix()
    low = unary[:, 1] - unary[:, 0]
    high = low.copy()
    for variables, odds in (
        (first, tables[:, 1, :] - tables[:, 0, :]),
        (second, tables[:, :, 1] - tables[:, :, 0]),
    ):
        np.add.at(low, variables, odds.min(axis=1))
        np.add.at(high, variables, odds.max(axis=1))
    return _logistic((ratio + low) / totals), _logistic((ratio + high) / totals)


def _largest_difference(
    first: tuple[FloatArray, FloatArray], second: tuple[FloatArray, FloatArray]
) -> FloatArray:
    """Largest distance between points of two intervals."""
    difference: FloatArray = np.maximum(first[1] - second[0], second[1] - first[0])
    return difference


def _logistic(x: FloatArray) -> FloatArray:
    value: FloatArray = 0.5 * (1.0 + np.tanh(0.5 * x))
    return value
