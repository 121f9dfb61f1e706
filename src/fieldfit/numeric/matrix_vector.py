"""Products of a K x K table with vectors, for a number of labels known at compile time.

Written in vectors of four doubles, because the compiler's own choice for such short loops is often
the wrong one: it unrolls the inner loop first and then vectorises the outer one with strided loads,
which costs a factor two at 21 labels.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["add_four_rows", "add_row"]

LANES = 4

_DOUBLE = ir.DoubleType()
_VECTOR = ir.VectorType(_DOUBLE, LANES)
_INDEX = ir.IntType(64)


def _chunks(n_labels: int) -> list[tuple[int, ir.Type]]:
    """Start and type of each chunk of a row: vectors, then single doubles."""
    whole = n_labels // LANES * LANES
    vectors = [(start, _VECTOR) for start in range(0, whole, LANES)]
    return vectors + [(start, _DOUBLE) for start in range(whole, n_labels)]


def _address(builder: Any, data: Any, index: Any, kind: ir.Type) -> Any:
    pointer = builder.gep(data, [index], inbounds=True)
    if getattr(pointer.type, "is_opaque", False):
        return pointer
    return builder.bitcast(pointer, kind.as_pointer())


def _load(builder: Any, data: Any, index: Any, kind: ir.Type) -> Any:
    value = builder.load(_address(builder, data, index, kind), typ=kind)
    value.align = 8
    return value


def _store(builder: Any, value: Any, data: Any, index: Any, kind: ir.Type) -> None:
    builder.store(value, _address(builder, data, index, kind)).align = 8


def _multiply_add(builder: Any, left: Any, right: Any, total: Any, kind: ir.Type) -> Any:
    suffix = "f64" if kind is _DOUBLE else f"v{LANES}f64"
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(kind, [kind] * 3), f"llvm.fmuladd.{suffix}"
    )
    return builder.call(function, [left, right, total])


def _splat(builder: Any, value: Any) -> Any:
    first = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, ir.IntType(32)(0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, ir.Constant(_VECTOR, ir.Undefined), mask)


def _data(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return context.make_array(kind)(context, builder, value).data


def _as_index(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return context.cast(builder, value, kind, types.int64)


def _signature(k: Any, table: Any, offset: Any, vector: Any, start: Any, result: Any,
               target: Any) -> Any:  # fmt: skip
    return types.void(k, table, offset, vector, start, result, target)


@intrinsic
def table_transposed_times(
    typing_context: Any,
    k: Any,
    table: Any,
    offset: Any,
    vector: Any,
    start: Any,
    result: Any,
    target: Any,
) -> Any:
    """``result[target + j] = sum_i table[offset + i K + j] vector[start + i]``."""
    n_labels = k.count

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        rows = _data(context, builder, kinds[1], arguments[1])
        values = _data(context, builder, kinds[3], arguments[3])
        answer = _data(context, builder, kinds[5], arguments[5])
        offset, start, target = (
            _as_index(context, builder, kinds[n], arguments[n]) for n in (2, 4, 6)
        )
        chunks = _chunks(n_labels)
        totals = []
        for _, kind in chunks:
            total = cgutils.alloca_once(builder, kind)
            builder.store(ir.Constant(kind, None), total)
            totals.append(total)
        with cgutils.for_range(builder, _INDEX(n_labels)) as loop:
            scale = _load(builder, values, builder.add(start, loop.index), _DOUBLE)
            scales = {_DOUBLE: scale, _VECTOR: _splat(builder, scale)}
            row = builder.add(offset, builder.mul(loop.index, _INDEX(n_labels)))
            for (first, kind), total in zip(chunks, totals, strict=True):
                entry = _load(builder, rows, builder.add(row, _INDEX(first)), kind)
                before = builder.load(total, typ=kind)
                builder.store(_multiply_add(builder, scales[kind], entry, before, kind), total)
        for (first, kind), total in zip(chunks, totals, strict=True):
            value = builder.load(total, typ=kind)
            _store(builder, value, answer, builder.add(target, _INDEX(first)), kind)
        return context.get_dummy_value()

    return _signature(k, table, offset, vector, start, result, target), generate


@intrinsic
def table_times(
    typing_context: Any,
    k: Any,
    table: Any,
    offset: Any,
    vector: Any,
    start: Any,
    result: Any,
    target: Any,
) -> Any:
    """``result[target + i] = sum_j table[offset + i K + j] vector[start + j]``."""
    n_labels = k.count

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        rows = _data(context, builder, kinds[1], arguments[1])
        values = _data(context, builder, kinds[3], arguments[3])
        answer = _data(context, builder, kinds[5], arguments[5])
        offset, start, target = (
            _as_index(context, builder, kinds[n], arguments[n]) for n in (2, 4, 6)
        )
        chunks = _chunks(n_labels)
        factors = [
            _load(builder, values, builder.add(start, _INDEX(first)), kind)
            for first, kind in chunks
        ]
        with cgutils.for_range(builder, _INDEX(n_labels)) as loop:
            row = builder.add(offset, builder.mul(loop.index, _INDEX(n_labels)))
            # two running sums of vectors, so that one multiplication need not wait for the last
            sums: list[Any] = [None, None]
            single = ir.Constant(_DOUBLE, 0.0)
            for n, (first, kind) in enumerate(chunks):
                entry = _load(builder, rows, builder.add(row, _INDEX(first)), kind)
                if kind is _DOUBLE:
                    single = _multiply_add(builder, entry, factors[n], single, kind)
                elif sums[n % 2] is None:
                    sums[n % 2] = builder.fmul(entry, factors[n])
                else:
                    sums[n % 2] = _multiply_add(builder, entry, factors[n], sums[n % 2], kind)
            vectors = [total for total in sums if total is not None]
            if vectors:
                total = vectors[0] if len(vectors) == 1 else builder.fadd(*vectors)
                lanes = [
                    builder.extract_element(total, ir.IntType(32)(lane)) for lane in range(LANES)
                ]
                low = builder.fadd(lanes[0], lanes[2])
                high = builder.fadd(lanes[1], lanes[3])
                single = builder.fadd(single, builder.fadd(low, high))
            _store(builder, single, answer, builder.add(target, loop.index), _DOUBLE)
        return context.get_dummy_value()

    return _signature(k, table, offset, vector, start, result, target), generate


def _spread_signature(k: Any, table: Any, offset: Any, rows: Any, row: Any, columns: Any,
                      column: Any, result: Any, sums: Any, start: Any) -> Any:  # fmt: skip
    return types.void(k, table, offset, rows, row, columns, column, result, sums, start)


def _spread_terms(
    context: Any, builder: Any, n_labels: int, kinds: Any, arguments: Any, add: Any
) -> Any:
    """The terms of both functions below, chunk by chunk; ``add`` takes those of one row."""
    table, rows, columns, result, sums = (
        _data(context, builder, kinds[k], arguments[k]) for k in (1, 3, 5, 7, 8)
    )
    offset, row, column, start = (
        _as_index(context, builder, kinds[k], arguments[k]) for k in (2, 4, 6, 9)
    )
    chunks = _chunks(n_labels)
    factors = [
        _load(builder, columns, builder.add(column, _INDEX(first)), kind) for first, kind in chunks
    ]
    with cgutils.for_range(builder, _INDEX(n_labels)) as loop:
        scale = _load(builder, rows, builder.add(row, loop.index), _DOUBLE)
        scales = {_DOUBLE: scale, _VECTOR: _splat(builder, scale)}
        begin = builder.add(offset, builder.mul(loop.index, _INDEX(n_labels)))
        terms = []
        for (first, kind), factor in zip(chunks, factors, strict=True):
            place = builder.add(begin, _INDEX(first))
            entry = builder.fmul(_load(builder, table, place, kind), factor)
            term = builder.fmul(entry, scales[kind])
            before = _load(builder, result, place, kind)
            _store(builder, builder.fadd(before, term), result, place, kind)
            terms.append(term)
        add(loop.index, chunks, terms, sums, start)
    return chunks, sums, start


@intrinsic
def spread_rows(
    typing_context: Any,
    k: Any,
    table: Any,
    offset: Any,
    rows: Any,
    row: Any,
    columns: Any,
    column: Any,
    result: Any,
    sums: Any,
    start: Any,
) -> Any:
    """Add ``t_ij = rows[row + i] table[z] columns[column + j]`` to ``result[z]``.

    Here ``z = offset + i K + j``.  Also ``sums[start + i] = sum_j t_ij``.
    """
    n_labels = k.count

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def add(index: Any, chunks: Any, terms: Any, sums: Any, start: Any) -> None:
            vectors = [term for (_, kind), term in zip(chunks, terms, strict=True)
                       if kind is _VECTOR]  # fmt: skip
            singles = [term for (_, kind), term in zip(chunks, terms, strict=True)
                       if kind is _DOUBLE]  # fmt: skip
            if vectors:
                total = vectors[0]
                for term in vectors[1:]:
                    total = builder.fadd(total, term)
                lanes = [
                    builder.extract_element(total, ir.IntType(32)(lane)) for lane in range(LANES)
                ]
                singles.append(builder.fadd(lanes[0], lanes[2]))
                singles.append(builder.fadd(lanes[1], lanes[3]))
            total = singles[0]
            for term in singles[1:]:
                total = builder.fadd(total, term)
            _store(builder, total, sums, builder.add(start, index), _DOUBLE)

        _spread_terms(context, builder, n_labels, signature.args, arguments, add)
        return context.get_dummy_value()

    return _spread_signature(
        k, table, offset, rows, row, columns, column, result, sums, start
    ), generate


@intrinsic
def spread_columns(
    typing_context: Any,
    k: Any,
    table: Any,
    offset: Any,
    rows: Any,
    row: Any,
    columns: Any,
    column: Any,
    result: Any,
    sums: Any,
    start: Any,
) -> Any:
    """`spread_rows` with the other sums, ``sums[start + j] = sum_i t_ij``."""
    n_labels = k.count

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        totals = []
        for _, kind in _chunks(n_labels):
            total = cgutils.alloca_once(builder, kind)
            builder.store(ir.Constant(kind, None), total)
            totals.append(total)

        def add(index: Any, chunks: Any, terms: Any, sums: Any, start: Any) -> None:
            for (_, kind), term, total in zip(chunks, terms, totals, strict=True):
                builder.store(builder.fadd(builder.load(total, typ=kind), term), total)

        chunks, sums, start = _spread_terms(
            context, builder, n_labels, signature.args, arguments, add
        )
        for (first, kind), total in zip(chunks, totals, strict=True):
            value = builder.load(total, typ=kind)
            _store(builder, value, sums, builder.add(start, _INDEX(first)), kind)
        return context.get_dummy_value()

    return _spread_signature(
        k, table, offset, rows, row, columns, column, result, sums, start
    ), generate


@intrinsic
def subtract_product(
    typing_context: Any,
    k: Any,
    left: Any,
    first: Any,
    right: Any,
    start: Any,
    result: Any,
    target: Any,
) -> Any:
    """``R -= A B`` for blocks of ``m x m``, ``m = len(k) - 1``.

    ``R[u, c] = result[target + u m + c]``, and so ``A`` in ``left`` at ``first`` and ``B`` in
    ``right`` at ``start``.  A row of ``R`` stays in registers until it is complete.
    """
    m = k.count - 1

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        multipliers, rows, answer = (
            _data(context, builder, kinds[n], arguments[n]) for n in (1, 3, 5)
        )
        first, start, target = (
            _as_index(context, builder, kinds[n], arguments[n]) for n in (2, 4, 6)
        )
        chunks = _chunks(m)
        with cgutils.for_range(builder, _INDEX(m)) as outer:
            shift = builder.mul(outer.index, _INDEX(m))
            place, row = builder.add(target, shift), builder.add(first, shift)
            totals = []
            for begin, kind in chunks:
                total = cgutils.alloca_once(builder, kind)
                where = builder.add(place, _INDEX(begin))
                builder.store(_load(builder, answer, where, kind), total)
                totals.append(total)
            with cgutils.for_range(builder, _INDEX(m)) as inner:
                where = builder.add(row, inner.index)
                scale = builder.fneg(_load(builder, multipliers, where, _DOUBLE))
                scales = {_DOUBLE: scale, _VECTOR: _splat(builder, scale)}
                other = builder.add(start, builder.mul(inner.index, _INDEX(m)))
                for (begin, kind), total in zip(chunks, totals, strict=True):
                    entry = _load(builder, rows, builder.add(other, _INDEX(begin)), kind)
                    before = builder.load(total, typ=kind)
                    builder.store(_multiply_add(builder, scales[kind], entry, before, kind), total)
            for (begin, kind), total in zip(chunks, totals, strict=True):
                value = builder.load(total, typ=kind)
                _store(builder, value, answer, builder.add(place, _INDEX(begin)), kind)
        return context.get_dummy_value()

    return _signature(k, left, first, right, start, result, target), generate


# -- sums of table rows in explicit vectors of four doubles -------------------------------
# ``target[t + k] += source[s + k]`` in a loop is not vectorised where the compiler cannot tell that
# target and source are different memory: it then adds one double at a time.  Here all loads come
# before the stores, whatever the arrays; with it the pseudo-likelihood of 21 labels takes 0.37 of
# the time.


def _add(context: Any, builder: Any, signature: Any, arguments: Any, n_lanes: int) -> Any:
    """``target += sum of rows``; arguments: lanes, target, its start, source, starts of rows."""
    kinds = signature.args
    target = _data(context, builder, kinds[1], arguments[1])
    source = _data(context, builder, kinds[3], arguments[3])
    start, *rows = (
        _as_index(context, builder, kinds[k], arguments[k]) for k in (2, *range(4, len(arguments)))
    )
    results = []
    for first in range(0, n_lanes, LANES):
        shift = ir.IntType(64)(first)
        values = [_load(builder, source, builder.add(row, shift), _VECTOR) for row in rows]
        while len(values) > 1:  # in pairs, so that one addition need not wait for the last
            pairs = [builder.fadd(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
            values = pairs + values[len(pairs) * 2 :]
        place = builder.add(start, shift)
        before = _load(builder, target, place, _VECTOR)
        results.append((builder.fadd(before, values[0]), place))
    for value, place in results:
        _store(builder, value, target, place, _VECTOR)
    return context.get_dummy_value()


@intrinsic
def add_row(typing_context: Any, lanes: Any, target: Any, start: Any, source: Any, row: Any) -> Any:
    """``target[start + k] += source[row + k]`` for ``k < len(lanes)``, a multiple of four."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _add(context, builder, signature, arguments, lanes.count)

    return types.void(lanes, target, start, source, row), generate


@intrinsic
def add_four_rows(
    typing_context: Any,
    lanes: Any,
    target: Any,
    start: Any,
    source: Any,
    first: Any,
    second: Any,
    third: Any,
    fourth: Any,
) -> Any:
    """`add_row` of four rows of one source at once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _add(context, builder, signature, arguments, lanes.count)

    return types.void(lanes, target, start, source, first, second, third, fourth), generate
