"""What a search for a matching returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fieldfit.errors import InvalidInputError

__all__ = ["Match"]


@dataclass(frozen=True)
class Match:
    """A matching of largest score.

    Attributes
    ----------
    edges
        Which edges are used, a boolean array of the shape of the weights (symmetric for a general
        graph).
    score
        Sum of the weights of the used edges, each counted once.
    """

    edges: NDArray[np.bool_]
    score: float

    @property
    def partners(self) -> NDArray[np.int32]:
        """Partner of each row (of each node in a general graph), -1 where there is none."""
        counts = self.edges.sum(axis=1)
        if counts.max(initial=0) > 1:
            row = int(np.argmax(counts))
            raise InvalidInputError(
                f"partners must be unique, got {counts[row]} for row {row}: read edges instead"
            )
        if self.edges.shape[1] == 0:
            return np.full(len(counts), -1, dtype=np.int32)
        found = np.where(counts == 1, self.edges.argmax(axis=1), -1)
        return np.asarray(found, dtype=np.int32)
