"""Contraction of a table with one vector for each lane, in explicit vectors of four doubles.

A row is ``L = len(lanes)`` doubles next to each other, a multiple of four, one for each lane.  With
a table ``w_s`` or ``w_s(l)`` and vectors ``r_s(l)``, ``s < n_rows``,

    sum_s w_s r_s(l)          `contract_table`, backward `spread_to_table`
    sum_s w_s(l) r_s(l)       `contract_rows`, backward `spread_to_rows`

Written out because all loads of a row have to come before its stores: the compiler cannot tell that
the arrays are different memory, and would go on one double at a time.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

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

__all__ = ["contract_rows", "contract_table", "spread_to_rows", "spread_to_table"]


def _shifted(builder: Any, start: Any, n_lanes: int) -> list[Any]:
    """Where the vectors of a row start."""
    return [builder.add(start, _INDEX(first)) for first in range(0, n_lanes, LANES)]


def _rows(builder: Any, data: Any, start: Any, n_lanes: int) -> list[Any]:
    return [_load(builder, data, place, _VECTOR) for place in _shifted(builder, start, n_lanes)]


def _store_rows(builder: Any, values: list[Any], data: Any, start: Any) -> None:
    places = _shifted(builder, start, len(values) * LANES)
    for value, place in zip(values, places, strict=True):
        _store(builder, value, data, place, _VECTOR)


def _arguments(context: Any, builder: Any, signature: Any, arguments: Any) -> list[Any]:
    """Data pointers of arrays and 64-bit indices, without the first argument, the lanes."""
    pairs = zip(signature.args[1:], arguments[1:], strict=True)
    return [
        _data(context, builder, kind, value)
        if isinstance(kind, types.Array)
        else _as_index(context, builder, kind, value)
        for kind, value in pairs
    ]


def _contract(builder: Any, n_lanes: int, n_rows: Any, factors: Any, vectors: Any, row: Any,
              result: Any, target: Any) -> None:  # fmt: skip
    """``result[target + l] = sum_s factors(s)[l] vectors[row + s L + l]``."""
    totals = [cgutils.alloca_once(builder, _VECTOR) for _ in range(0, n_lanes, LANES)]
    for total in totals:
        builder.store(ir.Constant(_VECTOR, None), total)
    with cgutils.for_range(builder, n_rows) as loop:
        place = builder.add(row, builder.mul(loop.index, _INDEX(n_lanes)))
        values = _rows(builder, vectors, place, n_lanes)
        for total, factor, value in zip(totals, factors(loop.index), values, strict=True):
            before = builder.load(total, typ=_VECTOR)
            builder.store(_multiply_add(builder, factor, value, before, _VECTOR), total)
    _store_rows(builder, [builder.load(total, typ=_VECTOR) for total in totals], result, target)


@intrinsic
def contract_table(
    typing_context: Any, lanes: Any, n_rows: Any, table: Any, start: Any, vectors: Any, row: Any,
    result: Any, target: Any,
) -> Any:  # fmt: skip
    """``result[target + l] = sum_s table[start + s] vectors[row + s L + l]``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        n_rows, table, start, vectors, row, result, target = _arguments(
            context, builder, signature, arguments
        )

        def factors(index: Any) -> list[Any]:
            weight = _load(builder, table, builder.add(start, index), _DOUBLE)
            return [_splat(builder, weight)] * (lanes.count // LANES)

        _contract(builder, lanes.count, n_rows, factors, vectors, row, result, target)
        return context.get_dummy_value()

    return types.void(lanes, n_rows, table, start, vectors, row, result, target), generate


@intrinsic
def contract_rows(
    typing_context: Any, lanes: Any, n_rows: Any, table: Any, start: Any, vectors: Any, row: Any,
    result: Any, target: Any,
) -> Any:  # fmt: skip
    """``result[target + l] = sum_s table[start + s L + l] vectors[row + s L + l]``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        n_rows, table, start, vectors, row, result, target = _arguments(
            context, builder, signature, arguments
        )

        def factors(index: Any) -> list[Any]:
            place = builder.add(start, builder.mul(index, _INDEX(lanes.count)))
            return _rows(builder, table, place, lanes.count)

        _contract(builder, lanes.count, n_rows, factors, vectors, row, result, target)
        return context.get_dummy_value()

    return types.void(lanes, n_rows, table, start, vectors, row, result, target), generate


@intrinsic
def spread_to_table(
    typing_context: Any, lanes: Any, n_rows: Any, slope: Any, given: Any, table: Any,
    table_slopes: Any, start: Any, vectors: Any, vector_slopes: Any, row: Any,
) -> Any:  # fmt: skip
    """Transpose of `contract_table` for ``g(l) = slope[given + l]``; both results are added.

    ``vector_slopes[row + s L + l] += table[start + s] g(l)`` and
    ``table_slopes[start + s] += sum_l g(l) vectors[row + s L + l]``.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        n_rows, slope, given, table, table_slopes, start, vectors, vector_slopes, row = _arguments(
            context, builder, signature, arguments
        )
        slopes = _rows(builder, slope, given, lanes.count)
        with cgutils.for_range(builder, n_rows) as loop:
            entry = builder.add(start, loop.index)
            place = builder.add(row, builder.mul(loop.index, _INDEX(lanes.count)))
            weight = _splat(builder, _load(builder, table, entry, _DOUBLE))
            before = _rows(builder, vector_slopes, place, lanes.count)
            total = ir.Constant(_VECTOR, None)
            added = []
            values = _rows(builder, vectors, place, lanes.count)
            for one, old, value in zip(slopes, before, values, strict=True):
                added.append(_multiply_add(builder, weight, one, old, _VECTOR))
                total = _multiply_add(builder, one, value, total, _VECTOR)
            old = _load(builder, table_slopes, entry, _DOUBLE)
            _store_rows(builder, added, vector_slopes, place)
            single = [builder.extract_element(total, ir.IntType(32)(n)) for n in range(LANES)]
            low, high = builder.fadd(single[0], single[2]), builder.fadd(single[1], single[3])
            found = builder.fadd(old, builder.fadd(low, high))
            _store(builder, found, table_slopes, entry, _DOUBLE)
        return context.get_dummy_value()

    return types.void(
        lanes, n_rows, slope, given, table, table_slopes, start, vectors, vector_slopes, row
    ), generate  # fmt: skip


@intrinsic
def spread_to_rows(
    typing_context: Any, lanes: Any, n_rows: Any, table: Any, given: Any, start: Any, vectors: Any,
    vector_slopes: Any, row: Any,
) -> Any:  # fmt: skip
    """Transpose of `contract_rows` for ``g(l) = table[given + l]``.

    Adds ``g(l) table[start + s L + l]`` to ``vector_slopes[row + s L + l]``, then overwrites the
    former with its slope ``g(l) vectors[row + s L + l]``.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        n_rows, table, given, start, vectors, vector_slopes, row = _arguments(
            context, builder, signature, arguments
        )
        slopes = _rows(builder, table, given, lanes.count)
        with cgutils.for_range(builder, n_rows) as loop:
            shift = builder.mul(loop.index, _INDEX(lanes.count))
            entry, place = builder.add(start, shift), builder.add(row, shift)
            old = _rows(builder, table, entry, lanes.count)
            before = _rows(builder, vector_slopes, place, lanes.count)
            values = _rows(builder, vectors, place, lanes.count)
            added = [
                _multiply_add(builder, g, x, b, _VECTOR)
                for g, x, b in zip(slopes, old, before, strict=True)
            ]
            after = [builder.fmul(g, value) for g, value in zip(slopes, values, strict=True)]
            _store_rows(builder, added, vector_slopes, place)
            _store_rows(builder, after, table, entry)
        return context.get_dummy_value()

    return types.void(
        lanes, n_rows, table, given, start, vectors, vector_slopes, row
    ), generate  # fmt: skip
