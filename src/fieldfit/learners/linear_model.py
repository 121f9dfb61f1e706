"""Sufficient statistics of complete data: the view of a problem that maximum entropy takes.

With complete labels a likelihood is ``sum_m B(Phi_m w) - <w, f>``: the data enter only through the
statistics ``f = sum_m Phi_m^T y_m``.  Learners that work on the beliefs themselves take this view
of a problem instead of its value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fieldfit._typing import FloatArray
from fieldfit.graph.batch import Batch
from fieldfit.graph.potentials import Beliefs, Potentials

__all__ = ["LinearMap", "LinearModel", "LinearPart"]


class LinearMap(Protocol):
    """``th = Phi w`` on the graph of a batch, and its transpose; `Template` is one."""

    def potentials(self, weights: FloatArray) -> Potentials:
        """``Phi w``."""
        ...

    def gradient(self, vector: Potentials | Beliefs) -> FloatArray:
        """``Phi^T`` of a vector that is laid out like potentials."""
        ...


@dataclass(frozen=True, eq=False)
class LinearPart:
    """Examples that are evaluated together.

    ``unary_statistics`` are the empirical marginals of the variables: indicators of labels, or
    frequencies where one example represents many samples.
    """

    batch: Batch
    mapping: LinearMap
    unary_statistics: FloatArray
    example_weights: FloatArray | None = None

    def weight_of_examples(self) -> FloatArray:
        """One factor for each example."""
        if self.example_weights is None:
            return np.ones(self.batch.n_examples)
        return self.example_weights


@dataclass(frozen=True, eq=False)
class LinearModel:
    """All parts, and the statistics of their labels."""

    parts: Sequence[LinearPart]
    statistics: FloatArray
    n_examples: int
    n_jobs: int = 1

    @property
    def n_weights(self) -> int:
        return len(self.statistics)
