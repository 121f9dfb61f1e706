"""The regions of a batch: those of its examples, one after the other in each layer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.batch import Batch
from fieldfit.core.region_maps import offsets_of
from fieldfit.core.regions import RegionGraph

__all__ = ["union_of_regions"]


def union_of_regions(batch: Batch, parts: list[RegionGraph]) -> RegionGraph:
    """Outer regions of all examples, then inner ones of all; equal parts share their maps."""
    outer_starts = _starts([part.n_outer for part in parts])
    inner_starts = outer_starts[-1] + _starts([part.n_inner for part in parts])
    distinct = {id(part): part for part in parts}
    pool_starts = _starts([len(part.maps) for part in distinct.values()])
    pool_of = dict(zip(distinct, pool_starts[:-1], strict=True))
    pools = [pool_of[id(part)] for part in parts]

    def joined(name: str, shifts: Any = None) -> Any:
        """An array of all parts, each shifted by a number of its own."""
        values = [getattr(part, name) for part in parts]
        if shifts is not None:
            values = [v + v.dtype.type(s) for v, s in zip(values, shifts, strict=True)]
        return np.concatenate(values)

    def hosts(name: str) -> NDArray[np.int32]:
        moved = []
        for part, outer, inner in zip(parts, outer_starts, inner_starts, strict=False):
            given = getattr(part, name)
            shift = np.where(given < part.n_outer, outer, inner - part.n_outer)
            moved.append(np.where(given < 0, -1, given + shift).astype(np.int32))
        return np.concatenate(moved)

    n_outer = [part.n_outer for part in parts]
    shifted = [
        part.scope_variables + np.int32(start)
        for part, start in zip(parts, batch.variable_offsets, strict=False)
    ]
    return RegionGraph(
        cardinalities=batch.graph.cardinalities,
        factor_scopes=(batch.graph.scope_offsets, batch.graph.slot_variables),
        n_outer=int(outer_starts[-1]),
        counts=_by_layer([part.counts for part in parts], n_outer),
        scope_offsets=_offsets_by_layer([part.scope_offsets for part in parts], n_outer),
        scope_variables=_by_layer(
            shifted, [int(part.scope_offsets[part.n_outer]) for part in parts]
        ),
        table_offsets=_offsets_by_layer([part.table_offsets for part in parts], n_outer),
        link_offsets=offsets_of(joined("n_links")),
        link_outer=joined("link_outer", outer_starts[:-1]),
        link_maps=joined("link_maps", pools),
        link_runs=joined("link_runs"),
        message_offsets=offsets_of(np.concatenate([np.diff(p.message_offsets) for p in parts])),
        unary_hosts=hosts("unary_hosts"),
        unary_maps=joined("unary_maps", pools),
        factor_hosts=hosts("factor_hosts"),
        factor_maps=joined("factor_maps", pools),
        maps=np.concatenate([part.maps for part in distinct.values()]),
        is_acyclic=all(part.is_acyclic for part in parts),
    )


def _starts(sizes: list[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def _by_layer(values: list[NDArray[Any]], n_outer: list[int]) -> NDArray[Any]:
    """What belongs to the outer regions of all parts, then the rest of all."""
    outer = [v[:n] for v, n in zip(values, n_outer, strict=True)]
    inner = [v[n:] for v, n in zip(values, n_outer, strict=True)]
    return np.concatenate(outer + inner)


def _offsets_by_layer(offsets: list[NDArray[Any]], n_outer: list[int]) -> NDArray[np.int32]:
    return offsets_of(_by_layer([np.diff(given) for given in offsets], n_outer))
