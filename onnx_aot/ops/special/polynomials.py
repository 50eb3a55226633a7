"""Orthogonal polynomials of a degree that is a tensor, by their three-term recurrences.

The recurrences (DLMF 18.9.1) run to the highest degree, and each element keeps the value at its own
degree; a negative degree gives 0. They run in the operands' type, as in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
INT64 = ir.DataType.INT64

# (op, x, k, p(k), p(k - 1)) -> p(k + 1); k is a value of x's type
Step = Callable[[Builder, Value, Value, Value, Value], Value]
# The polynomial of degree 1, as (constant, factor of x), and the step.
Recurrence = tuple[tuple[float, float], Step]


def _chebyshev(op: Builder, x: Value, k: Value, current: Value, before: Value) -> Value:
    return op.Sub(op.Mul(op.Mul(x, 2.0), current), before)


def _hermite_h(op: Builder, x: Value, k: Value, current: Value, before: Value) -> Value:
    return op.Mul(op.Sub(op.Mul(x, current), op.Mul(k, before)), 2.0)


def _hermite_he(op: Builder, x: Value, k: Value, current: Value, before: Value) -> Value:
    return op.Sub(op.Mul(x, current), op.Mul(k, before))


def _laguerre(op: Builder, x: Value, k: Value, current: Value, before: Value) -> Value:
    weight = op.Sub(op.Add(op.Add(k, k), 1.0), x)
    return op.Div(op.Sub(op.Mul(weight, current), op.Mul(k, before)), op.Add(k, 1.0))


def _legendre(op: Builder, x: Value, k: Value, current: Value, before: Value) -> Value:
    weight = op.Mul(op.Add(op.Add(k, k), 1.0), x)
    return op.Div(op.Sub(op.Mul(weight, current), op.Mul(k, before)), op.Add(k, 1.0))


FAMILIES: dict[str, Recurrence] = {
    "chebyshev_polynomial_t": ((0.0, 1.0), _chebyshev),
    "chebyshev_polynomial_u": ((0.0, 2.0), _chebyshev),
    "chebyshev_polynomial_v": ((-1.0, 2.0), _chebyshev),
    "chebyshev_polynomial_w": ((1.0, 2.0), _chebyshev),
    "hermite_polynomial_h": ((0.0, 2.0), _hermite_h),
    "hermite_polynomial_he": ((0.0, 1.0), _hermite_he),
    "laguerre_polynomial_l": ((1.0, -1.0), _laguerre),
    "legendre_polynomial_p": ((0.0, 1.0), _legendre),
}

# Degrees above which Hermite's polynomials are NaN in PyTorch, by element type.
HERMITE_LIMIT = {ir.DataType.FLOAT: 128, ir.DataType.DOUBLE: 512}


def _evaluate(op: Builder, x: Any, n: Any, recurrence: Recurrence) -> Value:
    (constant, factor), step = recurrence
    dtype = op.result_dtype
    x = op.cast(x, dtype)
    degree = op.cast(n if isinstance(n, ir.Value) else int(n), INT64)
    shape = op.Shape(op.Add(x, op.cast(degree, dtype)))
    x = op.Expand(x, shape)
    one, zero = (op.Expand(op.constant(number, dtype), shape) for number in (1.0, 0.0))
    first = op.Add(op.Mul(x, factor), constant)
    value = op.Where(op.Equal(degree, 1), first, op.Where(op.Equal(degree, 0), one, zero))
    highest = op.reduce("ReduceMax", op.Concat(op.Reshape(degree, [-1]), [1], axis=0), None, False)

    def advance(i: Value, before: Value, current: Value, value: Value) -> list[Value]:
        following = step(op, x, op.cast(op.Add(i, 1), dtype), current, before)
        reached = op.Equal(degree, op.Add(i, 2))
        return [current, following, op.Where(reached, following, value)]

    return op.loop(op.Sub(highest, 1), [one, first, value], advance)[2]


def _register(name: str, shifted: bool, *targets: Any) -> None:
    recurrence = FAMILIES[name]

    def translate_polynomial(op: Builder, x: Any, n: Any) -> Value:
        if shifted:  # from 0 to 1
            doubled = op.cast(x, op.result_dtype)
            x = op.Sub(op.Add(doubled, doubled), 1.0)
        value = _evaluate(op, x, n, recurrence)
        if not name.startswith("hermite"):
            return value
        limit = HERMITE_LIMIT[op.result_dtype]
        degree = op.cast(n if isinstance(n, ir.Value) else int(n), INT64)
        nan = op.constant(math.nan, op.result_dtype)
        return op.Where(op.Greater(degree, limit), nan, value)

    translate_polynomial.__name__ = f"aten_special_{name}"
    register(*targets)(translate_polynomial)


_register(
    "chebyshev_polynomial_t",
    False,
    aten.special_chebyshev_polynomial_t.default,
    aten.special_chebyshev_polynomial_t.x_scalar,
    aten.special_chebyshev_polynomial_t.n_scalar,
)
_register(
    "chebyshev_polynomial_t",
    True,
    aten.special_shifted_chebyshev_polynomial_t.default,
    aten.special_shifted_chebyshev_polynomial_t.x_scalar,
    aten.special_shifted_chebyshev_polynomial_t.n_scalar,
)
_register(
    "chebyshev_polynomial_u",
    False,
    aten.special_chebyshev_polynomial_u.default,
    aten.special_chebyshev_polynomial_u.x_scalar,
    aten.special_chebyshev_polynomial_u.n_scalar,
)
_register(
    "chebyshev_polynomial_u",
    True,
    aten.special_shifted_chebyshev_polynomial_u.default,
    aten.special_shifted_chebyshev_polynomial_u.x_scalar,
    aten.special_shifted_chebyshev_polynomial_u.n_scalar,
)
_register(
    "chebyshev_polynomial_v",
    False,
    aten.special_chebyshev_polynomial_v.default,
    aten.special_chebyshev_polynomial_v.x_scalar,
    aten.special_chebyshev_polynomial_v.n_scalar,
)
_register(
    "chebyshev_polynomial_v",
    True,
    aten.special_shifted_chebyshev_polynomial_v.default,
    aten.special_shifted_chebyshev_polynomial_v.x_scalar,
    aten.special_shifted_chebyshev_polynomial_v.n_scalar,
)
_register(
    "chebyshev_polynomial_w",
    False,
    aten.special_chebyshev_polynomial_w.default,
    aten.special_chebyshev_polynomial_w.x_scalar,
    aten.special_chebyshev_polynomial_w.n_scalar,
)
_register(
    "chebyshev_polynomial_w",
    True,
    aten.special_shifted_chebyshev_polynomial_w.default,
    aten.special_shifted_chebyshev_polynomial_w.x_scalar,
    aten.special_shifted_chebyshev_polynomial_w.n_scalar,
)
_register(
    "hermite_polynomial_h",
    False,
    aten.special_hermite_polynomial_h.default,
    aten.special_hermite_polynomial_h.x_scalar,
    aten.special_hermite_polynomial_h.n_scalar,
)
_register(
    "hermite_polynomial_he",
    False,
    aten.special_hermite_polynomial_he.default,
    aten.special_hermite_polynomial_he.x_scalar,
    aten.special_hermite_polynomial_he.n_scalar,
)
_register(
    "laguerre_polynomial_l",
    False,
    aten.special_laguerre_polynomial_l.default,
    aten.special_laguerre_polynomial_l.x_scalar,
    aten.special_laguerre_polynomial_l.n_scalar,
)
_register(
    "legendre_polynomial_p",
    False,
    aten.special_legendre_polynomial_p.default,
    aten.special_legendre_polynomial_p.x_scalar,
    aten.special_legendre_polynomial_p.n_scalar,
)
