"""Relatives of the error function: erfc, erfcx, erfinv, log_ndtr, ndtr, ndtri.

All are computed from ``erfcx(x) = exp(x^2) erfc(x)`` for ``x >= 0``, which neither overflows nor
underflows, and in DOUBLE, because their differences cancel in FLOAT. The coefficients are Chebyshev
interpolations computed with 50 digits and written as powers, lowest first.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.registry import register
from onnx_aot.ops.special.series import log1p, polynomial
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
DOUBLE = ir.DataType.DOUBLE

# (1 + 2 x) erfcx(x) in t = (x - 3.75) / (x + 3.75), x from 0 to infinity; within 3e-15.
ERFCX = (
    1.2375126308378264,
    -0.1402405985855061,
    0.003585415485781718,
    0.08227673848712364,
    -0.10880393015455231,
    0.09230432122630407,
    -0.058693398387769276,
    0.028362276757789878,
    -0.009746581194305737,
    0.0017556295098350434,
    0.0002937214295671746,
    -0.00029016629854870584,
    5.162601622259853e-05,
    2.2410019228612918e-05,
    -1.1399726074447365e-05,
    -1.0083452170479683e-06,
    1.6959958079430478e-06,
    -2.7749611122883763e-08,
    -2.143069227582364e-07,
    8.526359817483033e-09,
    1.7552176307433927e-08,
)

CENTRAL = 0.75
# erfinv(y) / y in t = 2 (y / CENTRAL)^2 - 1; within 2e-14.
ERFINV = (
    0.9640216376238362,
    0.09346781082875641,
    0.01969115624002748,
    0.005173013412388929,
    0.001509722925511373,
    0.00046854911416072093,
    0.0001513953993921312,
    5.032886815487698e-05,
    1.7090261328089953e-05,
    5.898518404453248e-06,
    2.056192429221299e-06,
    7.256059057262511e-07,
    2.6883209799956356e-07,
    9.749163436055608e-08,
    2.5134712302404914e-08,
    8.58161458448913e-09,
    8.515446697289498e-09,
    3.2510113949443275e-09,
)


def _erfcx(op: Builder, x: Value) -> Value:
    """``erfcx(x)`` for ``x >= 0``; 0 at infinity."""
    t = op.Sub(1.0, op.Div(7.5, op.Add(x, 3.75)))
    return op.Div(polynomial(op, t, ERFCX), op.Add(op.Mul(x, 2.0), 1.0))


@register(aten.special_ndtr.default)
def aten_special_ndtr(op: Builder, self: Value) -> Value:
    """``erfc(-x / sqrt 2) / 2``."""
    x = op.cast(self, DOUBLE)
    return op.cast(op.Mul(_erfc(op, op.Mul(x, -math.sqrt(0.5))), 0.5), op.result_dtype)


@register(aten.erfc.default)
def aten_erfc(op: Builder, self: Value) -> Value:
    return op.cast(_erfc(op, op.cast(self, DOUBLE)), op.result_dtype)


def _erfc(op: Builder, x: Value) -> Value:
    """``exp(-x^2) erfcx(x)``; below zero 2 minus that of ``-x``, because ``1 - erf(x)`` cancels."""
    magnitude = op.Abs(x)
    upper = op.Mul(_erfcx(op, magnitude), op.Exp(op.Neg(op.Mul(magnitude, magnitude))))
    return op.Where(op.Less(x, 0.0), op.Sub(2.0, upper), upper)


@register(aten.special_erfcx.default)
def aten_special_erfcx(op: Builder, self: Value) -> Value:
    """``2 exp(x^2) - erfcx(-x)`` below zero."""
    x = op.cast(self, DOUBLE)
    scaled = _erfcx(op, op.Abs(x))
    below = op.Sub(op.Mul(op.Exp(op.Mul(x, x)), 2.0), scaled)
    return op.cast(op.Where(op.Less(x, 0.0), below, scaled), op.result_dtype)


@register(aten.special_log_ndtr.default)
def aten_special_log_ndtr(op: Builder, self: Value) -> Value:
    """``log(erfcx(-x / sqrt 2) / 2) - x^2 / 2`` on the left, ``log1p(-erfc(x / sqrt 2) / 2)``."""
    x = op.cast(self, DOUBLE)
    a = op.Div(op.Abs(x), math.sqrt(2.0))
    scaled = op.Div(_erfcx(op, a), 2.0)
    square = op.Mul(a, a)
    left = op.Sub(op.Log(scaled), square)
    tail = op.Mul(scaled, op.Exp(op.Neg(square)))
    right = log1p(op, op.Neg(op.Where(op.Less(x, 0.0), op.Sub(1.0, tail), tail)))
    return op.cast(op.Where(op.Less(x, -1.0), left, right), op.result_dtype)


def _normal_quantile(op: Builder, p: Value) -> Value:
    """The quantile of the normal distribution for ``0 < p <= 1/2``; NaN for ``p < 0``.

    Abramowitz and Stegun 26.2.23 is within 4.5e-4; two steps of Halley's method follow, each with
    an error of the third power of the previous one. The steps are scaled by the density, so that
    they do not underflow.
    """
    log = op.Log(p)
    t = op.Sqrt(op.Mul(log, -2.0))
    rational = op.Div(
        polynomial(op, t, (2.515517, 0.802853, 0.010328)),
        polynomial(op, t, (1.0, 1.432788, 0.189269, 0.001308)),
    )
    z = op.Sub(rational, t)
    for _ in range(2):
        below = op.Mul(_erfcx(op, op.Mul(z, -math.sqrt(0.5))), math.sqrt(math.pi / 2.0))
        wanted = op.Exp(op.Add(op.Mul(op.Mul(z, z), 0.5), log))
        step = op.Sub(below, op.Mul(wanted, math.sqrt(2.0 * math.pi)))
        z = op.Sub(z, op.Div(step, op.Add(op.Mul(op.Mul(z, step), 0.5), 1.0)))
    return op.Where(op.Equal(p, 0.0), op.constant(-math.inf, DOUBLE), z)


@register(aten.special_ndtri.default)
def aten_special_ndtri(op: Builder, self: Value) -> Value:
    p = op.cast(self, DOUBLE)
    upper_half = op.Greater(p, 0.5)
    z = _normal_quantile(op, op.Where(upper_half, op.Sub(1.0, p), p))
    return op.cast(op.Where(upper_half, op.Neg(z), z), op.result_dtype)


@register(aten.erfinv.default)
def aten_erfinv(op: Builder, self: Value) -> Value:
    """A polynomial in the middle; elsewhere the normal quantile of ``(1 - |y|) / 2``."""
    y = op.cast(self, DOUBLE)
    t = op.Sub(op.Mul(op.Mul(y, y), 2.0 / CENTRAL**2), 1.0)
    central = op.Mul(y, polynomial(op, t, ERFINV))
    magnitude = op.Abs(y)
    quantile = _normal_quantile(op, op.Mul(op.Sub(1.0, magnitude), 0.5))
    outer = op.Mul(op.Mul(quantile, -math.sqrt(0.5)), op.Sign(y))
    inside = op.LessOrEqual(magnitude, CENTRAL)
    return op.cast(op.Where(inside, central, outer), op.result_dtype)
