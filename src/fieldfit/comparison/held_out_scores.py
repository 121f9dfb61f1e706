"""How well a fitted model does on examples that it has not seen: the same measures for all models.

``log_loss`` is ``-log p(label)`` in nats, of the model's own marginals.  Calibration compares how
sure a model is of the labels it predicts with how often these are right, in bins of the confidence,

    calibration error = sum over bins of  n_bin / n  |mean confidence - share that is right|.

Samples of one model (Ising, Potts) have no labels to predict; there every entry is predicted from
all others of its row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from fieldfit._typing import FloatArray
from fieldfit.errors import InvalidInputError, TooLargeError
from fieldfit.inference.junction_tree.exact import Exact
from fieldfit.models.penalties import standard_error
from fieldfit.objectives.likelihood import Likelihood
from fieldfit.report.charts import N_BINS, Calibration, calibration_bins

__all__ = ["EXACT_MATCHING", "HeldOutScores", "held_out_errors", "held_out_scores"]

#: Probabilities below this count as this: one label that a model excludes says enough.
LEAST_PROBABILITY = 1e-12
#: Bounds on the likelihood cost more than predictions, and a few examples tell their size.
MOST_BOUNDED = 10
#: The same for matchings, whose messages take seconds where weights are large.
MOST_BOUNDED_MATCHINGS = 3
#: Rows and columns of matchings that are summed up exactly.
EXACT_MATCHING = 10


#: Of a model, examples and labels.
Bounds = Callable[[Any, Any, Any], tuple[float | None, float | None]]


@dataclass(frozen=True)
class HeldOutScores:
    """Measures by example, so that methods can be compared pair by pair.

    Attributes
    ----------
    right, count
        Labels of each example that are right, and labels that are known.
    log_loss
        Sum over the known labels of each example.
    bins
        Of `calibration_bins`: number of labels, sum of their confidences, number that are right.
    lower, upper
        Proved bounds on the log-likelihood of an example, mean over some; ``None`` if there are
        none.
    """

    right: FloatArray
    count: FloatArray
    log_loss: FloatArray
    bins: FloatArray
    lower: float | None = None
    upper: float | None = None

    @classmethod
    def joined(cls, parts: Sequence[HeldOutScores]) -> Self:
        """Scores of all folds."""
        bounds = [one for one in parts if one.lower is not None and one.upper is not None]
        return cls(
            np.concatenate([one.right for one in parts]),
            np.concatenate([one.count for one in parts]),
            np.concatenate([one.log_loss for one in parts]),
            np.sum([one.bins for one in parts], axis=0),
            float(np.mean([one.lower for one in bounds])) if bounds else None,
            float(np.mean([one.upper for one in bounds])) if bounds else None,
        )

    @property
    def n_examples(self) -> int:
        return len(self.count)

    @property
    def error(self) -> float:
        """Share of labels that are wrong."""
        return 1.0 - float(self.right.sum() / self.count.sum())

    @property
    def error_se(self) -> float:
        """Standard error of `error`, over examples."""
        return standard_error(self.right, self.count)

    @property
    def mean_log_loss(self) -> float:
        return float(self.log_loss.sum() / self.count.sum())

    @property
    def log_loss_se(self) -> float:
        return standard_error(self.log_loss, self.count)

    @property
    def calibration_error(self) -> float:
        return self.calibration.error

    @property
    def calibration(self) -> Calibration:
        """Confidence against share of right labels."""
        return Calibration.of_bins(self.bins)

    @property
    def bracket(self) -> str:
        """Bounds on the log-likelihood of an example, or its value where they meet."""
        if self.lower is None or self.upper is None:
            return ""
        if abs(self.upper - self.lower) <= 1e-6 * max(1.0, abs(self.upper)):
            return f"{self.upper:.4g}"
        return f"{self.lower:.4g} .. {self.upper:.4g}"

    def losses(self, measure: str) -> FloatArray:
        """What each example adds to ``"error"`` or ``"log_loss"``."""
        return self.count - self.right if measure == "error" else self.log_loss

    def mean(self, measure: str) -> float:
        """``error`` or the mean of ``log_loss``."""
        return float(self.losses(measure).sum() / self.count.sum())

    def excess(self, other: HeldOutScores, measure: str) -> tuple[float, float]:
        """How much worse than another method on the same examples, and the standard error of it."""
        difference = self.losses(measure) - other.losses(measure)
        return (
            float(difference.sum() / self.count.sum()),
            standard_error(difference, self.count),
        )

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        arrays = {name: np.array(stored[name]) for name in ("right", "count", "log_loss", "bins")}
        return cls(**arrays, lower=stored["lower"], upper=stored["upper"])


def held_out_errors(model: Any, X: Any, Y: Any) -> HeldOutScores:
    """Which labels are right, and nothing that needs marginals besides: all that a search needs."""
    if Y is None:
        return _samples(model, X)
    if hasattr(model, "predict_weights"):
        found = [np.asarray(one) for one in model.predict(X)]
        pairs = [(np.asarray(y) == z).ravel() for y, z in zip(Y, found, strict=True)]
        right, count = [one.sum() for one in pairs], [len(one) for one in pairs]
    else:
        right, count = model._right_labels(X, Y)
    nothing = np.zeros(len(count))
    return HeldOutScores(
        np.array(right, dtype=float), np.array(count, dtype=float), nothing, np.zeros((N_BINS, 3))
    )


def held_out_scores(model: Any, X: Any, Y: Any, with_bounds: bool = True) -> HeldOutScores:
    """Scores of a fitted estimator; ``Y`` is ``None`` for samples."""
    bounds: Bounds = _example_bounds
    if Y is None:
        scores, bounds = _samples(model, X), _sample_bounds
    elif hasattr(model, "predict_weights"):
        scores = _matchings(model, X, Y)
    else:
        scores = _labelled(model, X, Y)
    if not scores.count.any():
        raise InvalidInputError("held-out examples must hold known labels, got none")
    lower, upper = _proved(bounds, model, X, Y) if with_bounds else (None, None)
    return replace(scores, lower=lower, upper=upper)


def _scores(
    probabilities: list[FloatArray], is_right: list[NDArray[np.bool_]], sure: list[FloatArray]
) -> HeldOutScores:
    """From the probability of each known label, whether it was found, and how sure the model is."""
    lost = [-np.log(np.maximum(one, LEAST_PROBABILITY)) for one in probabilities]
    confidence, right = np.concatenate(sure), np.concatenate(is_right)
    return HeldOutScores(
        np.array([float(one.sum()) for one in is_right]),
        np.array([float(len(one)) for one in is_right]),
        np.array([float(one.sum()) for one in lost]),
        calibration_bins(confidence, right),
    )


def _labelled(model: Any, X: Any, Y: Any) -> HeldOutScores:
    """Chains, pictures, graphs: labels of variables."""
    objective, encoded = model._objective(), model._encode(X, keep=True)
    found, _ = model._best_labels(objective, encoded, model.weights_)
    beliefs, _ = model._beliefs(objective, encoded, model.weights_)
    probabilities, right, sure = [], [], []
    for labels, best, table in zip(model._labels(X, Y), found, beliefs, strict=True):
        known = np.flatnonzero(labels != -1)
        own, rows = labels[known], table[known]
        # below -1: a label that was not there to be learned
        given = np.where(own >= 0, rows[np.arange(len(known)), np.maximum(own, 0)], 0.0)
        probabilities.append(given)
        right.append(best[known] == own)
        sure.append(rows[np.arange(len(known)), best[known]])
    return _scores(probabilities, right, sure)


def _samples(model: Any, samples: Any) -> HeldOutScores:
    """Every entry of complete rows, from the others of its row."""
    labels = model._labels(samples)
    labels = labels[(labels >= 0).all(axis=1)].astype(np.int64)
    if not len(labels):
        raise InvalidInputError("held-out samples must hold complete rows, got none")
    fields, tables = model._parameters.tables(model.weights_)
    logits = np.repeat(fields[None], len(labels), axis=0)
    for (i, j), table in zip(model.edges_, tables, strict=True):
        logits[:, i] += table[:, labels[:, j]].T
        logits[:, j] += table[labels[:, i]]
    probabilities = np.exp(log_softmax(logits, axis=2))
    given = np.take_along_axis(probabilities, labels[:, :, None], axis=2)[:, :, 0]
    best = probabilities.argmax(axis=2)
    return _scores(list(given), list(best == labels), list(probabilities.max(axis=2)))


def _matchings(model: Any, X: Any, Y: Any) -> HeldOutScores:
    """Partners of rows; with capacities, whether each edge is used."""
    probabilities, right, sure = [], [], []
    found = zip(Y, model.predict(X), model.predict_marginals(X), strict=True)
    for given, best, edges in found:
        truth, guess, marginals = np.asarray(given), np.asarray(best), np.asarray(edges)
        if truth.ndim == 2:
            used = np.where(truth == 1, marginals, 1.0 - marginals).ravel()
            probabilities.append(used)
            right.append((truth == guess).ravel())
            sure.append(np.where(guess == 1, marginals, 1.0 - marginals).ravel())
            continue
        alone = np.clip(1.0 - marginals.sum(axis=1), 0.0, 1.0)
        choices = np.column_stack([marginals, alone])  # the last column is partner -1
        rows = np.arange(len(truth))
        probabilities.append(choices[rows, truth])
        right.append(truth == guess)
        sure.append(choices[rows, guess])
    return _scores(probabilities, right, [np.clip(one, 0.0, 1.0) for one in sure])


# -- proved bounds ---------------------------------------------------------------------------


def _proved(bounds: Bounds, model: Any, X: Any, Y: Any) -> tuple[float | None, float | None]:
    """Bounds, if the model has any: several sets of weights have no likelihood."""
    try:
        lower, upper = bounds(model, X, Y)
    except (InvalidInputError, TooLargeError):
        return None, None
    is_proved = lower is not None and upper is not None and np.isfinite([lower, upper]).all()
    return (lower, upper) if is_proved else (None, None)


def _example_bounds(model: Any, X: Any, Y: Any) -> tuple[float | None, float | None]:
    X, Y = X[:MOST_BOUNDED], Y[:MOST_BOUNDED]
    if hasattr(model, "log_likelihood") and max(max(np.shape(x)[:2]) for x in X) <= EXACT_MATCHING:
        value = float(np.mean(model.log_likelihood(X, Y)))
        return value, value
    if hasattr(model, "log_likelihood_bounds"):
        if hasattr(model, "log_likelihood"):
            X, Y = X[:MOST_BOUNDED_MATCHINGS], Y[:MOST_BOUNDED_MATCHINGS]
        lower, upper = model.log_likelihood_bounds(X, Y)
        return float(np.mean(lower)), float(np.mean(upper))
    # a chain, whose likelihood is exact
    labels = np.concatenate(model._labels(X, Y))
    if (labels < 0).any():
        return None, None
    exact = model._problem_of_tokens(Likelihood(Exact()), model._encode(X), labels, None)
    value = -float(exact.evaluate(model.weights_).value) / len(X)
    return value, value


def _sample_bounds(model: Any, samples: Any, Y: Any) -> tuple[float | None, float | None]:
    n_rows = len(model._labels(samples))
    try:
        value = model.log_likelihood(samples) / n_rows
    except TooLargeError:
        lower, upper = model.log_likelihood_bounds(samples)
        return lower / n_rows, upper / n_rows
    return value, value
