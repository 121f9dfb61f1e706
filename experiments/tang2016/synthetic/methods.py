"""Random matchings from a known distribution, and three ways to learn it from them."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fieldfit import LBFGS, Likelihood, MLEStruct
from fieldfit.inference import MatchingPolytope, matching_partition
from fieldfit.learners import DualFrankWolfe, Penalty
from fieldfit.models import ExactMatchings, MatchingExample, MatchingProblem

FloatArray = NDArray[np.float64]

#: Of the search by best matchings.
MAX_PASSES = 3000
#: Counting number of the nodes for each surrogate; ``None`` is the likelihood itself.
ESTIMATORS: dict[str, float | None] = {"exact": None, "bethe": 1.0, "rw": 0.5}


@dataclass(frozen=True, eq=False)
class Estimate:
    """Learned weights and what they are worth, per sample.

    ``log_likelihood`` is the true one, regularised; ``surrogate`` the largest value of what was
    maximised, on the safe side of the gap: reached by ``rw``, not to be surpassed by ``bethe``.
    """

    weights: FloatArray
    log_likelihood: float
    surrogate: float
    seconds: float
    converged: bool
    n_iter: int


def signal_weights(n: int, signal: float, noise: float, rng: np.random.Generator) -> FloatArray:
    """``signal`` on the diagonal, zero elsewhere, and normal noise on all edges."""
    return signal * np.eye(n) + noise * rng.normal(size=(n, n))


def sample_matchings(
    weights: FloatArray, n_samples: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Independent draws from ``p(Y) ~ exp(sum W_ij Y_ij)``, exact: partners of the rows.

    Rows choose one after the other, with the sum over all ways to go on as weight.
    """
    n = len(weights)
    rest = _log_sums(weights)
    used = np.zeros(n_samples, dtype=np.int64)
    partners = np.empty((n_samples, n), dtype=np.int64)
    bits = np.int64(1) << np.arange(n, dtype=np.int64)
    for row in range(n):
        is_free = (used[:, None] & bits) == 0
        after = rest[used[:, None] | bits]
        shares = np.where(is_free, np.exp(weights[row] + after - rest[used, None]), 0.0)
        ends = np.cumsum(shares, axis=1)
        drawn = (rng.random((n_samples, 1)) * ends[:, -1:] >= ends).sum(axis=1)
        partners[:, row] = drawn
        used |= bits[drawn]
    return partners


def _log_sums(weights: FloatArray) -> FloatArray:
    """For every set of columns in use (bits): log-sum over all ways to match the rows left.

    The number of columns in use is the next row.
    """
    n = len(weights)
    sets = np.arange(2**n)
    bits = 1 << np.arange(n)
    row = ((sets[:, None] & bits) != 0).sum(axis=1)
    rest = np.zeros(2**n)
    for size in range(n - 1, -1, -1):
        used = sets[row == size]
        terms = weights[size] + rest[used[:, None] | bits]
        rest[used] = np.logaddexp.reduce(
            np.where((used[:, None] & bits) == 0, terms, -np.inf), axis=1
        )
    return rest


def estimate(name: str, partners: NDArray[np.int64], l2: float, tol: float) -> Estimate:
    """One weight for each edge, from samples of the same graph.

    All samples have the same features, so they are one example: their mean matching, as many times
    as there are samples.
    """
    n_samples, n = partners.shape
    counts = np.zeros((n, n))
    np.add.at(counts, (np.arange(n), partners), 1.0)
    polytope = MatchingPolytope(np.ones((n, n), dtype=np.bool_))
    mean = polytope.values(counts / n_samples)
    example = MatchingExample(polytope, np.eye(n * n), mean, float(n_samples))
    rho = ESTIMATORS[name]
    penalty, start = Penalty(l2=l2), np.zeros(n * n)
    begin = time.perf_counter()
    if rho is None:
        exact = ExactMatchings(Likelihood(), [example], 1.0, 1)
        with threadpool_limits(limits=1, user_api="blas"):
            fit = LBFGS(max_iter=2000, tol=tol).minimize(exact, start, penalty=penalty)
        surrogate = -fit.trace[-1]["objective"] / n_samples
    else:
        objective = MLEStruct(points="marginals", tol=tol)
        problem = MatchingProblem(objective, [example], rho, 1)
        with threadpool_limits(limits=1, user_api="blas"):
            fit = DualFrankWolfe(objective).minimize(problem, start, penalty=penalty)
            if not fit.converged:  # Bethe's maximum may be at a vertex, where messages diverge
                objective = MLEStruct(tol=tol)
                problem = MatchingProblem(objective, [example], rho, 1)
                again = DualFrankWolfe(objective, max_iter=MAX_PASSES).minimize(
                    problem, start, penalty=penalty
                )
                fit = again if again.trace[-1]["gap"] < fit.trace[-1]["gap"] else fit
        last = fit.trace[-1]
        least = last["objective"] + (last["gap"] if name == "rw" else 0.0)
        surrogate = -least / n_samples
    seconds = time.perf_counter() - begin
    return Estimate(
        fit.weights.reshape(n, n),
        _log_likelihood(fit.weights.reshape(n, n), counts, n_samples, l2),
        surrogate,
        seconds,
        fit.converged,
        fit.n_iter,
    )


def _log_likelihood(weights: FloatArray, counts: FloatArray, n_samples: int, l2: float) -> float:
    """The true one, regularised, per sample."""
    score = float((weights * counts).sum()) - 0.5 * l2 * float((weights**2).sum())
    return score / n_samples - float(matching_partition(weights).log_partition)
