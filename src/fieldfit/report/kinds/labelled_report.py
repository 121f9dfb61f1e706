"""Reports of models that label the variables of examples: sequences, pictures, graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fieldfit._typing import FloatArray, LabelArray
from fieldfit.report.kinds.base import KindReport, require_some_examples
from fieldfit.report.label_colors import label_legend
from fieldfit.report.page_parts import Section, card, words
from fieldfit.report.predictions import (
    Predictions,
    bounds_section,
    collected_warnings,
    in_chunks,
    n_affordable,
    score_sections,
    warning_words,
)

__all__ = ["LabelledReport", "Shown"]


@dataclass(frozen=True)
class Shown:
    """One example for the page: labels flat, ``given`` is ``None`` if nobody knows them."""

    index: int
    x: Any
    given: LabelArray | None
    predicted: LabelArray
    marginals: FloatArray

    @property
    def confidence(self) -> FloatArray:
        return np.asarray(self.marginals[np.arange(len(self.predicted)), self.predicted])

    @property
    def wrong(self) -> Any:
        """Where a known label was not predicted."""
        if self.given is None:
            return np.zeros(len(self.predicted), dtype=bool)
        return (self.given != -1) & (self.given != self.predicted)


class LabelledReport(KindReport):
    """Predictions of the first examples, scores of all; subclasses draw an example."""

    #: What has a label, and what an example is called.
    unit: ClassVar[str] = "labels"
    example: ClassVar[str] = "Example"

    # -- what subclasses say ----------------------------------------------------------------

    def n_labels(self) -> int:
        return int(self.estimator.n_labels_)

    def sizes(self) -> list[int]:
        """Numbers of variables of the examples."""
        model = self.estimator
        return [model._measure(k, x).n_variables for k, x in enumerate(self.request.X)]

    def draw(self, shown: Shown) -> str:
        """HTML of an example with its prediction."""
        raise NotImplementedError

    def about_examples(self) -> str:
        """A sentence on how to read the drawings."""
        return ""

    def further_scores(self, found: Predictions, count: int) -> dict[str, Any]:
        """Scores that only this kind has, of the first examples."""
        return {}

    # -- data -------------------------------------------------------------------------------

    def check_data(self) -> None:
        X, Y = self.request.X, self.request.Y
        require_some_examples(X)
        if Y is not None:
            self.estimator._require_examples(X, Y)
        _ = self._given, self._sizes  # complain before the first inference

    @cached_property
    def _given(self) -> list[LabelArray] | None:
        """Labels by number, flat: -1 unknown, -2 not among those of the training data."""
        if self.request.Y is None:
            return None
        found: list[LabelArray] = self.estimator._labels(self.request.X, self.request.Y)
        return found

    @cached_property
    def _sizes(self) -> list[int]:
        return self.sizes()

    def data_sections(self) -> list[Section]:
        X, names = self.request.X, self.label_names()
        count = n_affordable(self._sizes)
        with collected_warnings() as told:
            labels, marginals = self._predicted(X, count)
        examples = [
            Shown(
                index,
                X[index],
                None if self._given is None else self._given[index],
                labels[index],
                marginals[index],
            )
            for index in range(min(count, self.request.n_examples))
        ]
        sections = [self._examples(examples, warning_words(told))] if examples else []
        if self._given is None:
            return sections
        given = np.concatenate(self._given[:count])
        found = Predictions(
            names,
            np.maximum(given, -1),
            np.concatenate(labels),
            np.concatenate(marginals),
            count,
            len(X),
        )
        further = self.further_scores(found, count)
        sections += score_sections(found, self.unit, further, int((given < -1).sum()))
        return sections + self._bounds()

    def _predicted(self, X: Sequence[Any], count: int) -> tuple[list[LabelArray], list[FloatArray]]:
        """Labels and marginals of the first examples, flat."""
        model, n_labels = self.estimator, len(self.label_names())
        objective = model._objective()
        by_marginals = model._decoding(objective) == "marginals"
        labels, marginals = [], []
        for chunk in in_chunks(count, "predictions"):
            beliefs = [b.reshape(-1, n_labels) for b in model.predict_marginals(X[chunk])]
            marginals += beliefs
            if by_marginals:
                labels += [b.argmax(axis=1).astype(np.int32) for b in beliefs]
            else:
                encoded = model._encode(X[chunk])
                labels += list(model._best_labels(objective, encoded, model.weights_)[0])
        return labels, marginals

    def _examples(self, examples: Sequence[Shown], told: str) -> Section:
        drawn = "".join(
            f'<div class="example"><h3>{self.example} {one.index}{_mistakes(one)}</h3>'
            f"{self.draw(one)}</div>"
            for one in examples
        )
        legend = label_legend(self.label_names())
        note = self.about_examples()
        return Section("Predictions", told + card(legend, drawn) + (words(note) if note else ""))

    def _bounds(self) -> list[Section]:
        """Brackets on the likelihood, where the model has them."""
        model, X, Y = self.estimator, self.request.X, self.request.Y
        if not hasattr(model, "log_likelihood_bounds") or model._objective().n_weight_sets > 1:
            return []
        return bounds_section(
            lambda chunk: model.log_likelihood_bounds(X[chunk], Y[chunk]),
            self._sizes,
            [size * len(self.label_names()) ** 2 for size in self._sizes],
        )


def _mistakes(one: Shown) -> str:
    if one.given is None or not (one.given >= 0).any():
        return ""
    wrong, known = int(one.wrong.sum()), int((one.given != -1).sum())
    return f": {wrong} of {known} wrong"
