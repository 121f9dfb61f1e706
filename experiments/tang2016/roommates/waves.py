"""What is learned from some waves of speed dating, and what it is worth on others.

Two questions.  *Before* an evening nobody knows who will be popular: models have all features, and
say how probable each match is.  *Given the degrees*, everybody's number of matches, the question is
only who with whom: the b-matching is conditioned on the degrees, which takes everything that
concerns one person alone out of the likelihood, as in conditional logistic regression.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.tang2016.roommates.data import N_PAIR_FEATURES, Wave
from experiments.tang2016.roommates.scores import area_under_curve, edge_logistic, log_loss
from fieldfit import Assignment, ConvergenceWarning, MatchingCRF, MaxMargin, MLEStruct

FloatArray = NDArray[np.float64]

#: Methods for each question, in the order of the report.
BEFORE = ("base rate", "logistic", "mle-struct")
GIVEN_DEGREES = ("degrees only", "logistic", "mle-struct", "max-margin")
#: More matches than anybody had.
CAPACITY = 15
#: Partners that are proposed to everybody when matches are chosen before an evening.
N_PROPOSED = 2
#: Larger than any difference of scores: as many pairs are chosen as capacities allow.
BONUS = 1e3


def before_row(
    method: str, training: Sequence[Wave], test: Sequence[Wave], l2: float, n_jobs: int | None
) -> dict[str, Any]:
    """Probabilities of matches, and proposals of up to `N_PROPOSED` partners for everybody."""
    used = np.concatenate([wave.matches[wave.met] for wave in training]) > 0
    begin = time.perf_counter()
    converged: bool | None = None
    if method == "base rate":
        weights = np.zeros(training[0].features.shape[2] + 1)
        weights[-1] = np.log(used.mean() / (1.0 - used.mean()))
    elif method == "logistic":
        pairs = np.concatenate([wave.features[wave.met] for wave in training])
        found, intercept, converged = edge_logistic(pairs, used, l2)
        weights = np.append(found, intercept)
    else:
        crf = MatchingCRF(
            MLEStruct(points="marginals"),
            perfect=False, capacity=CAPACITY, l2=l2, max_iter=300, n_jobs=n_jobs,
        )  # fmt: skip
        weights, converged = _learn(crf, [_with_constant(wave) for wave in training], training)
    seconds = time.perf_counter() - begin
    scores = [wave.features @ weights[:-1] + weights[-1] for wave in test]
    probabilities = [1.0 / (1.0 + np.exp(-score)) for score in scores]
    if method == "mle-struct":  # prices of places are nearly 0, but not quite
        crf.weights_, crf.n_features_in_ = weights, len(weights)
        probabilities = crf.predict_marginals([_with_constant(wave) for wave in test])
    n_chosen = n_right = 0
    for wave, score in zip(test, scores, strict=True):
        edges = _choose(np.where(wave.met, score + BONUS, -np.inf), N_PROPOSED, perfect=False)
        n_chosen += int(edges.sum())
        n_right += int((edges * wave.matches).sum())
    return {
        "method": method,
        "seconds": seconds,
        "converged": converged,
        **_edge_scores(probabilities, test),
        # scores that do not differ choose nothing in particular
        "precision": None if method == "base rate" else n_right / n_chosen,
    }


def degrees_row(
    method: str, training: Sequence[Wave], test: Sequence[Wave], l2: float, n_jobs: int | None
) -> dict[str, Any]:
    """Who with whom, where everybody's number of matches is told."""
    pairs = [wave.features[..., :N_PAIR_FEATURES] for wave in training]
    begin = time.perf_counter()
    weights, converged = np.zeros(N_PAIR_FEATURES), None
    if method == "logistic":
        used = np.concatenate([wave.matches[wave.met] for wave in training]) > 0
        features = np.concatenate([wave.features[wave.met] for wave in training])
        found, _, converged = edge_logistic(features, used, l2)
        weights = found[:N_PAIR_FEATURES]  # what concerns one person changes nothing here
    elif method != "degrees only":
        objective = MaxMargin() if method == "max-margin" else MLEStruct(points="marginals")
        crf = MatchingCRF(objective, l2=l2, n_jobs=n_jobs)
        weights, converged = _learn(crf, pairs, training, [wave.degrees for wave in training])
    seconds = time.perf_counter() - begin
    crf = MatchingCRF()
    crf.weights_, crf.n_features_in_ = weights, N_PAIR_FEATURES
    given = [wave.features[..., :N_PAIR_FEATURES] for wave in test]
    degrees = [wave.degrees for wave in test]
    probabilities = crf.predict_marginals(given, capacities=degrees)
    chosen = crf.predict(given, capacities=degrees)
    n_right = sum(
        int((edges * wave.matches).sum()) for edges, wave in zip(chosen, test, strict=True)
    )
    scores: dict[str, float | None] = _edge_scores(probabilities, test)
    if method == "max-margin":  # its scale means nothing
        scores["log_loss"] = None
    return {
        "method": method,
        "seconds": seconds,
        "converged": converged,
        **scores,
        "precision": None
        if method == "degrees only"
        else n_right / sum(int(wave.matches.sum()) for wave in test),
    }


def _learn(
    crf: MatchingCRF, features: list[FloatArray], waves: Sequence[Wave], capacities: Any = None
) -> tuple[FloatArray, bool]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is a column of the table
        crf.fit(features, [wave.matches for wave in waves], capacities=capacities)
    return crf.weights_, bool(crf.converged_)


def _with_constant(wave: Wave) -> FloatArray:
    """Features and a constant, which every pair that met has."""
    constant = np.where(wave.met, 1.0, np.nan)[..., None]
    return np.concatenate([wave.features, constant], axis=2)


def _choose(weights: FloatArray, capacity: int, perfect: bool) -> NDArray[np.int32]:
    found = Assignment(perfect=perfect, capacity=capacity).match(weights)
    return np.asarray(found.edges, dtype=np.int32)


def _edge_scores(
    probabilities: Sequence[FloatArray], test: Sequence[Wave]
) -> dict[str, float | None]:
    """AUC within waves (their mean, weighted by pairs), and log-loss of all pairs."""
    areas, sizes = [], []
    for one, wave in zip(probabilities, test, strict=True):
        areas.append(area_under_curve(one[wave.met], wave.matches[wave.met] > 0))
        sizes.append(int(wave.met.sum()))
    p = np.concatenate([one[wave.met] for one, wave in zip(probabilities, test, strict=True)])
    used = np.concatenate([wave.matches[wave.met] for wave in test]) > 0
    return {"auc": float(np.average(areas, weights=sizes)), "log_loss": log_loss(p, used)}
