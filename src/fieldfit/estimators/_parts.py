"""From examples to parts: which examples are evaluated together, and their union with its template.

How examples are grouped depends on the data alone, never on the number of threads, so that sums
over parts are the same to the last bit whoever computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.batch import Batch
from fieldfit.core.graph import FactorGraph
from fieldfit.core.template import Block, Template
from fieldfit.learner.problem import Part

__all__ = ["Example", "block_shapes", "even_groups", "make_parts", "mini_batches"]

FloatArray = NDArray[np.float64]
LabelArray = NDArray[np.int32]
#: Blocks of a union graph with the given features of variables and factors.
BlockMaker = Callable[[FactorGraph, Any, FloatArray | None], list[Block]]

#: Parts hold tables of at most eight megabytes, which a processor's cache almost holds ...
MOST_ENTRIES = 2**20
#: ... and at least half a megabyte, so that what a call costs by itself (about a millisecond) does
#: not count; in between there are enough parts to keep several threads busy.
LEAST_ENTRIES = 2**16
WANTED_PARTS = 8
#: Mini-batches of a stochastic learner in an epoch, if there are enough examples.
MINI_BATCHES = 20


@dataclass(frozen=True)
class Example:
    """One graph with its features.

    ``features`` has a row for each variable (dense or CSR); ``edge_features`` one for each factor.
    """

    graph: FactorGraph
    features: Any
    edge_features: FloatArray | None = None


def even_groups(entries: Sequence[int], batch_size: int | None = None) -> list[NDArray[Any]]:
    """Consecutive examples in groups of about equal numbers of table entries.

    ``entries`` has the number of entries of each example's potentials; ``batch_size`` is the
    number of examples in a group, if it is given.
    """
    count = len(entries)
    if batch_size is not None:
        return [
            np.arange(start, min(start + batch_size, count))
            for start in range(0, count, batch_size)
        ]
    sizes = np.asarray(entries, dtype=np.float64)
    total = float(sizes.sum())
    limit = min(max(total / WANTED_PARTS, LEAST_ENTRIES), MOST_ENTRIES)
    n_groups = max(1, int(np.ceil(total / limit)))
    # an example belongs to the group in which its middle lies
    middles = np.cumsum(sizes) - 0.5 * sizes
    places = np.floor(middles * n_groups / max(total, 1.0)).astype(np.int64)
    cuts = np.flatnonzero(np.diff(places)) + 1
    return [group for group in np.split(np.arange(count), cuts) if len(group)]


def mini_batches(count: int, batch_size: int | None = None) -> list[NDArray[Any]]:
    """Groups for a stochastic learner: every ``P``-th example, because data often come sorted."""
    size = max(1, -(-count // MINI_BATCHES)) if batch_size is None else batch_size
    n_groups = -(-count // size)
    return [np.arange(first, count, n_groups) for first in range(n_groups)]


def make_parts(
    groups: Sequence[NDArray[Any]],
    example: Callable[[int], Example],
    make_blocks: BlockMaker,
    labels: Sequence[LabelArray] | None = None,
    weights: FloatArray | None = None,
) -> Iterator[Part]:
    """One part for each group, made when it is asked for; ``example`` is called once for each."""
    unions: dict[tuple[int, ...], Batch] = {}
    for group in groups:
        chosen = [example(int(index)) for index in group]
        batch = _union([one.graph for one in chosen], unions)
        edge_features = None
        if chosen[0].edge_features is not None:
            edge_features = np.concatenate([one.edge_features for one in chosen])
        blocks = make_blocks(batch.graph, _stacked([one.features for one in chosen]), edge_features)
        yield Part(
            batch,
            Template(batch.graph, blocks),
            np.full(batch.graph.n_variables, -1, dtype=np.int32)
            if labels is None
            else np.concatenate([labels[index] for index in group]),
            None if weights is None else weights[group],
        )


def block_shapes(templates: Sequence[Template]) -> dict[str, tuple[int, ...]]:
    """Shapes of the weights by the name of their block, in order.

    Where a template comes several times it is that of several sweeps, whose number is added.
    """
    if len(set(map(id, templates))) == len(templates):
        return {
            block.name: block.weight_shape for template in templates for block in template.blocks
        }
    return {
        f"{block.name}, sweep {sweep}": block.weight_shape
        for sweep, template in enumerate(templates, start=1)
        for block in template.blocks
    }


def _union(graphs: list[FactorGraph], unions: dict[tuple[int, ...], Batch]) -> Batch:
    """The union of the graphs; equal unions of repeated graphs are one, and so are their plans."""
    distinct = {id(graph) for graph in graphs}
    if len(distinct) == len(graphs):
        return Batch.of(graphs)
    key = tuple(id(graph) for graph in graphs)
    if key not in unions:
        unions[key] = Batch.of(graphs)
    return unions[key]


def _stacked(features: list[Any]) -> Any:
    if len(features) == 1:
        return features[0]
    if any(hasattr(given, "tocsr") for given in features):
        from scipy.sparse import vstack

        return vstack(features, format="csr")
    return np.concatenate(features)
