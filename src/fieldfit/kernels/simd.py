"""Vectorisable exponentials and logarithms, scratch memory on the stack, unchecked memory access.

LLVM cannot vectorise calls into the C mathematics library, so a loop over ``np.exp`` costs
about four times what the hardware needs.  `fast_exp` and `fast_log` are straight-line
polynomials that LLVM turns into SIMD code when they are inlined into a loop.

`load` and `store` index without Numba's handling of negative indices, whose compare-and-select
keeps LLVM from vectorising; with them a kernel of this package is as fast as the same loop in C++.

Contract (tested against NumPy in ``tests/test_kernels.py``):

* ``fast_exp(x)`` for any ``x <= 700``: relative error below 4e-16; exactly 0 below -708,
  hence for ``-inf``.  Larger ``x`` and NaN are the caller's mistake.
* ``fast_log(x)`` for normal positive ``x``: absolute error below 4e-15 or relative error below
  4e-16.  Zero, denormals, infinities and NaN are not handled: callers test for them first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

#: Flags that allow reassociation and fused multiply-add but keep infinities and NaN meaningful.
SAFE_FASTMATH = {"reassoc", "contract", "nsz", "arcp"}


@intrinsic
def bits_of(typing_context: Any, value: Any) -> Any:
    """Reinterpret a float64 as int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic
def _float_of(typing_context: Any, value: Any) -> Any:
    """Reinterpret an int64 as float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


@intrinsic
def _round_to_even(typing_context: Any, value: Any) -> Any:
    """``llvm.rint``: unlike adding and subtracting 2**52 it survives reassociation."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = builder.module.declare_intrinsic("llvm.rint", [ir.DoubleType()])
        return builder.call(function, [arguments[0]])

    return types.float64(types.float64), generate


@intrinsic
def _to_small_int(typing_context: Any, value: Any) -> Any:
    """float64 to int64 through int32, for which AVX2 has an instruction."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.sext(builder.fptosi(arguments[0], ir.IntType(32)), ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic(prefer_literal=True)
def stack_scratch(typing_context: Any, labels: Any, repeats: Any) -> Any:
    """``len(labels) * repeats`` doubles on the stack, as a pointer for ``numba.carray``.

    ``labels`` is a tuple, so its length is known at compile time; ``repeats`` is a literal.
    Stack memory cannot alias the caller's arrays, which is what lets LLVM keep it in registers.
    """
    n_values = labels.count * repeats.literal_value
    signature = types.CPointer(types.float64)(labels, repeats)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        double = context.get_data_type(types.float64)
        with builder.goto_entry_block():
            pointer = builder.alloca(ir.ArrayType(double, n_values))
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


@njit(error_model="numpy", fastmath={"contract", "nsz"})
def fast_exp(x: float) -> float:
    """Exponential: ``x = n log 2 + r`` and a polynomial of degree 12 in ``r``."""
    clamped = max(x, -708.0)
    n = _round_to_even(clamped * 1.4426950408889634)  # 1 / log 2
    # log 2 in two parts (fdlibm), the first with trailing zeros so that n times it is exact
    r = (clamped - n * 0.6931471803691238) - n * 1.9082149292705877e-10
    p = 2.08767569878681e-09  # 1/12! ... 1/2!, Taylor: |r| <= log(2)/2 leaves 2e-16
    p = p * r + 2.505210838544172e-08
    p = p * r + 2.755731922398589e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.48015873015873e-05
    p = p * r + 1.984126984126984e-04
    p = p * r + 1.3888888888888889e-03
    p = p * r + 8.333333333333333e-03
    p = p * r + 4.1666666666666664e-02
    p = p * r + 1.6666666666666666e-01
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    scale = _float_of((_to_small_int(n) + 1023) << 52)
    return p * scale if x >= -708.0 else 0.0


@njit(error_model="numpy", fastmath={"contract", "nsz"})
def fast_log(x: float) -> float:
    """Logarithm: ``x = 2**e m`` with ``m`` near 1 and ``log m = 2 atanh((m-1)/(m+1))``."""
    bits = bits_of(x)
    exponent = (bits - np.int64(0x3FE6A09E667F3BCD)) >> 52  # mantissa in [sqrt(1/2), sqrt(2))
    mantissa = _float_of(bits - (exponent << 52))
    f = (mantissa - 1.0) / (mantissa + 1.0)
    s = f * f
    p = 0.14798198605116586  # minimax coefficients of the odd series (fdlibm e_log.c)
    p = p * s + 0.1531383769920937
    p = p * s + 0.1818357216161805
    p = p * s + 0.22222198432149784
    p = p * s + 0.2857142874366239
    p = p * s + 0.3999999999940942
    p = p * s + 0.6666666666666735
    return np.float64(exponent) * 0.6931471805599453 + (2.0 * f + f * s * p)
