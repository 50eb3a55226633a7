"""Logarithm of the gamma function, its derivatives, Hurwitz zeta, incomplete gamma functions.

Computed in DOUBLE, because their series cancel in FLOAT. An argument that is too small for an
asymptotic series is shifted by a recurrence, whose terms lie along an axis of their own.
"""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.ops.special.series import add_each, log1p, polynomial
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
DOUBLE = ir.DataType.DOUBLE

# B(2k) / (2k (2k - 1)), the series of log gamma (DLMF 5.11.1).
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
# B(2k) / (2k), the series of digamma (DLMF 5.11.2).
DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
# B(2k) / (2k)!, the Euler-Maclaurin series of Hurwitz zeta (DLMF 25.11.5).
EULER_MACLAURIN = tuple(
    number / math.factorial(2 * k)
    for k, number in enumerate(
        (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510), start=1
    )
)


def _number(op: Builder, value: float) -> Value:
    return op.constant(value, DOUBLE)


def _from_nearest(op: Builder, x: Value) -> Value:
    """``pi (x - round(x))``, whose sine keeps the digits that the sine of ``pi x`` loses."""
    return op.Mul(op.Sub(x, op.Round(x)), math.pi)


def log_gamma(op: Builder, x: Value) -> Value:
    """Stirling's series; below 8 shifted by ``x (x + 1) ... (x + 7)``, below 1/2 reflected."""
    reflected = op.Less(x, 0.5)
    y = op.Where(reflected, op.Sub(1.0, x), x)
    small = op.Less(y, 8.0)
    product = op.reduce("ReduceProd", add_each(op, y, range(8)), [op.rank(y)], False)
    z = op.Where(small, op.Add(y, 8.0), y)
    main = op.Mul(op.Sub(z, 0.5), op.Sub(op.Log(z), 1.0))
    inverse = op.Reciprocal(z)
    rest = op.Mul(polynomial(op, op.Mul(inverse, inverse), STIRLING), inverse)
    value = op.Add(op.Add(main, (math.log(2.0 * math.pi) - 1.0) / 2.0), rest)
    value = op.Sub(value, op.Where(small, op.Log(product), _number(op, 0.0)))
    sine = op.Abs(op.Sin(_from_nearest(op, x)))
    value = op.Where(reflected, op.Sub(op.Log(op.Div(math.pi, sine)), value), value)
    return op.Where(op.IsInf(x), _number(op, math.inf), value)


@register(aten.lgamma.default)
def aten_lgamma(op: Builder, self: Value) -> Value:
    return op.cast(log_gamma(op, op.cast(self, DOUBLE)), op.result_dtype)


@register(aten.mvlgamma.default)
def aten_mvlgamma(op: Builder, self: Value, p: int) -> Value:
    """``p (p - 1) / 4 log(pi)`` plus the sum of ``lgamma(x - j / 2)`` for ``j < p``."""
    parts = log_gamma(op, add_each(op, op.cast(self, DOUBLE), [-j / 2 for j in range(p)]))
    total = op.reduce("ReduceSum", parts, [op.rank(self)], False)
    return op.cast(op.Add(total, p * (p - 1) / 4.0 * math.log(math.pi)), op.result_dtype)


def digamma(op: Builder, x: Value) -> Value:
    """The asymptotic series; below 10 shifted, below 0 reflected; NaN at negative integers."""
    negative = op.Less(x, 0.0)
    y = op.Where(negative, op.Sub(1.0, x), x)
    small = op.Less(y, 10.0)
    terms = op.Reciprocal(add_each(op, y, range(10)))
    shift = op.reduce("ReduceSum", terms, [op.rank(y)], False)
    z = op.Where(small, op.Add(y, 10.0), y)
    inverse = op.Reciprocal(z)
    square = op.Mul(inverse, inverse)
    value = op.Sub(op.Log(z), op.Mul(inverse, 0.5))
    value = op.Sub(value, op.Mul(polynomial(op, square, DIGAMMA), square))
    value = op.Sub(value, op.Where(small, shift, _number(op, 0.0)))
    angle = _from_nearest(op, x)
    cotangent = op.Div(op.Cos(angle), op.Sin(angle))
    value = op.Where(negative, op.Sub(value, op.Mul(cotangent, math.pi)), value)
    pole = op.And(negative, op.Equal(x, op.Round(x)))
    value = op.Where(pole, _number(op, math.nan), value)
    return op.Where(op.Equal(x, 0.0), op.Neg(op.Reciprocal(x)), value)


@register(aten.digamma.default)
def aten_digamma(op: Builder, self: Value) -> Value:
    return op.cast(digamma(op, op.cast(self, DOUBLE)), op.result_dtype)


LIMITS[aten.polygamma.default] = (
    "n = 1 at negative integers is infinite or a large number, in PyTorch another large number"
)


@register(aten.polygamma.default)
def aten_polygamma(op: Builder, n: int, self: Value) -> Value:
    """``(-1)^(n + 1) n! zeta(n + 1, x)``; trigamma is reflected below 1/2, as in torch."""
    x = op.cast(self, DOUBLE)
    if n == 0:
        return op.cast(digamma(op, x), op.result_dtype)
    if n > 1:
        value = hurwitz_zeta(op, _number(op, n + 1.0), x)
        factor = math.factorial(n) * (-1.0) ** (n + 1)
        return op.cast(op.Mul(value, factor), op.result_dtype)
    reflected = op.Less(x, 0.5)
    value = _zeta_of_positive(op, _number(op, 2.0), op.Where(reflected, op.Sub(1.0, x), x))
    # in the operand's own type: at the poles torch uses the rounding residue of the sine
    own = self if self.dtype == DOUBLE else op.cast(self, ir.DataType.FLOAT)
    sine = op.cast(op.Sin(op.Mul(own, math.pi)), DOUBLE)
    mirrored = op.Sub(op.Div(math.pi**2, op.Mul(sine, sine)), value)
    value = op.Where(op.Equal(x, math.inf), _number(op, 0.0), value)
    return op.cast(op.Where(reflected, mirrored, value), op.result_dtype)


def _zeta_of_positive(op: Builder, s: Value, q: Value) -> Value:
    """Hurwitz zeta for ``q >= 0``: ten terms, then the Euler-Maclaurin formula at ``q + 10``."""
    axis = max(op.rank(s), op.rank(q))
    exponent = op.Neg(s)
    lifted = op.Unsqueeze(exponent, [op.rank(s)])
    head = op.ReduceSum(op.Pow(add_each(op, q, range(10)), lifted), [axis], keepdims=0)
    w = op.Add(q, 10.0)
    last = op.Pow(w, exponent)
    inverse = op.Reciprocal(w)
    square = op.Mul(inverse, inverse)
    series = _number(op, EULER_MACLAURIN[-1])
    for k in range(len(EULER_MACLAURIN) - 1, 0, -1):
        factor = op.Mul(op.Add(s, 2.0 * k - 1.0), op.Add(s, 2.0 * k))
        series = op.Mul(op.Mul(series, factor), square)
        series = op.Add(series, EULER_MACLAURIN[k - 1])
    series = op.Mul(series, op.Mul(s, inverse))
    tail = op.Mul(last, op.Add(op.Add(op.Div(w, op.Sub(s, 1.0)), 0.5), series))
    # 0 times infinity where the terms are too small to matter; NaN, as in torch, where all are 0
    lost = op.And(op.IsNaN(tail), op.Not(op.Equal(head, 0.0)))
    return op.Add(head, op.Where(lost, _number(op, 0.0), tail))


def hurwitz_zeta(op: Builder, s: Value, q: Value) -> Value:
    """The sum of ``(q + k)^-s``.

    Below zero, for an integer s, the terms there are a finite sum, computed as the difference of
    two sums of positive terms.
    """
    negative = op.Less(q, 0.0)
    above = op.Add(op.Floor(op.Neg(q)), 1.0)
    start = op.Where(negative, op.Add(q, above), q)
    below = op.Sub(
        _zeta_of_positive(op, s, op.Sub(1.0, start)), _zeta_of_positive(op, s, op.Sub(1.0, q))
    )
    half = op.Mul(s, 0.5)
    even = op.Equal(half, op.Floor(half))
    below = op.Where(even, below, op.Neg(below))
    value = _zeta_of_positive(op, s, start)
    value = op.Where(negative, op.Add(value, below), value)
    fraction = op.Not(op.Equal(s, op.Floor(s)))
    value = op.Where(op.And(negative, fraction), _number(op, math.nan), value)
    pole = op.And(op.LessOrEqual(q, 0.0), op.Equal(q, op.Floor(q)))
    value = op.Where(op.Or(pole, op.Equal(s, 1.0)), _number(op, math.inf), value)
    return op.Where(op.Less(s, 1.0), _number(op, math.nan), value)


@register(
    aten.special_zeta.default,
    aten.special_zeta.self_scalar,
    aten.special_zeta.other_scalar,
)
def aten_special_zeta(op: Builder, self: Any, other: Any) -> Value:
    return op.cast(hurwitz_zeta(op, op.cast(self, DOUBLE), op.cast(other, DOUBLE)), op.result_dtype)


# --- incomplete gamma functions --------------------------------------------------------------

STEPS = 130
LARGE = 100.0


def _power_series(op: Builder, a: Value, x: Value) -> Value:
    """``sum x^n / ((a + 1) ... (a + n))`` (DLMF 8.11.4), for ``x < a + 1``."""
    one = op.Expand(_number(op, 1.0), op.Shape(op.Add(a, x)))

    def add_term(i: Value, term: Value, total: Value) -> list[Value]:
        term = op.Mul(term, op.Div(x, op.Add(op.Add(a, op.cast(i, DOUBLE)), 1.0)))
        return [term, op.Add(total, term)]

    return op.loop(STEPS, [one, one], add_term)[1]


def _continued_fraction(op: Builder, a: Value, x: Value) -> Value:
    """Legendre's fraction of ``Gamma(a, x) e^x x^-a`` (DLMF 8.9.2), evaluated from its end."""
    base = op.Sub(x, a)

    def extend_fraction(i: Value, fraction: Value) -> list[Value]:
        k = op.Sub(float(STEPS), op.cast(i, DOUBLE))
        numerator = op.Mul(k, op.Sub(a, k))
        denominator = op.Add(base, op.Sub(op.Mul(k, 2.0), 1.0))
        return [op.Add(denominator, op.Div(numerator, fraction))]

    last = op.Add(base, 2.0 * STEPS + 1.0)
    return op.Reciprocal(op.loop(STEPS, [last], extend_fraction)[0])


def _by_quadrature(op: Builder, a: Value, x: Value) -> tuple[Value, Value]:
    """Both functions for a large a; the smaller one by Gauss-Legendre quadrature.

    The integrand is close to a normal density of variance a; it is integrated from x to the point
    where nothing is left of it.
    """
    mode = op.Sub(a, 1.0)
    deviation = op.Sqrt(mode)
    above = op.Greater(x, mode)
    upper = op.Max(op.Add(mode, op.Mul(deviation, 11.5)), op.Add(x, op.Mul(deviation, 6.0)))
    lower = op.Min(op.Sub(mode, op.Mul(deviation, 7.5)), op.Sub(x, op.Mul(deviation, 5.0)))
    width = op.Sub(op.Where(above, upper, op.Max(lower, 0.0)), x)
    axis = max(op.rank(a), op.rank(x))
    nodes, weights = _gauss_legendre()
    lift = [axis]
    mode_ = op.Unsqueeze(op.Expand(mode, op.Shape(width)), lift)
    start = op.Unsqueeze(op.Expand(op.Sub(x, mode), op.Shape(width)), lift)
    way = op.Add(start, op.Mul(op.Unsqueeze(width, lift), op.constant(nodes, DOUBLE)))
    u = op.Div(way, mode_)
    density = op.Exp(op.Mul(mode_, op.Sub(log1p(op, u), u)))
    total = op.ReduceSum(op.Mul(density, op.constant(weights, DOUBLE)), lift, keepdims=0)
    inverse = op.Reciprocal(mode)
    correction = op.Mul(polynomial(op, op.Mul(inverse, inverse), STIRLING), inverse)
    scale = op.Div(op.Exp(op.Neg(correction)), op.Sqrt(op.Mul(mode, 2.0 * math.pi)))
    part = op.Mul(op.Mul(total, op.Abs(width)), scale)
    rest = op.Sub(1.0, part)
    return op.Where(above, rest, part), op.Where(above, part, rest)


def _gauss_legendre(count: int = 32) -> tuple[list[float], list[float]]:
    """Nodes and weights on 0 to 1, the nodes by Newton's method (NIST DLMF 3.5)."""
    nodes, weights = [], []
    for i in range(count):
        x = math.cos(math.pi * (i + 0.75) / (count + 0.5))
        slope = 1.0
        for _ in range(50):
            before, value = 1.0, x
            for k in range(2, count + 1):
                before, value = value, ((2 * k - 1) * x * value - (k - 1) * before) / k
            slope = count * (x * value - before) / (x * x - 1.0)
            x -= value / slope
        nodes.append((x + 1.0) / 2.0)
        weights.append(1.0 / ((1.0 - x * x) * slope * slope))
    return nodes, weights


def _incomplete_gamma(op: Builder, a: Value, x: Value) -> tuple[Value, Value]:
    """Lower and upper regularized functions, for positive finite arguments."""
    scale = op.Exp(op.Sub(op.Sub(op.Mul(a, op.Log(x)), x), log_gamma(op, a)))
    lower = op.Mul(op.Div(scale, a), _power_series(op, a, x))
    upper = op.Mul(scale, _continued_fraction(op, a, x))
    near_zero = op.Less(x, op.Add(a, 1.0))
    wide_lower, wide_upper = _by_quadrature(op, a, x)
    large = op.Greater(a, LARGE)
    return (
        op.Where(large, wide_lower, op.Where(near_zero, lower, op.Sub(1.0, upper))),
        op.Where(large, wide_upper, op.Where(near_zero, op.Sub(1.0, lower), upper)),
    )


def _at_edges(op: Builder, a: Value, x: Value, value: Value, none: float, all_: float) -> Value:
    """Sets ``none``, ``all_`` or NaN where an argument is 0, infinite or negative."""
    nothing, everything, nan = (_number(op, v) for v in (none, all_, math.nan))
    no_x, no_a, far_x, far_a = op.Equal(x, 0.0), op.Equal(a, 0.0), op.IsInf(x), op.IsInf(a)
    value = op.Where(op.Or(no_x, far_a), nothing, value)
    value = op.Where(op.Or(no_a, far_x), everything, value)
    undefined = op.Or(op.And(no_a, op.Not(op.Greater(x, 0.0))), op.And(far_a, far_x))
    negative = op.Or(op.Less(a, 0.0), op.Less(x, 0.0))
    return op.Where(op.Or(undefined, negative), nan, value)


@register(aten.igamma.default)
def aten_igamma(op: Builder, self: Value, other: Value) -> Value:
    a, x = op.cast(self, DOUBLE), op.cast(other, DOUBLE)
    lower, _ = _incomplete_gamma(op, a, x)
    return op.cast(_at_edges(op, a, x, lower, 0.0, 1.0), op.result_dtype)


@register(aten.igammac.default)
def aten_igammac(op: Builder, self: Value, other: Value) -> Value:
    a, x = op.cast(self, DOUBLE), op.cast(other, DOUBLE)
    _, upper = _incomplete_gamma(op, a, x)
    return op.cast(_at_edges(op, a, x, upper, 1.0, 0.0), op.result_dtype)
