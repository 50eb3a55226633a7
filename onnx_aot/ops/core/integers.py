"""Translates shifts, divisors and powers of integers, exact and wrapping as in PyTorch.

They are computed in INT64 and cast back, which keeps the low bits.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import aten

__all__ = ["integer_power"]

Value = ir.Value
INT64 = ir.DataType.INT64
UINT64 = ir.DataType.UINT64

LEFT_SHIFTS = (
    aten.bitwise_left_shift.Tensor,
    aten.bitwise_left_shift.Tensor_Scalar,
    aten.bitwise_left_shift.Scalar_Tensor,
    aten.__lshift__.Tensor,
    aten.__lshift__.Scalar,
)
RIGHT_SHIFTS = (
    aten.bitwise_right_shift.Tensor,
    aten.bitwise_right_shift.Tensor_Scalar,
    aten.bitwise_right_shift.Scalar_Tensor,
    aten.__rshift__.Tensor,
    aten.__rshift__.Scalar,
)


def _shift(op: Builder, value: Value, count: Value, direction: str) -> Value:
    """Shifts as UINT64, since BitShift takes unsigned types; the casts keep the bits."""
    unsigned = op.cast(value, UINT64)
    return op.cast(op.BitShift(unsigned, op.cast(count, UINT64), direction=direction), INT64)


@register(*LEFT_SHIFTS)
def aten_bitwise_left_shift(op: Builder, self: Any, other: Any) -> Value:
    """Returns 0 where the count is negative or at least the width of the type."""
    dtype = op.result_dtype
    value, count = op.cast(self, INT64), op.cast(other, INT64)
    outside = op.Or(op.Less(count, 0), op.GreaterOrEqual(count, 8 * dtype.itemsize))
    zero = op.constant(0, INT64)
    shifted = _shift(op, value, op.Where(outside, zero, count), "LEFT")
    return op.cast(op.Where(outside, zero, shifted), dtype)


@register(*RIGHT_SHIFTS)
def aten_bitwise_right_shift(op: Builder, self: Any, other: Any) -> Value:
    """Arithmetic shift: a negative number is complemented, shifted and complemented again.

    A count that is negative or too large leaves only the sign.
    """
    value, count = op.cast(self, INT64), op.cast(other, INT64)
    most = op.constant(63, INT64)
    count = op.Where(op.Less(count, 0), most, op.Min(count, most))
    negative = op.Less(value, 0)
    shifted = _shift(op, op.Where(negative, op.Sub(-1, value), value), count, "RIGHT")
    return op.cast(op.Where(negative, op.Sub(-1, shifted), shifted), op.result_dtype)


def _any_nonzero(op: Builder, value: Value) -> Value:
    """True if any number is not 0; False for an empty tensor."""
    nonzero = op.cast(op.cast(value, ir.DataType.BOOL), INT64)
    return op.Greater(op.ReduceSum(nonzero, keepdims=0), 0)


def _compute_gcd(op: Builder, left: Value, right: Value) -> Value:
    """Runs Euclid's algorithm on non-negative INT64 numbers until every remainder is 0."""
    shape = op.Shape(op.Add(left, right))
    left, right = op.Expand(left, shape), op.Expand(right, shape)
    one = op.constant(1, INT64)

    def step(i: Value, a: Value, b: Value) -> list[Value]:
        done = op.Equal(b, 0)
        rest = op.Where(done, b, op.Mod(a, op.Where(done, one, b)))
        return [_any_nonzero(op, rest), op.Where(done, a, b), rest]

    return op.loop(None, [left, right], step, condition=_any_nonzero(op, right))[0]


@register(aten.gcd.default)
def aten_gcd(op: Builder, self: Value, other: Value) -> Value:
    left, right = (op.Abs(op.cast(value, INT64)) for value in (self, other))
    return op.cast(_compute_gcd(op, left, right), op.result_dtype)


@register(aten.lcm.default)
def aten_lcm(op: Builder, self: Value, other: Value) -> Value:
    """``|a / gcd * b|``; 0 where both are 0.

    Torch computes it of smaller types in int32, so that what they cannot hold may be negative.
    """
    left, right = (op.Abs(op.cast(value, INT64)) for value in (self, other))
    divisor = _compute_gcd(op, left, right)
    divisor = op.Where(op.Equal(divisor, 0), op.constant(1, INT64), divisor)
    multiple = op.cast(op.Mul(op.Div(left, divisor), right), op.result_dtype)
    return multiple if op.result_dtype in _SMALL else op.Abs(multiple)


_SMALL = (ir.DataType.INT8, ir.DataType.INT16, ir.DataType.UINT8)


def integer_power(op: Builder, base: Any, exponent: Any) -> Value:
    """Squares and multiplies; a negative exponent gives 0 except for the bases 1 and -1.

    ONNX Runtime's Pow computes in double, which rounds large integers.
    """
    base, exponent = op.cast(base, INT64), op.cast(exponent, INT64)
    shape = op.Shape(op.Add(base, exponent))
    one = op.constant(1, INT64)
    # for the bases 1 and -1 the exponents n and -n give the same power
    rest = op.Expand(op.Abs(exponent), shape)

    def step(i: Value, power: Value, square: Value, rest: Value) -> list[Value]:
        half = op.Div(rest, 2)
        odd = op.Greater(op.Sub(rest, op.Mul(half, 2)), 0)
        power = op.Where(odd, op.Mul(power, square), power)
        return [_any_nonzero(op, half), power, op.Mul(square, square), half]

    carried = [op.Expand(one, shape), op.Expand(base, shape), rest]
    power = op.loop(None, carried, step, condition=_any_nonzero(op, rest))[0]
    vanishes = op.And(op.Less(exponent, 0), op.Greater(op.Abs(base), 1))
    vanishes = op.Or(vanishes, op.And(op.Less(exponent, 0), op.Equal(base, 0)))
    return op.cast(op.Where(vanishes, op.constant(0, INT64), power), op.result_dtype)
