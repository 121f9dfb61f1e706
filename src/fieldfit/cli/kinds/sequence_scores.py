"""Scores of chains: accuracy, a table of labels and, for BIO labels, chunks."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np

from fieldfit.cli._evaluation import LabelCounts
from fieldfit.cli._output import format_pairs, format_table
from fieldfit.cli.kinds.base import Data, Report
from fieldfit.errors import InvalidInputError
from fieldfit.metrics import chunk_scores

__all__ = ["score_sequences"]

_CHUNK_LABEL = re.compile(r"O|[BI]-.+")


def score_sequences(model: Any, data: Data) -> Report:
    """Compare predicted with given labels; labels that the model does not know count as errors."""
    assert data.labels is not None
    predicted = [labels.tolist() for labels in model.predict(data.examples)]
    given = [list(labels) for labels in data.labels]
    names = [str(name) for name in model.classes_.tolist()]
    _warn_of_unseen(data, given, names)
    numbers = {name: number for number, name in enumerate(names)}
    truth = [
        -1 if name is None else numbers.setdefault(str(name), len(numbers))
        for labels in given
        for name in labels
    ]
    guess = [numbers[str(name)] for labels in predicted for name in labels]
    if max(truth, default=-1) < 0:
        raise InvalidInputError(f"{data.place(0)}: there must be a label to score against")
    counts = LabelCounts.of(np.array(truth), np.array(guess), list(numbers))
    fields: dict[str, Any] = {
        "n_examples": len(given),
        "n_labels": counts.n_labels,
        "accuracy": counts.accuracy,
        "labels": counts.rows(),
    }
    pairs: dict[str, Any] = {
        "sequences": f"{len(given)}, {counts.n_labels} tokens",
        "accuracy": counts.accuracy,
    }
    tables = [counts.table()]
    if "O" in numbers and all(_CHUNK_LABEL.fullmatch(name) for name in numbers):
        overall, *types = _chunk_rows(given, predicted)
        fields |= {"chunks": overall, "chunk_types": types}
        pairs["chunks"] = overall["given"]
        pairs |= {f"chunk {key}": overall[key] for key in ("precision", "recall", "f1")}
        if types:
            tables.insert(0, format_table(list(overall), types))
    return Report(fields, "\n\n".join([format_pairs(pairs), *tables]))


def _chunk_rows(given: list[list[Any]], predicted: list[list[Any]]) -> list[dict[str, Any]]:
    """Precision, recall and F1 of chunks, first of all together and then by their type."""
    return [
        {
            "type": name or "all",
            "given": score.n_true,
            "predicted": score.n_predicted,
            "precision": score.precision,
            "recall": score.recall,
            "f1": score.f1,
        }
        for name, score in chunk_scores(given, predicted).items()
    ]


def _warn_of_unseen(data: Data, given: list[list[Any]], names: list[str]) -> None:
    known = set(names)
    for index, labels in enumerate(given):
        for position, name in enumerate(labels):
            if name is not None and str(name) not in known:
                warnings.warn(
                    f"{data.place(index, position)}: the label {name!r} was not seen in training, "
                    "so it is never predicted",
                    UserWarning,
                    stacklevel=2,
                )
                return
