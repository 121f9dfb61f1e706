"""Predictions on data beside the truth: scores, calibration, confusions, bounds on likelihoods.

Examples are predicted in chunks, with a progress bar on a terminal once it takes more than a
moment; at most `MAX_VARIABLES` are, and the page says how many.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from fieldfit._typing import FloatArray, LabelArray
from fieldfit.errors import ConvergenceWarning
from fieldfit.report.charts import Calibration, calibration_chart
from fieldfit.report.heat_maps import confusion_table
from fieldfit.report.page_parts import Section, card, cards, table, tally, text, words

__all__ = [
    "Predictions",
    "bounds_section",
    "collected_warnings",
    "in_chunks",
    "n_affordable",
    "score_sections",
    "warning_words",
]

#: Most labels that are predicted for one report.
MAX_VARIABLES = 1_000_000
#: Most entries of the tables of examples whose likelihood is bracketed: some seconds.
MAX_BOUNDED = 200_000
#: Steps of the progress bar, and seconds until it appears.
N_STEPS, BAR_DELAY = 20, 1.0
#: Labels of a table of confusions; of more, the commonest.
MAX_CONFUSED = 30


# -- running over examples ----------------------------------------------------------------


def n_affordable(sizes: Sequence[int], most: int = MAX_VARIABLES) -> int:
    """How many examples from the first have together at most so many labels; one at least."""
    within = int(np.searchsorted(np.cumsum(sizes), most, side="right"))
    return min(len(sizes), max(1, within))


def in_chunks(count: int, what: str) -> Iterator[slice]:
    """Slices of the first examples, with a progress bar if they take long."""
    from tqdm import tqdm

    size = max(1, -(-count // N_STEPS))
    starts = range(0, count, size)
    # disable=None: no bar where standard error is no terminal
    with tqdm(starts, desc=what, leave=False, delay=BAR_DELAY, disable=None) as bar:
        for first in bar:
            yield slice(first, min(first + size, count))


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Sentences about inferences that did not converge, for the page; other warnings go on."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield found
    for one in caught:
        if issubclass(one.category, ConvergenceWarning):
            found.append(str(one.message))
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def warning_words(found: Sequence[str]) -> str:
    """Each sentence once."""
    return "".join(
        f'<div class="card status open"><p>{text(sentence)}</p></div>'
        for sentence in dict.fromkeys(found)
    )


# -- scores -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Predictions:
    """Labels of many examples, flat: given (below 0: unknown), predicted, and their marginals.

    ``n_examples`` were predicted, of ``n_given``.
    """

    names: Sequence[str]
    given: LabelArray
    predicted: LabelArray
    marginals: FloatArray
    n_examples: int
    n_given: int

    @property
    def confidence(self) -> FloatArray:
        """Probability of each predicted label."""
        return np.asarray(self.marginals[np.arange(len(self.predicted)), self.predicted])

    @property
    def counts(self) -> Any:
        """How often label ``k`` was given and ``l`` predicted."""
        size, known = len(self.names), self.given >= 0
        pairs = self.given[known].astype(np.int64) * size + self.predicted[known]
        return np.bincount(pairs, minlength=size * size).reshape(size, size)

    def calibration(self) -> Calibration:
        known = self.given >= 0
        right = self.given[known] == self.predicted[known]
        return Calibration.of(self.confidence[known], right)

    def log_loss(self) -> float:
        """Mean of ``- log p(true label)``."""
        known = self.given >= 0
        true = self.marginals[np.flatnonzero(known), self.given[known]]
        with np.errstate(divide="ignore"):
            return float(-np.mean(np.log(true)))

    def accuracy(self) -> float:
        known = self.given >= 0
        return float(np.mean(self.given[known] == self.predicted[known]))


def score_sections(
    found: Predictions, unit: str, further: dict[str, Any] | None = None, n_unseen: int = 0
) -> list[Section]:
    """Scores, calibration and confusions, where truth is known; ``unit`` is what has a label.

    ``further`` are scores of the kind's own; ``n_unseen`` labels are true that training did not
    have, which are left out of everything but the note.
    """
    n_known = int((found.given >= 0).sum())
    if n_known == 0:
        return []
    calibration = found.calibration()
    figures = {
        "accuracy": f"{100.0 * found.accuracy():.2f} %",
        "mean confidence": f"{100.0 * float(found.confidence[found.given >= 0].mean()):.2f} %",
        "log-loss": found.log_loss(),
        "calibration error": f"{100.0 * calibration.error:.2f} %",
        **(further or {}),
    }
    note = (
        f"Over {n_known} {unit} of {found.n_examples} examples"
        f"{'' if found.n_examples == found.n_given else f' (the first of {found.n_given})'}. "
        "Accuracy: share of right labels. Confidence: probability of the label that was chosen; "
        "on average it should be the accuracy. Log-loss: mean of -log p(true label). Calibration "
        "error: mean distance of confidence and accuracy over tenths of confidence."
    )
    if n_unseen:
        note += f" {n_unseen} labels that training did not have count as unknown here."
    boxes = cards(
        card(
            calibration_chart(calibration),
            title="Calibration",
            note="Predictions in tenths of confidence, by area of the dot. On the dashed line a "
            "model is as often right as it says; below it, it is too sure of itself.",
        ),
        card(
            confusion_table(*_commonest(found)),
            title="Confusions",
            note="Rows are true labels. Right ones are blue, mistakes red, by share of a row.",
        ),
    )
    by_label = card(_label_table(found), title="Label by label")
    return [Section("Scores", tally(figures) + words(note) + boxes + by_label)]


def _commonest(found: Predictions) -> tuple[Any, list[str]]:
    """Counts and names of the commonest labels."""
    counts = found.counts
    totals = counts.sum(axis=0) + counts.sum(axis=1)
    order = np.argsort(-totals, kind="stable")
    kept = np.sort(order[totals[order] > 0][:MAX_CONFUSED])
    return counts[np.ix_(kept, kept)], [found.names[k] for k in kept]


def _label_table(found: Predictions) -> str:
    counts = found.counts
    rows = []
    for k, name in enumerate(found.names):
        given, predicted = int(counts[k].sum()), int(counts[:, k].sum())
        hits = int(counts[k, k])
        if given or predicted:
            precision = hits / predicted if predicted else None
            recall = hits / given if given else None
            rows.append((name, given, predicted, precision, recall, 2 * hits / (given + predicted)))
    header = ("label", "given", "predicted", "precision", "recall", "F1")
    return table(header, rows, caption="Scores of each label")


# -- certificates -------------------------------------------------------------------------


def bounds_section(
    bounds: Callable[[slice], tuple[Any, Any]],
    sizes: Sequence[int],
    costs: Sequence[int],
    unit: str = "label",
    reasons: str = "The lower one comes from an upper bound on the log-partition, by "
    "tree-reweighted messages; the upper one from a lower bound on it, by mean field.",
) -> list[Section]:
    """Proved bounds on the log-likelihood of the first examples, all of them if they are small.

    ``sizes`` counts what a ``unit`` is for each example, ``costs`` the entries of its tables, of
    which there must not be too many; ``reasons`` says where bounds come from.
    """
    if costs[0] > MAX_BOUNDED:
        return []
    count = n_affordable(costs, MAX_BOUNDED)
    lower, upper = [], []
    with collected_warnings() as told:
        for chunk in in_chunks(count, "bounds"):
            below, above = bounds(chunk)
            lower.append(np.atleast_1d(below))
            upper.append(np.atleast_1d(above))
    low, high = float(np.concatenate(lower).sum()), float(np.concatenate(upper).sum())
    n_labels = int(np.sum(sizes[:count]))
    figures = {
        "lower bound": low,
        "upper bound": high,
        f"gap per {unit}": (high - low) / max(n_labels, 1),
    }
    is_exact = bool(np.isfinite(low) and high - low <= 1e-8 * max(1.0, abs(low)))
    said = "They agree: this is the exact value." if is_exact else reasons
    note = (
        f"The log-likelihood of {n_labels} {unit}s"
        f"{'' if count == len(sizes) else f' (of the first {count} of {len(sizes)} examples)'} "
        f"lies between these bounds, which are proved, whatever the objective was. {said}"
    )
    return [Section("Certificate", tally(figures) + words(note) + warning_words(told))]
