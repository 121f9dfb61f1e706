"""Lipschitz constants of beliefs in the potentials: the stability of a variational surrogate.

Wainwright (2006), proposition 2: if the entropy is strongly concave, the beliefs are a globally
Lipschitz function of the potentials, ``|tau(th + e) - tau(th)| <= R |e|``.  Two figures say how
stable a model is:

* the *local* constant, the spectral norm of ``d tau / d th = grad^2 B`` at the given potentials;
* a *global* bound on ``R`` for every potentials on the graph, where one is proved.

The global bound is one over a modulus of strong concavity of ``H_c`` on the local polytope:

* Non-negative counting numbers, ``c_a > 0``: ``- grad^2 H_c = diag(c / tau) >= diag(c)``, and
  because ``tau_i`` is a sum of ``S`` entries of ``tau_a``, ``|dtau_i|^2 <= S |dtau_a|^2``: a
  fraction ``s`` of each factor's number can be given to its variables.  The best ``s`` is found by
  bisection.
* Mixtures of forests with weights ``rho``: the entropy of a forest ``T`` is the conjugate of its
  log-partition, whose Hessian is a covariance matrix of indicators with norm at most ``C = sum over
  i of (1 - 1/K_i) + sum over a in T of (1 - 1/K_a)`` (its trace).  Hence ``- grad^2 H_T`` is at
  least ``1/C`` on the coordinates of ``T``, and the average at least ``rho_a / C`` on those of a
  factor ``a``.

Reference: Wainwright, "Estimating the 'wrong' graphical model", J. Machine Learning Research 7
(2006).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from fieldfit.entropy.counting_numbers import CountingNumbers, Entropy
from fieldfit.errors import ConvergenceWarning
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.inference.second_order.linear_response import LinearResponse
from fieldfit.inference.second_order.marginal_hessian import IndefiniteError

__all__ = ["Stability", "lipschitz_bound", "stability"]


@dataclass(frozen=True)
class Stability:
    """Lipschitz constants of the beliefs in the potentials (Euclidean norms on both sides).

    ``bound`` is ``None`` where none is proved, as for Bethe's entropy on a graph with cycles;
    ``status`` is one sentence.

    Attributes
    ----------
    local
        Norm of the derivative of the beliefs at these potentials; infinite where there is none.
    bound
        The same for all potentials on the graph, or ``None`` where none is proved.
    converged
        Whether the beliefs and the norm were found to their tolerances.
    status
        One sentence.
    """

    local: float
    bound: float | None
    converged: bool
    status: str


def stability(
    graph: FactorGraph, potentials: Potentials, entropy: Entropy, tol: float = 1e-10
) -> Stability:
    """Local and global Lipschitz constants of the beliefs of `SumProduct` under an entropy.

    Parameters
    ----------
    graph, potentials
        The model.
    entropy
        `Bethe()`, `TreeReweighted()` or `Convex()`.
    tol
        Of the messages.

    Returns
    -------
    Stability
        The two constants.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.grid(2, 2, 2)
    >>> found = stability(graph, ff.Potentials(graph), ff.TreeReweighted())
    >>> 0.0 < found.local < found.bound
    True
    """
    result = SumProduct(entropy=entropy, tol=tol).run(graph, potentials)
    if not result.converged:
        warnings.warn(f"stability: {result.status}", ConvergenceWarning, stacklevel=2)
    counting = entropy.counting_numbers(graph)
    try:
        local = LinearResponse(graph, result.beliefs, counting).norm()
    except IndefiniteError:  # a free energy that is flat in some direction
        local = np.inf
    bound = lipschitz_bound(graph, counting)
    proved = "no global bound is proved" if bound is None else f"at most {bound:.3g} anywhere"
    return Stability(
        local=local,
        bound=bound,
        converged=result.converged,
        status=f"beliefs move by {local:.3g} times a small change of the potentials here, {proved}"
        + ("" if result.converged else f" (the beliefs did not converge: {result.status})"),
    )


def lipschitz_bound(graph: FactorGraph, counting: CountingNumbers) -> float | None:
    """A Lipschitz constant of the beliefs for all potentials on the graph, or ``None``."""
    linking = graph.arities >= 2
    if not bool(linking.any()):
        return 0.5  # p (1 - p) [1 -1; -1 1] has norm 2 p (1 - p); more labels do not exceed it
    bounds = []
    positive = bool(np.all(counting.factor[linking] > 0.0) and np.all(counting.variable >= 0.0))
    if positive:
        bounds.append(1.0 / _modulus(graph, counting))
    totals_are_one = np.allclose(counting.variable_total, 1.0, atol=1e-9)
    # Totals of 1 and a proof mean a mixture of forests, except for positive numbers of larger
    # arity, where the proof may be Shearer's inequality.
    other_proof = positive and bool(np.any(graph.arities[linking] > 2))
    if counting.bound in ("upper", "exact") and totals_are_one and not other_proof:
        bounds.append(_forest_bound(graph, counting))
    return min(bounds) if bounds else None


def _modulus(graph: FactorGraph, counting: CountingNumbers) -> float:
    """Largest ``m`` with ``sum c |dtau|^2 >= m |dtau|^2``: numbers of factors are split."""
    linking = np.flatnonzero(graph.arities >= 2)
    slots = np.flatnonzero(graph.arities[graph.slot_factors] >= 2)
    factors = graph.slot_factors[slots]
    variables = graph.slot_variables[slots]
    summed = np.diff(graph.table_offsets)[factors] / graph.cardinalities[variables]
    part = counting.factor[factors] / (graph.arities[factors] * summed)
    received = np.bincount(variables, part, minlength=graph.n_variables)
    least = float(counting.factor[linking].min())

    def modulus(s: float) -> tuple[float, float]:
        return (1.0 - s) * least, float((counting.variable + s * received).min())

    low, high = 0.0, 1.0
    for _ in range(60):  # the first falls and the second rises with s
        middle = (low + high) / 2.0
        factor, variable = modulus(middle)
        low, high = (middle, high) if factor > variable else (low, middle)
    return max(min(modulus(low)), min(modulus(high)))


def _forest_bound(graph: FactorGraph, counting: CountingNumbers) -> float:
    """``C / min rho`` for a mixture of forests."""
    linking = graph.arities >= 2
    sizes = np.diff(graph.table_offsets)[linking].astype(np.float64)
    traces = np.sort(1.0 - 1.0 / sizes)[::-1]
    # a forest has at most n - 1 factors of arity two or more
    trace = float((1.0 - 1.0 / graph.cardinalities).sum() + traces[: graph.n_variables - 1].sum())
    return trace / float(counting.factor[linking].min())
