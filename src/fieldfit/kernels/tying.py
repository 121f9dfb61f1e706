"""Tied tables: the same few numbers written into, and summed from, many places of a flat vector.

Table ``r`` of a block has ``S`` entries from ``starts[r]``; entry ``s`` of every table belongs to
the parameter ``groups[s]`` (``-1``: to none).  Writing and summing are transposes of each other.
"""

from __future__ import annotations

from typing import Any

from numba import njit

__all__ = ["add_shared", "add_tied", "gather_shared", "gather_tied"]

_options: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}


@njit(**_options)
def add_shared(values: Any, groups: Any, starts: Any, out: Any) -> None:
    """``out[starts[r] + s] += values[groups[s]]`` for every table ``r``."""
    for row in range(starts.size):
        start = starts[row]
        for entry in range(groups.size):
            group = groups[entry]
            if group >= 0:
                out[start + entry] += values[group]


@njit(**_options)
def add_tied(values: Any, groups: Any, starts: Any, out: Any) -> None:
    """``out[starts[r] + s] += values[r, groups[s]]`` for every table ``r``."""
    for row in range(starts.size):
        start = starts[row]
        for entry in range(groups.size):
            group = groups[entry]
            if group >= 0:
                out[start + entry] += values[row, group]


@njit(**_options)
def gather_shared(vector: Any, groups: Any, starts: Any, sums: Any, out: Any) -> None:
    """``out[groups[s]] += sum_r vector[starts[r] + s]``; ``sums`` is scratch of size ``S``.

    Rows are summed entry by entry first: the inner loop is then a vector addition.
    """
    for entry in range(groups.size):
        sums[entry] = 0.0
    for row in range(starts.size):
        start = starts[row]
        for entry in range(groups.size):
            sums[entry] += vector[start + entry]
    for entry in range(groups.size):
        group = groups[entry]
        if group >= 0:
            out[group] += sums[entry]


@njit(**_options)
def gather_tied(vector: Any, groups: Any, starts: Any, out: Any) -> None:
    """``out[r, groups[s]] += vector[starts[r] + s]`` for every table ``r``."""
    for row in range(starts.size):
        start = starts[row]
        for entry in range(groups.size):
            group = groups[entry]
            if group >= 0:
                out[row, group] += vector[start + entry]
