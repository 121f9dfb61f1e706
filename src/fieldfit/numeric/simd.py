"""Vectorisable exponentials and logarithms, scratch memory on the stack, unchecked memory access.

LLVM cannot vectorise calls into the C mathematics library, so a loop over ``np.exp`` costs
about four times what the hardware needs.  `fast_exp` and `fast_log` are straight-line
polynomials that LLVM turns into SIMD code when they are inlined into a loop.

`load` and `store` index without Numba's handling of negative indices, whose compare-and-select
keeps LLVM from vectorising; with them a kernel of this package is as fast as the same loop in C++.

Contract (tested against NumPy in ``tests/numeric/test_kernels.py``):

* ``fast_exp(x)`` for any ``x <= 700``: relative error below 4e-16; exactly 0 below -708,
  hence for ``-inf``.  Larger ``x`` and NaN are the caller's mistake.
* ``fast_log(x)`` for normal positive ``x``: absolute error below 4e-15 or relative error below
  4e-16.  Zero, denormals, infinities and NaN are not handled: callers test for them first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fieldfit.numeric.compile import kernel

#: Flags that allow reassociation and fused multiply-add but keep infinities and NaN meaningful.
SAFE_FASTMATH = {"reassoc", "contract", "nsz", "arcp"}

#: 1.5 * 2**52: adding it rounds to the nearest integer and leaves that in the low bits.
ROUNDER = 6755399441055744.0


@intrinsic
def bits_of(typing_context: Any, value: Any) -> Any:
    """Reinterpret a float64 as uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.uint64(types.float64), generate


@intrinsic
def float_of(typing_context: Any, value: Any) -> Any:
    """Reinterpret a uint64 as float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.uint64), generate


@intrinsic(prefer_literal=True)
def stack_scratch(typing_context: Any, k: Any, repeats: Any) -> Any:
    """``len(k) * repeats`` doubles on the stack, as a pointer for ``numba.carray``.

    ``k`` is a tuple, so its length is known at compile time; ``repeats`` is a literal.
    Stack memory cannot alias the caller's arrays, which is what lets LLVM keep it in registers.
    """
    n_values = k.count * repeats.literal_value
    signature = types.CPointer(types.float64)(k, repeats)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        double = context.get_data_type(types.float64)
        with builder.goto_entry_block():
            pointer = builder.alloca(ir.ArrayType(double, n_values))
        pointer.align = 64  # a cache line: vectors that straddle two cost up to twice as much
        if getattr(pointer.type, "is_opaque", False):
            return pointer
        return builder.bitcast(pointer, double.as_pointer())

    return signature, generate


@intrinsic
def load(typing_context: Any, array: Any, index: Any) -> Any:
    """``array[index]`` of a contiguous vector for an index that is known to be in range."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.load(builder.gep(data, [arguments[1]], inbounds=True))

    return array.dtype(array, index), generate


@intrinsic
def store(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """``array[index] = value`` of a contiguous vector for an index that is known to be in range."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        builder.store(arguments[2], builder.gep(data, [arguments[1]], inbounds=True))
        return context.get_dummy_value()

    return types.void(array, index, array.dtype), generate


@intrinsic
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of ``array[index]``, which need not be in range."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.gep(data, [arguments[1]])
        opaque = getattr(pointer.type, "is_opaque", False)
        byte = pointer if opaque else builder.bitcast(pointer, ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        function = builder.module.globals.get("llvm.prefetch.p0")
        if function is None:
            kind = ir.FunctionType(ir.VoidType(), [byte.type, number, number, number])
            function = ir.Function(builder.module, kind, "llvm.prefetch.p0")
        # for reading, to be kept in all caches, data
        builder.call(function, [byte, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, index), generate


# No "reassoc" for these two: rounding by adding and subtracting ROUNDER must not be simplified.
# The flags stay with the instructions when LLVM inlines them into a kernel that has it.
@kernel(cache=False, fastmath={"contract", "nsz"})
def fast_exp(x: float) -> float:
    """Exponential: ``x = n log 2 + r``, ``exp r = 1 + r + r^2 q(r)`` and an exponent of ``n``."""
    clamped = max(x, -708.0)
    shifted = clamped * 1.4426950408889634 + ROUNDER  # 1 / log 2; the low bits now hold n
    n = shifted - ROUNDER
    # log 2 in two parts (fdlibm), the first with trailing zeros so that n times it is exact
    r = (clamped - n * 0.6931471803691238) - n * 1.9082149292705877e-10
    # Chebyshev fit of degree 9 on |r| <= log(2) / 2; r^2 q is off by 1.3e-17. Estrin's scheme: a
    # chain of ten dependent multiplications would leave half of the processor idle.
    r2 = r * r
    r4 = r2 * r2
    low = (0.5 + 1.6666666666666667453e-1 * r) + r2 * (
        4.1666666666624127873e-2 + 8.3333333333300618325e-3 * r
    )
    high = (1.3888888917213716901e-3 + 1.9841269863053616878e-4 * r) + r2 * (
        2.4801521295954375131e-5 + 2.7557268459997064772e-6 * r
    )
    top = 2.7620088445409748161e-7 + 2.5100385495510319078e-8 * r
    q = low + r4 * (high + r4 * top)
    p = (1.0 + r) + r2 * q
    scale = float_of((bits_of(shifted) + np.uint64(1023)) << np.uint64(52))
    return p * scale if x >= -708.0 else 0.0


@kernel(cache=False, fastmath={"contract", "nsz"})
def fast_log(x: float) -> float:
    """Logarithm: ``x = 2^e m`` with ``m`` near 1 and ``log m = 2 atanh((m - 1) / (m + 1))``."""
    # add what lifts the mantissa sqrt(1/2) to 1: the exponent field is then e + 1023 ...
    bits = bits_of(x) + np.uint64(0x3FF0000000000000 - 0x3FE6A09E667F3BCD)
    # ... and becomes a float by way of the low bits of 2^52 (AVX2 cannot convert int64)
    exponent = (
        float_of((bits >> np.uint64(52)) | np.uint64(0x4330000000000000)) - 4503599627371519.0
    )
    mantissa = float_of((bits & np.uint64(0x000FFFFFFFFFFFFF)) + np.uint64(0x3FE6A09E667F3BCD))
    f = (mantissa - 1.0) / (mantissa + 1.0)
    s = f * f
    # Chebyshev fit of degree 5 in s for m in [sqrt(1/2), sqrt(2)); off by 2.4e-16
    s2 = s * s
    low = 0.66666666666662083223 + 0.40000000011206506321 * s
    middle = 0.28571424138324160585 + 0.22222862280108715552 * s
    high = 0.1814019380286599109 + 0.16621817152858928181 * s
    p = low + s2 * (middle + s2 * high)
    return exponent * 0.6931471805599453 + (2.0 * f + f * s * p)
