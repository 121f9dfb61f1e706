"""SIMD kernels on rows of K doubles: gather-sums, scatter-adds, vector-matrix and rank-n products.

The inner loops of a linear-chain model with sparse features: the scores of a token are a sum of
weight rows, one for each of its attributes, and the gradient adds one vector to the same rows.  A
row has ``K`` doubles, a number that is known at compile time, so the running sum stays in
registers from the first row to the last (64 labels at a time, so that code and compilation do not
grow with their number).  `rank_update` is the product of two matrices of that width, for the
expected transitions of a sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fieldfit.numeric.compile import kernel
from fieldfit.numeric.matrix_vector import (
    _DOUBLE,
    _INDEX,
    _VECTOR,
    LANES,
    _as_index,
    _data,
    _load,
    _multiply_add,
    _splat,
    _store,
)

__all__ = [
    "MAX_TILE",
    "RowShape",
    "add_to_rows",
    "rank_update",
    "row_shape",
    "row_width",
    "sum_rows",
    "vector_times_table",
]

#: The static width of a row: two tuples whose lengths are part of their type (see `row_shape`).
RowShape = tuple[tuple[int, ...], tuple[int, ...]]

#: Labels that are handled in one go; wider rows are a multiple of it.
MAX_TILE = 64


def row_shape(n_labels: int) -> RowShape:
    """What kernels take to know the width of a row when they are compiled.

    Two tuples, whose lengths are part of their type: vectors of four in a tile, and tiles in a row.
    Rows are padded to whole tiles, so that there are few different kernels.
    """
    step = LANES if n_labels <= 32 else 4 * LANES if n_labels <= MAX_TILE else MAX_TILE
    width = -(-n_labels // step) * step
    tile = min(width, MAX_TILE)
    return (0,) * (tile // LANES), (0,) * (width // tile)


@kernel(cache=False)
def row_width(shape: RowShape) -> int:
    """Doubles in a row."""
    return LANES * len(shape[0]) * len(shape[1])


def _width(shape: Any) -> int:
    """The same from the type."""
    vectors, tiles = shape.types
    return LANES * int(vectors.count) * int(tiles.count)


@contextmanager
def _tiles(builder: Any, width: int) -> Iterator[list[Any]]:
    """Loop over the tiles of a row; gives where the vectors of a tile begin in the row."""
    tile = min(width, MAX_TILE)
    with cgutils.for_range(builder, _INDEX(width // tile)) as loop:
        first = builder.mul(loop.index, _INDEX(tile))
        yield [builder.add(first, _INDEX(start)) for start in range(0, tile, LANES)]


def _n_vectors(width: int) -> int:
    """Vectors in a tile."""
    return min(width, MAX_TILE) // LANES


def _sums(builder: Any, count: int) -> list[Any]:
    """Places for running sums, one vector each, that LLVM keeps in registers."""
    return [cgutils.alloca_once(builder, _VECTOR) for _ in range(count)]


def _clear(builder: Any, totals: list[Any]) -> None:
    for total in totals:
        builder.store(ir.Constant(_VECTOR, None), total)


def _row_start(context: Any, builder: Any, kind: Any, data: Any, position: Any, width: int) -> Any:
    """Where the row begins that an index list names at a position."""
    row = builder.load(builder.gep(data, [position], inbounds=True))
    return builder.mul(_as_index(context, builder, kind.dtype, row), _INDEX(width))


def _optional_data(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return None if isinstance(kind, types.NoneType) else _data(context, builder, kind, value)


def _scale(builder: Any, factors: Any, position: Any) -> Any:
    """The value at a position in all lanes, or ``None`` if all values are 1."""
    if factors is None:
        return None
    return _splat(builder, _load(builder, factors, position, _DOUBLE))


def _add_scaled(builder: Any, total: Any, scale: Any, vector: Any) -> Any:
    if scale is None:
        return builder.fadd(total, vector)
    return _multiply_add(builder, scale, vector, total, _VECTOR)


@intrinsic
def sum_rows(
    typing_context: Any,
    shape: Any,
    rows: Any,
    indices: Any,
    values: Any,
    begin: Any,
    end: Any,
    result: Any,
    target: Any,
) -> Any:
    """``result[target + k] = sum_n values[n] rows[indices[n] K + k]`` for ``begin <= n < end``.

    ``values`` may be ``None``: then all are 1.
    """
    width = _width(shape)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        table = _data(context, builder, kinds[1], arguments[1])
        names = _data(context, builder, kinds[2], arguments[2])
        factors = _optional_data(context, builder, kinds[3], arguments[3])
        answer = _data(context, builder, kinds[6], arguments[6])
        begin, end, target = (
            _as_index(context, builder, kinds[k], arguments[k]) for k in (4, 5, 7)
        )
        totals = _sums(builder, _n_vectors(width))
        with _tiles(builder, width) as starts:
            _clear(builder, totals)
            with cgutils.for_range(builder, builder.sub(end, begin)) as loop:
                position = builder.add(begin, loop.index)
                row = _row_start(context, builder, kinds[2], names, position, width)
                scale = _scale(builder, factors, position)
                for first, total in zip(starts, totals, strict=True):
                    entry = _load(builder, table, builder.add(row, first), _VECTOR)
                    before = builder.load(total, typ=_VECTOR)
                    builder.store(_add_scaled(builder, before, scale, entry), total)
            for first, total in zip(starts, totals, strict=True):
                value = builder.load(total, typ=_VECTOR)
                _store(builder, value, answer, builder.add(target, first), _VECTOR)
        return context.get_dummy_value()

    signature = types.void(shape, rows, indices, values, begin, end, result, target)
    return signature, generate


@intrinsic
def add_to_rows(
    typing_context: Any,
    shape: Any,
    rows: Any,
    indices: Any,
    values: Any,
    begin: Any,
    end: Any,
    vector: Any,
    start: Any,
) -> Any:
    """``rows[indices[n] K + k] += values[n] vector[start + k]``: the transpose of `sum_rows`."""
    width = _width(shape)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        table = _data(context, builder, kinds[1], arguments[1])
        names = _data(context, builder, kinds[2], arguments[2])
        factors = _optional_data(context, builder, kinds[3], arguments[3])
        given = _data(context, builder, kinds[6], arguments[6])
        begin, end, start = (_as_index(context, builder, kinds[k], arguments[k]) for k in (4, 5, 7))
        with _tiles(builder, width) as starts:
            pieces = [_load(builder, given, builder.add(start, first), _VECTOR) for first in starts]
            with cgutils.for_range(builder, builder.sub(end, begin)) as loop:
                position = builder.add(begin, loop.index)
                row = _row_start(context, builder, kinds[2], names, position, width)
                scale = _scale(builder, factors, position)
                for first, piece in zip(starts, pieces, strict=True):
                    place = builder.add(row, first)
                    before = _load(builder, table, place, _VECTOR)
                    after = _add_scaled(builder, before, scale, piece)
                    _store(builder, after, table, place, _VECTOR)
        return context.get_dummy_value()

    signature = types.void(shape, rows, indices, values, begin, end, vector, start)
    return signature, generate


@intrinsic
def vector_times_table(
    typing_context: Any,
    shape: Any,
    vector: Any,
    start: Any,
    table: Any,
    result: Any,
    target: Any,
) -> Any:
    """``result[target + j] = sum_i vector[start + i] table[i K + j]``.

    Like `products.table_transposed_times`, but with two running sums for every part of the
    result: in a recursion each product waits for the one before, so what counts is the time to
    the last digit.
    """
    width = _width(shape)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        given, rows, answer = (_data(context, builder, kinds[k], arguments[k]) for k in (1, 3, 4))
        start, target = (_as_index(context, builder, kinds[k], arguments[k]) for k in (2, 5))
        totals = [_sums(builder, _n_vectors(width)) for _ in range(2)]
        with _tiles(builder, width) as starts:
            _clear(builder, totals[0] + totals[1])
            with cgutils.for_range(builder, _INDEX(width // 2)) as pair:
                first_row = builder.mul(pair.index, _INDEX(2))
                for parity in range(2):
                    row = builder.add(first_row, _INDEX(parity))
                    scale = _scale(builder, given, builder.add(start, row))
                    place = builder.mul(row, _INDEX(width))
                    for first, total in zip(starts, totals[parity], strict=True):
                        entry = _load(builder, rows, builder.add(place, first), _VECTOR)
                        before = builder.load(total, typ=_VECTOR)
                        builder.store(_add_scaled(builder, before, scale, entry), total)
            for first, even, odd in zip(starts, *totals, strict=True):
                value = builder.fadd(
                    builder.load(even, typ=_VECTOR), builder.load(odd, typ=_VECTOR)
                )
                _store(builder, value, answer, builder.add(target, first), _VECTOR)
        return context.get_dummy_value()

    return types.void(shape, vector, start, table, result, target), generate


@intrinsic
def rank_update(
    typing_context: Any,
    shape: Any,
    left: Any,
    right: Any,
    count: Any,
    table: Any,
) -> Any:
    """``table[i K + j] += sum_t left[t K + i] right[(t + 1) K + j]`` for ``0 <= t < count``.

    Two rows of the table at a time are kept in registers over the whole sum.
    """
    width = _width(shape)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        lefts, rights = (_data(context, builder, kinds[k], arguments[k]) for k in (1, 2))
        count = _as_index(context, builder, kinds[3], arguments[3])
        answer = _data(context, builder, kinds[4], arguments[4])
        totals = [_sums(builder, _n_vectors(width)) for _ in range(2)]
        with (
            _tiles(builder, width) as starts,
            cgutils.for_range(builder, _INDEX(width // 2)) as pair,
        ):
            rows = [
                builder.add(builder.mul(pair.index, _INDEX(2)), _INDEX(parity))
                for parity in range(2)
            ]
            places = [
                [builder.add(builder.mul(row, _INDEX(width)), first) for first in starts]
                for row in rows
            ]
            for place, total in _zipped(places, totals):
                builder.store(_load(builder, answer, place, _VECTOR), total)
            with cgutils.for_range(builder, count) as token:
                here = builder.mul(token.index, _INDEX(width))
                there = builder.add(here, _INDEX(width))
                scales = [_scale(builder, lefts, builder.add(here, row)) for row in rows]
                for k, first in enumerate(starts):
                    entry = _load(builder, rights, builder.add(there, first), _VECTOR)
                    for parity, scale in enumerate(scales):
                        total = totals[parity][k]
                        before = builder.load(total, typ=_VECTOR)
                        builder.store(_add_scaled(builder, before, scale, entry), total)
            for place, total in _zipped(places, totals):
                _store(builder, builder.load(total, typ=_VECTOR), answer, place, _VECTOR)
        return context.get_dummy_value()

    return types.void(shape, left, right, count, table), generate


def _zipped(places: list[list[Any]], totals: list[list[Any]]) -> Iterator[tuple[Any, Any]]:
    for row_places, row_totals in zip(places, totals, strict=True):
        yield from zip(row_places, row_totals, strict=True)
