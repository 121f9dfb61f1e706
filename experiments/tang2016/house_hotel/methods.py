"""Learning to match landmarks: methods, choice of the penalty, confidence of matches."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence as List
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.tang2016.house_hotel.data import Pair, Sequence
from fieldfit import Assignment, ConvergenceWarning, MatchingCRF, MaxMargin, MLEStruct

FloatArray = NDArray[np.float64]

UNWEIGHTED = "unweighted"
LEARNED = ("mle-struct", "max-margin")
METHODS = (*LEARNED, UNWEIGHTED)


@dataclass(frozen=True)
class Options:
    """What all trainings share; ``tol`` is the gap that ends `MLEStruct`."""

    kind: str
    rho: float
    tol: float
    max_iter: int
    n_jobs: int | None = None


@dataclass(frozen=True, eq=False)
class Learned:
    """A fitted model, how long that took, and its errors on training and validation pairs."""

    model: MatchingCRF
    l2: float
    seconds: float
    processor_seconds: float
    training_error: float
    validation_error: float


def scaled_features(
    sequence: Sequence, pairs: List[Pair], kind: str, scale: float | None = None
) -> tuple[list[FloatArray], float]:
    """Features of the pairs times a scale, and that.

    It makes a feature of these pairs -1 on average, so that penalties mean the same for all kinds.
    """
    features = [sequence.features(pair, kind) for pair in pairs]
    if scale is None:
        mean = -float(np.mean([one.mean() for one in features]))
        scale = 1.0 / mean if mean > 0.0 else 1.0
    return [scale * one for one in features], scale


def learn(
    method: str,
    training: List[FloatArray],
    validation: List[FloatArray],
    l2: float,
    options: Options,
) -> Learned:
    """Train on the pairs ``training``; whether it converged is for the table, not a warning."""
    objective = (
        MLEStruct(points="marginals", tol=options.tol) if method == "mle-struct" else MaxMargin()
    )
    model = MatchingCRF(
        objective,
        rho=options.rho if method == "mle-struct" else None,
        l2=l2,
        max_iter=options.max_iter,
        tol=1e-5,
        n_jobs=options.n_jobs,
    )
    wall, processor = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(training, _identities(training))
    seconds, busy = time.perf_counter() - wall, time.process_time() - processor
    return Learned(model, l2, seconds, busy, error_of(model, training), error_of(model, validation))


def choose(
    method: str,
    training: List[FloatArray],
    validation: List[FloatArray],
    penalties: List[float],
    options: Options,
) -> Learned:
    """The penalty with the smallest validation error, the larger of two that are as good."""
    found = [
        learn(method, training, validation, l2, options) for l2 in sorted(penalties, reverse=True)
    ]
    return min(found, key=lambda one: one.validation_error)


def error_of(model: MatchingCRF, pairs: List[FloatArray]) -> float:
    """Share of landmarks with the wrong partner."""
    return 1.0 - float(model.score(pairs, _identities(pairs)))


def unweighted_errors(features: List[FloatArray]) -> float:
    """Error of the best assignment by the sum over all bins."""
    wrong = [
        np.mean(Assignment().match(one.sum(axis=2)).partners != np.arange(len(one)))
        for one in features
    ]
    return float(np.mean(wrong))


def confidence(model: MatchingCRF, pairs: List[FloatArray]) -> list[dict[str, Any]]:
    """For each landmark: the probability of its partner, and where the true one stands."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        marginals = model.predict_marginals(pairs)
    for number, (partners, shares) in enumerate(zip(model.predict(pairs), marginals, strict=True)):
        for landmark, partner in enumerate(partners.tolist()):
            row = shares[landmark]
            found.append(
                {
                    "pair": number,
                    "landmark": landmark,
                    "partner": partner,
                    "is_right": partner == landmark,
                    "confidence": float(row[partner]),
                    "true_marginal": float(row[landmark]),
                    "true_rank": 1 + int((row > row[landmark]).sum()),
                }
            )
    return found


def _identities(pairs: List[FloatArray]) -> list[NDArray[np.int64]]:
    return [np.arange(len(x)) for x in pairs]
