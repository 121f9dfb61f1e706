"""Where data are cut into shards: by the data alone, in their order, without looking ahead.

An example goes to the shard of the one before it, unless that would become larger than
``shard_size``.  Data in memory are cut by the same rule, so that their sum has the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["SHARD_SIZE", "cut_into_shards", "is_full", "rows_of_shards"]

#: Variables and edges of a shard, at most: some ten megabytes of features.
SHARD_SIZE = 2**20


def is_full(size: int, following: int, shard_size: int) -> bool:
    """Whether a shard of some size ends before the next example."""
    return size > 0 and size + following > shard_size


def cut_into_shards(sizes: Sequence[int], shard_size: int) -> list[NDArray[np.int64]]:
    """Numbers of the examples in each shard.

    Examples
    --------
    >>> [chosen.tolist() for chosen in cut_into_shards([3, 3, 9, 1, 1, 1], 6)]
    [[0, 1], [2], [3, 4, 5]]
    """
    cuts, size = [], 0
    for index, following in enumerate(sizes):
        if is_full(size, following, shard_size):
            cuts.append(index)
            size = 0
        size += following
    return np.split(np.arange(len(sizes), dtype=np.int64), cuts)


def rows_of_shards(n_rows: int, row_size: int, shard_size: int) -> list[slice]:
    """The same cut for examples of one size, the rows of a table.

    Examples
    --------
    >>> rows_of_shards(5, 3, 6)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, shard_size // row_size)
    return [slice(begin, min(begin + step, n_rows)) for begin in range(0, n_rows, step)]
