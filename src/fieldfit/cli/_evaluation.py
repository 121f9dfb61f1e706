"""Accuracy and tables for each label, from counts of given and predicted labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.cli._output import format_table

__all__ = ["LabelCounts"]


@dataclass(frozen=True)
class LabelCounts:
    """How often label ``k`` was given and ``l`` predicted: ``matrix[k, l]``."""

    names: tuple[str, ...]
    matrix: NDArray[np.int64]

    @classmethod
    def of(cls, given: NDArray[Any], predicted: NDArray[Any], names: Sequence[str]) -> LabelCounts:
        """Count pairs of flat integer labels; ``-1`` in ``given`` is not labelled."""
        known = given >= 0
        size = len(names)
        pairs = given[known].astype(np.int64) * size + predicted[known]
        counts = np.bincount(pairs, minlength=size * size).reshape(size, size)
        return cls(tuple(names), counts)

    @property
    def n_labels(self) -> int:
        """Number of given labels."""
        return int(self.matrix.sum())

    @property
    def accuracy(self) -> float:
        """Share of given labels that were predicted."""
        return float(np.trace(self.matrix)) / max(self.n_labels, 1)

    @property
    def mean_iou(self) -> float:
        """Mean intersection over union of the labels that were given or predicted."""
        values = [row["iou"] for row in self.rows() if np.isfinite(row["iou"])]
        return float(np.mean(values)) if values else np.nan

    def rows(self) -> list[dict[str, Any]]:
        """One row for each label; NaN where a number has no meaning (nothing given, ...)."""
        hits = np.diag(self.matrix).astype(np.float64)
        given = self.matrix.sum(axis=1)
        predicted = self.matrix.sum(axis=0)
        with np.errstate(invalid="ignore"):
            precision, recall = hits / predicted, hits / given
            f1 = 2.0 * hits / (given + predicted)
            iou = hits / (given + predicted - hits)
        return [
            {
                "label": name,
                "given": int(given[k]),
                "predicted": int(predicted[k]),
                "precision": float(precision[k]),
                "recall": float(recall[k]),
                "f1": float(f1[k]),
                "iou": float(iou[k]),
            }
            for k, name in enumerate(self.names)
        ]

    def table(self, with_iou: bool = False) -> str:
        """The rows as text, labels that neither occur nor were predicted left out."""
        keys = ["label", "given", "predicted", "precision", "recall", "f1"]
        shown = [row for row in self.rows() if row["given"] or row["predicted"]]
        return format_table(keys + ["iou"] * with_iou, shown)
