"""Prepared shards on disk: graphs, features and plans in a scratch file, not made again each time.

Where every graph is another one, most of the time of reading a shard goes into graphs, their plans
and tree weights, which are the same at each evaluation.  They are written once, after the first, to
one file of the process that has no name: nobody else can read or alter it, and it vanishes with the
process.  Arrays are mapped from it, so that a shard takes memory only while it is evaluated; the
objects around them are Python's own serialisation, which never leaves the process.
"""

from __future__ import annotations

import io
import os
import pickle
import tempfile
import threading
import weakref
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from fieldfit.graph.memos import give_memos, memos_of
from fieldfit.learners.problem import Problem

__all__ = ["ProblemFile", "StoredProblem"]

#: Arrays begin at multiples of this many bytes.
ALIGNMENT = 64


class _Extent(NamedTuple):
    """Bytes of the file, and whether an array in them could be written to."""

    begin: int
    end: int
    is_writable: bool


class StoredProblem(NamedTuple):
    """Where a problem is in the file: its objects, and the places of its arrays."""

    objects: _Extent
    places: _Extent


class ProblemFile:
    """Problems of several shards in one scratch file; threads may use it at once."""

    def __init__(self, folder: str | PathLike[str] | None) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  (closed with this object)
        weakref.finalize(self, self._file.close)  # arrays that are mapped from it stay
        self._end = 0
        self._lock = threading.Lock()

    def store(self, problem: Problem) -> StoredProblem:
        """Write a problem, whose warm start has been taken, at the end of the file."""
        arrays: list[pickle.PickleBuffer] = []
        stream = io.BytesIO()
        content = problem, [memos_of(graph) for graph in problem.graphs()]
        pickle.Pickler(stream, protocol=5, buffer_callback=arrays.append).dump(content)
        with self._lock:
            places = [self._write(array.raw()) for array in arrays]
            table = np.array(places, dtype=np.int64).reshape(-1, 3)
            return StoredProblem(self._write(stream.getbuffer()), self._write(table.data.cast("B")))

    def load(self, stored: StoredProblem) -> Any:
        """The problem, with arrays that are read when they are touched."""
        # private pages: arrays can be written to, which no kernel does, and the file never changes
        mapped = np.memmap(self._file, dtype=np.uint8, mode="c", shape=(self._end,))
        data = mapped.data
        table = np.frombuffer(data[stored.places.begin : stored.places.end], dtype=np.int64)
        # kernels are compiled for arrays that can be written to, or for those that cannot
        arrays = [
            data[begin:end] if is_writable else data[begin:end].toreadonly()
            for begin, end, is_writable in table.reshape(-1, 3).tolist()
        ]
        objects = data[stored.objects.begin : stored.objects.end]
        problem, memos = pickle.loads(objects, buffers=arrays)
        for graph, found in zip(problem.graphs(), memos, strict=True):
            give_memos(graph, found)
        return problem

    def _write(self, content: memoryview) -> _Extent:
        begin, left = self._end, content
        while left.nbytes:
            left = left[
                os.pwrite(self._file.fileno(), left, begin + content.nbytes - left.nbytes) :
            ]
        end = begin + content.nbytes
        self._end = end + -end % ALIGNMENT
        os.ftruncate(self._file.fileno(), self._end)
        return _Extent(begin, end, not content.readonly)
