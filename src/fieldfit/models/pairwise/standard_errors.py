"""Sandwich estimator (Huber-White robust covariance) of fitted weights: standard errors.

An estimator that solves ``sum_m v_m g_m(w) + l2 w = 0`` (``g_m``: gradient of the objective of
sample ``m``) is asymptotically normal around the weights that the same equation has in the
population, with

    covariance = J^-1 K J^-1,
    J = sum_m v_m grad g_m(w) + l2 I,        K = sum_m v_m^2 (g_m - g)(g_m - g)^T

where ``g`` is the weighted mean.  It holds whether or not the objective is a true likelihood: for
the pseudo-likelihood and for surrogates (Wainwright 2006, proposition 1), where ``J`` and ``K``
differ.  For the exact likelihood of a model that is true, ``J = K`` is Fisher's information.

Weights are importance weights: a sample of weight 2 counts as one observation of twice the
influence, not as two.  The penalty is part of the equation, so errors describe the shrunk estimate;
what the shrinking itself adds (a bias towards zero) is not in them.

Where the parametrisation is redundant, ``J`` has a null space (moving along it changes no
probability); the generalised inverse leaves it out, and the covariance is that of the part that
data can determine.

References: Huber, "The behavior of maximum likelihood estimates under nonstandard conditions",
Fifth Berkeley Symposium (1967); White, "Maximum likelihood estimation of misspecified models",
Econometrica 50 (1982).
"""

from __future__ import annotations

import numpy as np

from fieldfit._typing import FloatArray
from fieldfit.errors import TooLargeError
from fieldfit.models.pairwise.pairwise_problems import PairwiseProblem

__all__ = ["MAX_WEIGHTS", "sandwich_covariance"]

#: A dense covariance of this many weights takes 200 MB, and its inversion about a minute.
MAX_WEIGHTS = 5000
#: Eigenvalues of ``J`` below this share of the largest count as zero.
NULL_SHARE = 1e-10


def sandwich_covariance(problem: PairwiseProblem, weights: FloatArray, l2: float) -> FloatArray:
    """Covariance matrix of fitted weights."""
    if problem.n_weights > MAX_WEIGHTS:
        raise TooLargeError(
            f"standard errors need a dense matrix of all weights, at most {MAX_WEIGHTS}, "
            f"the model has {problem.n_weights}"
        )
    samples = problem.samples
    scores = problem.scores(weights)
    centre = samples.weights @ scores / samples.weights.sum()
    half = np.sqrt(samples.squared_weights)[:, None] * (scores - centre)
    bread = _generalised_inverse(problem.hessian(weights) + l2 * np.eye(problem.n_weights))
    root = half @ bread  # K = half^T half
    covariance: FloatArray = root.T @ root
    return covariance


def _generalised_inverse(matrix: FloatArray) -> FloatArray:
    """Inverse of a symmetric matrix on the complement of its null space."""
    values, vectors = np.linalg.eigh(matrix)
    large = np.abs(values) > NULL_SHARE * np.abs(values).max(initial=0.0)
    kept = vectors[:, large]
    inverse: FloatArray = (kept / values[large]) @ kept.T
    return inverse
