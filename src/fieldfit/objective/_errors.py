"""Labels that the potentials rule out: refused by every objective, in one sentence.

A hard zero is part of the model's structure, not a weight that learning could move.  A value of
``+inf`` would end every line search without a word, so labels of weight zero raise
`ZeroWeightError` and name the example.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.batch import Batch
from fieldfit.core.potentials import Potentials
from fieldfit.errors import ZeroWeightError

__all__ = ["raise_impossible", "require_possible", "require_possible_where_seen"]


def require_possible(batch: Batch, scores: NDArray[np.float64]) -> None:
    """Refuse complete labels of which an example has the score ``-inf``."""
    bad = np.flatnonzero(np.isneginf(scores))
    if len(bad):
        raise ZeroWeightError(
            f"labels must have positive weight, those of example {bad[0]} of {batch.n_examples} "
            "are ruled out by a potential of -inf"
        )


def require_possible_where_seen(
    batch: Batch, potentials: Potentials, labels: NDArray[np.int32]
) -> None:
    """Refuse labels, of which some may be missing, that a single entry of ``-inf`` rules out."""
    graph = batch.graph
    seen = np.flatnonzero(labels >= 0)
    if len(seen) == graph.n_variables:
        require_possible(batch, batch.scores(potentials, labels))
        return
    scores = np.zeros(graph.n_variables)
    scores[seen] = potentials.unary_values[graph.unary_offsets[seen] + labels[seen]]
    n_missing = np.bincount(
        graph.slot_factors[labels[graph.slot_variables] < 0], minlength=graph.n_factors
    )
    local = np.zeros(graph.n_factors, dtype=np.int64)
    for position in range(int(graph.arities.max(initial=0))):
        has = np.flatnonzero((graph.arities > position) & (n_missing == 0))
        variables = graph.slot_variables[graph.scope_offsets[has] + position]
        local[has] = local[has] * graph.cardinalities[variables] + labels[variables]
    entries = potentials.factor_values[graph.table_offsets[:-1] + local]
    tables = np.where(n_missing == 0, entries, 0.0)
    require_possible(batch, batch.sum_variables(scores) + batch.sum_factors(tables))


def raise_impossible(batch: Batch, potentials: Potentials, labels: NDArray[np.int32]) -> NoReturn:
    """Name an example whose labels are ruled out, as well as single entries can tell."""
    require_possible_where_seen(batch, potentials, labels)
    raise ZeroWeightError(
        "labels must have positive weight, those of some example leave no label for a missing "
        "variable: a potential of -inf rules each of them out"
    )
