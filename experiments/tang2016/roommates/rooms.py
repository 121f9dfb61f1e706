"""Dormitories with known preferences: people, their rooms, and how well weights are recovered.

Everybody fills in a questionnaire (hours of sleep, noise, tidiness, visitors, talk).  Pairs have
the absolute differences of the answers and the product of the centred answers about talk: two
talkers, or two silent people, suit each other better than one of each.  Rooms are perfect
matchings of a general graph, drawn exactly from

    p(Y) ~ exp(sum over rooms of <w, features of the pair>)

with hidden ``w``: the partner of the first one who has none, by its exact marginals given the rooms
that are drawn already.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.tang2016.roommates.scores import calibration_error, edge_logistic
from fieldfit import ConvergenceWarning, MatchingCRF, MLEStruct
from fieldfit.inference import matching_partition
from fieldfit.objectives import Objective

FloatArray = NDArray[np.float64]
Partners = NDArray[np.int32]

FEATURES = ("sleep", "noise", "tidiness", "visitors", "talk", "talk together")
#: Hidden weights.  Answers are uniform in [0, 1], so that a room of two people who could not differ
#: more about sleep is exp(4) times less likely.
PREFERENCES = np.array([-4.0, -3.0, -3.0, -2.0, 0.0, 1.5])

#: Methods, in the order of the report.
ROOM_METHODS = (
    "true weights", "likelihood", "mle-struct", "mle-struct-rw", "max-margin", "logistic",
)  # fmt: skip


@dataclass(frozen=True)
class Rooms:
    """Features ``(n, n, K)`` of the pairs of each dormitory, and everybody's room-mate."""

    X: list[FloatArray]
    Y: list[Partners]

    def part(self, begin: int, end: int) -> Rooms:
        """Some of the dormitories."""
        return Rooms(self.X[begin:end], self.Y[begin:end])


def draw_rooms(n_examples: int, n_people: int, rng: np.random.Generator) -> Rooms:
    """Dormitories of the model with the weights `PREFERENCES`."""
    features, partners = [], []
    for _ in range(n_examples):
        answers = rng.random((n_people, 5))
        apart = np.abs(answers[:, None] - answers[None])
        talk = 2.0 * answers[:, 4] - 1.0
        features.append(np.concatenate([apart, np.multiply.outer(talk, talk)[..., None]], axis=2))
        partners.append(_draw(features[-1] @ PREFERENCES, rng))
    return Rooms(features, partners)


def _draw(weights: FloatArray, rng: np.random.Generator) -> Partners:
    """One perfect matching, exactly."""
    partners = np.full(len(weights), -1, dtype=np.int32)
    left = np.arange(len(weights))
    while len(left):
        marginals = matching_partition(weights[np.ix_(left, left)], "general").marginals[0]
        first, second = left[0], left[rng.choice(len(left), p=marginals / marginals.sum())]
        partners[first], partners[second] = second, first
        left = left[(left != first) & (left != second)]
    return partners


# -- methods ------------------------------------------------------------------------------


def room_row(
    method: str, training: Rooms, test: Rooms, l2: float, tol: float, n_jobs: int | None
) -> dict[str, Any]:
    """Learn by one method, and what its weights are worth on other dormitories."""
    begin = time.perf_counter()
    intercept, converged = 0.0, None
    if method == "true weights":
        weights = PREFERENCES
    elif method == "logistic":
        weights, intercept, converged = edge_logistic(*_edges(training), l2)
    else:
        crf = _estimator(method, l2, tol, n_jobs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # it is a column of the table
            crf.fit(training.X, training.Y)
        weights, converged = crf.weights_, bool(crf.converged_)
    seconds = time.perf_counter() - begin
    return {
        "method": method,
        "seconds": seconds,
        "converged": converged,
        **_scores(method, weights, intercept, test),
    }


def _estimator(method: str, l2: float, tol: float, n_jobs: int | None) -> MatchingCRF:
    objective: str | Objective = method
    if method.startswith("mle-struct"):
        objective = MLEStruct(tol=tol)
    rho = 0.5 if method.endswith("-rw") else 1.0
    return MatchingCRF(
        objective, kind="general", rho=rho, l2=l2, max_iter=200, tol=tol, n_jobs=n_jobs
    )


def _fitted(weights: FloatArray, rho: float) -> MatchingCRF:
    """An estimator with these weights, to predict with."""
    crf = MatchingCRF(kind="general", rho=rho)
    crf.weights_, crf.n_features_in_ = weights, len(weights)
    return crf


def _scores(
    method: str, weights: FloatArray, intercept: float, test: Rooms
) -> dict[str, float | None]:
    crf = _fitted(weights, 0.5 if method.endswith("-rw") else 1.0)
    size = float(np.linalg.norm(weights) * np.linalg.norm(PREFERENCES))
    found: dict[str, float | None] = {
        "weight_error": float(np.linalg.norm(weights - PREFERENCES) / np.linalg.norm(PREFERENCES)),
        "cosine": float(weights @ PREFERENCES) / size if size > 0.0 else 0.0,
        "accuracy": crf.score(test.X, test.Y),
        "log_likelihood": None,
        "log_likelihood_lower": None,
        "calibration": None,
    }
    pairs, is_room = _edges(test)
    if method == "logistic":
        scores = pairs @ weights + intercept
        found["calibration"] = calibration_error(1.0 / (1.0 + np.exp(-scores)), is_room)
        return found
    if method == "max-margin":  # its scale means nothing
        return found
    found["log_likelihood"] = float(crf.log_likelihood(test.X, test.Y).mean())
    lower, _ = crf.log_likelihood_bounds(test.X, test.Y)
    found["log_likelihood_lower"] = float(lower.mean())
    if method in ("true weights", "likelihood"):
        marginals = [matching_partition(x @ weights, "general").marginals for x in test.X]
    else:
        marginals = crf.predict_marginals(test.X)
    found["calibration"] = calibration_error(_upper(marginals), is_room)
    return found


def _edges(rooms: Rooms) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Features of all pairs of all dormitories, and which share a room."""
    shared = [partners[:, None] == np.arange(len(partners))[None, :] for partners in rooms.Y]
    return _upper(rooms.X), _upper(shared)


def _upper(matrices: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Entries above the diagonal of all matrices, one after the other."""
    rows, columns = np.triu_indices(len(matrices[0]), 1)
    return np.concatenate([matrix[rows, columns] for matrix in matrices])
