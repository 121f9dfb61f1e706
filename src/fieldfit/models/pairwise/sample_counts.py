"""Sums over samples: weights of labels and of pairs of labels, added up shard by shard.

A likelihood of complete samples needs nothing else of them,

    V B(w) - <w, statistics>,        V = sum of the samples' weights,

so data on disk are read once for it.  Learning begins with the counts of single labels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray, LongArray
from fieldfit.models.pairwise.sample_conditionals import count_pairs
from fieldfit.models.pairwise.sample_data import Samples

__all__ = ["SampleCounts"]


@dataclass(frozen=True, eq=False)
class SampleCounts:
    """Weights of the samples that have each label and each pair of labels.

    Terms with a missing label are left out.  ``total`` is the sum of all weights; ``is_hidden``
    says which variables have no label in any sample.
    """

    unary: FloatArray  # (n_variables, K)
    tables: FloatArray  # (n_edges, K, K)
    total: float
    n_rows: int
    n_samples: int
    is_hidden: NDArray[np.bool_]

    @classmethod
    def of(cls, shards: Iterable[Samples], n_labels: int, edges: LongArray) -> SampleCounts:
        """Counts of each shard, added up in their order."""
        found: SampleCounts | None = None
        for shard in shards:
            unary = np.zeros((shard.n_variables, n_labels))
            tables = np.zeros((len(edges), n_labels, n_labels))
            count_pairs(shard.labels, shard.weights, edges, unary, tables)
            hidden = np.all(shard.labels < 0, axis=0)
            total = float(shard.weights.sum())
            one = cls(unary, tables, total, shard.n_rows, len(shard.inverse), hidden)
            found = one if found is None else found.plus(one)
        assert found is not None
        return found

    def plus(self, other: SampleCounts) -> SampleCounts:
        """Counts of both."""
        return SampleCounts(
            self.unary + other.unary,
            self.tables + other.tables,
            self.total + other.total,
            self.n_rows + other.n_rows,
            self.n_samples + other.n_samples,
            self.is_hidden & other.is_hidden,
        )
