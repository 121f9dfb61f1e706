"""Reports of pairwise Markov random fields: each variable predicted from all the others.

    p(y_i = k | all others) ∝ exp(f_i(k) + sum_j J_ij(k, y_j))

has no log-partition, so that calibration and confusions cost nothing beyond sums, whatever the
model's size.  Bounds on the likelihood of samples are shown where the model is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray
from fieldfit.errors import InvalidInputError
from fieldfit.report.kinds.base import KindReport
from fieldfit.report.page_parts import Section, card, table, tally, words
from fieldfit.report.predictions import (
    Predictions,
    bounds_section,
    in_chunks,
    n_affordable,
    score_sections,
)

__all__ = ["SamplesReport", "conditionals"]

#: Weights up to which standard errors are computed for a report: a second or two.
MAX_ERRORS = 1200
#: Table entries that are read for each sample and coupling, over all samples.
MAX_ENTRIES = 100_000_000


class SamplesReport(KindReport):
    """Of `IsingModel` and `PottsModel`; subclasses show the weights."""

    fitted_on = "X"

    def n_labels(self) -> int:
        return int(self.estimator._parameters.n_labels)

    def feature_names(self) -> list[str]:
        if self.request.feature_names is None:
            names: list[str] = self.estimator._names()
            return names
        return super().feature_names()

    def figures(self) -> dict[str, Any]:
        model = self.estimator
        found = {"variables": model.n_features_in_, "couplings": len(model.edges_)}
        if model._data is not None:
            found["samples"] = model._data.n_samples
        return found

    def check(self) -> None:
        if self.request.Y is not None:
            raise InvalidInputError(
                f"Y must be None for {type(self.estimator).__name__}, whose samples are X"
            )
        super().check()

    def check_data(self) -> None:
        with _about_x():
            self.estimator._other_samples(self.request.X)

    @cached_property
    def errors(self) -> tuple[FloatArray | None, str]:
        """Standard errors of the estimates, or why there are none."""
        model = copy(self.estimator)  # a covariance stays with the copy, and out of model files
        if model._covariance is None and len(model.weights_) > MAX_ERRORS:
            return None, (
                f"Standard errors are shown up to {MAX_ERRORS} weights, this model has "
                f"{len(model.weights_)}; standard_errors_ has them."
            )
        try:
            return model.standard_errors_, ""
        except InvalidInputError as error:
            sentence = str(error)
            return None, sentence[:1].upper() + sentence[1:].rstrip(".") + "."

    # -- data -------------------------------------------------------------------------------

    def data_sections(self) -> list[Section]:
        model, names = self.estimator, self.feature_names()
        labels = np.asarray(model._labels(self.request.X), dtype=np.int64)
        complete = labels[(labels >= 0).all(axis=1)]
        sections = [self._objective_value(len(labels))]
        if len(complete):
            size = max(1, len(model.edges_)) * self.n_labels()
            count = n_affordable([size] * len(complete), MAX_ENTRIES)
            beliefs = self._conditionals(complete, count)
            given = complete[:count].reshape(-1).astype(np.int32)
            found = Predictions(
                self.label_names(),
                given,
                beliefs.reshape(-1, self.n_labels()).argmax(axis=1).astype(np.int32),
                beliefs.reshape(-1, self.n_labels()),
                count,
                len(complete),
            )
            scores = score_sections(found, "entries")
            note = (
                "Each variable is predicted from all others of its sample; "
                f"{len(complete)} of {len(labels)} samples are complete."
            )
            sections += [
                Section(
                    "Variables predicted from the others",
                    words(note) + scores[0].body + _by_variable(found, names),
                )
            ]
        return sections + self._bounds(len(labels))

    def _conditionals(self, labels: NDArray[np.int64], count: int) -> FloatArray:
        _, potentials = self.estimator.to_model()
        q = self.n_labels()
        unary = potentials.unary_values.reshape(-1, q)
        tables = potentials.factor_values.reshape(-1, q, q)
        parts = [
            conditionals(unary, tables, self.estimator.edges_, labels[chunk])
            for chunk in in_chunks(count, "predictions")
        ]
        return np.concatenate(parts)

    def _objective_value(self, n_samples: int) -> Section:
        try:
            value = self.estimator.score(self.request.X)
        except InvalidInputError as error:
            return Section("Score", words(str(error)))
        shown = tally({"score per sample": value, "samples": n_samples})
        note = "Minus the fitted objective of a sample, without the penalty: larger is better."
        return Section("Score", shown + words(note))

    def _bounds(self, count: int) -> list[Section]:
        model, X = self.estimator, self.request.X
        # pairs of all variables converge slowly, so that their tables count more
        entries = 4 * len(model.edges_) * self.n_labels() ** 2
        return bounds_section(
            lambda _: model.log_likelihood_bounds(X), [count], [entries], "sample"
        )


@contextmanager
def _about_x() -> Any:
    """What is wrong with samples is said of the argument ``X``."""
    try:
        yield
    except InvalidInputError as error:
        if error.place is None:
            raise
        raise type(error)(error.requirement, replace(error.place, argument="X")) from None


def conditionals(
    unary: FloatArray, tables: FloatArray, edges: NDArray[np.int64], labels: NDArray[np.int64]
) -> FloatArray:
    """Distribution of every entry given the others of its row, shape (rows, variables, labels).

    >>> tables = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> found = conditionals(np.zeros((2, 2)), tables, np.array([[0, 1]]), np.array([[0, 1]]))
    >>> found[0].round(4).tolist()
    [[0.2689, 0.7311], [0.7311, 0.2689]]
    """
    scores = np.repeat(unary[None], len(labels), axis=0)
    for (i, j), table_ in zip(edges.tolist(), tables, strict=True):
        scores[:, i] += table_[:, labels[:, j]].T
        scores[:, j] += table_[labels[:, i]]
    scores -= scores.max(axis=2, keepdims=True)
    np.exp(scores, out=scores)
    return np.asarray(scores / scores.sum(axis=2, keepdims=True))


def _by_variable(found: Predictions, names: Sequence[str]) -> str:
    """How well each variable is predicted, against always saying its commonest label."""
    n_variables, n_labels = len(names), len(found.names)
    given = found.given.reshape(-1, n_variables)
    right = (given == found.predicted.reshape(-1, n_variables)).mean(axis=0)
    shares = np.stack([(given == k).mean(axis=0) for k in range(n_labels)])
    rows = [
        (name, float(right[i]), float(shares[:, i].max()), float(right[i] - shares[:, i].max()))
        for i, name in enumerate(names)
    ]
    header = ("variable", "predicted right", "commonest label", "gain")
    return card(table(header, rows, caption="Variables"), title="Variable by variable")
