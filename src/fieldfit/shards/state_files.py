"""Warm starts on disk: the arrays of a state in a scratch file, without the graphs it refers to.

A state is what an objective keeps from one evaluation to the next: tuples and small objects around
arrays of messages.  Its arrays go to a file that has no name, so that nothing is left behind by a
process that is killed; its graphs are replaced by their numbers.  Both come back bit by bit.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs, Potentials

__all__ = ["StateFile"]

#: Smaller arrays stay in memory.
SMALL_BYTES = 512
#: Arrays begin at multiples of this many bytes.
ALIGNMENT = 64


@dataclass(frozen=True)
class _StoredArray:
    """Where an array is in the file."""

    begin: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class _StoredGraph:
    """Which graph it was."""

    number: int


class StateFile:
    """A state in a scratch file."""

    def __init__(
        self, state: Any, graphs: Sequence[FactorGraph], folder: str | PathLike[str] | None
    ) -> None:
        numbers = {id(graph): number for number, graph in enumerate(graphs)}
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  (closed with this object)
        weakref.finalize(self, self._file.close)  # arrays that are mapped from it stay
        self._position = 0

        def store(leaf: Any) -> Any:
            if isinstance(leaf, FactorGraph):
                return _StoredGraph(numbers[id(leaf)]) if id(leaf) in numbers else leaf
            return self._store(leaf)

        self._state = _replaced(state, store)
        self._file.flush()

    def load(self, graphs: Sequence[FactorGraph]) -> Any:
        """The state, of graphs with the structure of those that it was stored with."""
        data = None
        if self._position:
            data = np.memmap(self._file, dtype=np.uint8, mode="c", shape=(self._position,))

        def restore(leaf: Any) -> Any:
            if isinstance(leaf, _StoredGraph):
                return graphs[leaf.number]
            if not isinstance(leaf, _StoredArray):
                return leaf
            assert data is not None
            n_bytes = int(np.prod(leaf.shape)) * leaf.dtype.itemsize
            flat = np.asarray(data[leaf.begin : leaf.begin + n_bytes])
            return flat.view(leaf.dtype).reshape(leaf.shape)

        return _replaced(self._state, restore)

    def _store(self, array: NDArray[Any]) -> Any:
        is_constant = array.size > 0 and not any(array.strides)
        if array.nbytes <= SMALL_BYTES or is_constant or array.dtype.hasobject:
            return array
        begin = self._position
        self._file.write(np.ascontiguousarray(array).data)
        padding = -array.nbytes % ALIGNMENT
        self._file.write(bytes(padding))
        self._position += array.nbytes + padding
        return _StoredArray(begin, array.dtype, array.shape)


_LEAVES = (np.ndarray, FactorGraph, _StoredArray, _StoredGraph)


def _replaced(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """The same structure with other leaves (arrays and graphs); the rest is shared."""
    if isinstance(value, _LEAVES):
        return leaf(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_replaced(entry, leaf) for entry in value))
    if isinstance(value, (tuple, list)):
        return type(value)(_replaced(entry, leaf) for entry in value)
    if isinstance(value, dict):
        return {name: _replaced(entry, leaf) for name, entry in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value)]
    elif isinstance(value, (Beliefs, Potentials)):
        names = list(vars(value))
    else:
        return value
    made = copy(value)
    for name in names:
        object.__setattr__(made, name, _replaced(getattr(value, name), leaf))
    return made
