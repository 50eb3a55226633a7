"""Bessel functions of orders 0 and 1, modified Bessel functions, and Airy's function.

Computed in DOUBLE: near zero by Maclaurin series, whose coefficients are computed here; far from it
by asymptotic series (Hankel's, DLMF 10.17 and 10.40). The modified functions of the second kind,
whose series cancel in between, use Chebyshev interpolations computed with 50 digits.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.ops.special.series import polynomial
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
DOUBLE = ir.DataType.DOUBLE

EULER = 0.5772156649015329

# sqrt(x) e^x K(x) in t = 4 / x - 1 for x >= 2; within 1e-13.
K0 = (
    1.2185953385133161,
    -0.031071461824542818,
    0.0030328918196279604,
    -0.00047976907306044426,
    9.95603557517295e-05,
    -2.473498246507679e-05,
    7.003730541256713e-06,
    -2.192525488107726e-06,
    7.3720035002445e-07,
    -2.6462896371950505e-07,
    1.1409001453435246e-07,
    -4.885093608370056e-08,
    5.313992529195922e-09,
    -1.8207743447962272e-10,
    9.341670098594563e-09,
    -4.8825907988859755e-09,
)
K1 = (
    1.3631518903714253,
    0.1033497377534794,
    -0.00556672989053493,
    0.0007357241730443634,
    -0.00013959000514767199,
    3.284361830254039e-05,
    -8.962868973009067e-06,
    2.731542223115688e-06,
    -9.004625673328277e-07,
    3.182157113652136e-07,
    -1.3450533392178894e-07,
    5.6835699830018934e-08,
    -6.658545522647837e-09,
    4.792736743586974e-10,
    -1.0560913088100949e-08,
    5.486050780859995e-09,
)
# x^(1/4) e^z Ai(x) in t = 6 / z - 1 with z = 2/3 x^(3/2), for z >= 3; within 2e-14.
AIRY = (
    0.27908069489334986,
    -0.0027959585281340546,
    0.00019110588439384858,
    -2.2523946854841766e-05,
    3.592953495290513e-06,
    -7.010087978906908e-07,
    1.5837627996678882e-07,
    -4.007414772344342e-08,
    1.1221552319454968e-08,
    -3.381113637010255e-09,
    9.154027076340307e-10,
    -2.853886881023941e-10,
    2.1768091650519175e-10,
    -8.728066880150798e-11,
)

FAR = 16.0
TERMS = 36  # of the series up to FAR


def _maclaurin_coefficients(order: int, terms: int, sign: int, unit: float = FAR) -> list[float]:
    """30 coefficients in ``(x / unit)^2`` of ``J (x/2)^-order``, or of I if the sign is 1."""
    scale = sign * (unit / 2.0) ** 2
    return [scale**k / (math.factorial(k) * math.factorial(k + order)) for k in range(terms)]


def _second_kind(order: int, terms: int, sign: int, unit: float = FAR) -> list[float]:
    """The same times ``psi(k + 1) + psi(k + order + 1)``: Y and K without their logarithm."""
    harmonic = [sum(1.0 / j for j in range(1, k + 1)) for k in range(terms + order)]
    return [
        c * (harmonic[k] + harmonic[k + order] - 2.0 * EULER)
        for k, c in enumerate(_maclaurin_coefficients(order, terms, sign, unit))
    ]


def _hankel_coefficients(order: int, terms: int) -> list[float]:
    """``a(k)`` of Hankel's expansions (DLMF 10.17.1)."""
    coefficients = [1.0]
    for k in range(1, terms):
        coefficients.append(coefficients[-1] * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k))
    return coefficients


def _square(op: Builder, x: Value, unit: float = FAR) -> Value:
    """``(x / unit)^2``, scaled so that no coefficient is small enough for FLOAT to take it for 0.

    ONNX Runtime drops the addition of such a constant, also of type DOUBLE.
    """
    ratio = op.Mul(x, 1.0 / unit)
    return op.Mul(ratio, ratio)


# --- the first kind, modified ----------------------------------------------------------------


def _scaled_modified_first_kind(op: Builder, x: Value, order: int) -> Value:
    """``exp(-|x|) I(|x|)``."""
    a = op.Abs(x)
    near = op.Mul(
        polynomial(op, _square(op, a), _maclaurin_coefficients(order, TERMS, 1)), op.Exp(op.Neg(a))
    )
    if order:
        near = op.Mul(near, op.Mul(a, 0.5))
    alternating = [c * (-1.0) ** k for k, c in enumerate(_hankel_coefficients(order, 20))]
    far = op.Div(polynomial(op, op.Reciprocal(a), alternating), op.Sqrt(op.Mul(a, 2.0 * math.pi)))
    value = op.Where(op.LessOrEqual(a, FAR), near, far)
    return op.Mul(value, op.Sign(x)) if order else value


def _modified_first_kind(op: Builder, value: Value, order: int, scaled: bool) -> Value:
    x = op.cast(value, DOUBLE)
    result = _scaled_modified_first_kind(op, x, order)
    if not scaled:
        result = op.Mul(result, op.Exp(op.Abs(x)))
    return op.cast(result, op.result_dtype)


@register(aten.i0.default, aten.special_modified_bessel_i0.default)
def aten_i0(op: Builder, self: Value) -> Value:
    return _modified_first_kind(op, self, 0, False)


@register(aten.special_i0e.default)
def aten_special_i0e(op: Builder, self: Value) -> Value:
    return _modified_first_kind(op, self, 0, True)


@register(aten.special_i1.default, aten.special_modified_bessel_i1.default)
def aten_special_i1(op: Builder, self: Value) -> Value:
    return _modified_first_kind(op, self, 1, False)


@register(aten.special_i1e.default)
def aten_special_i1e(op: Builder, self: Value) -> Value:
    return _modified_first_kind(op, self, 1, True)


# --- the second kind, modified ---------------------------------------------------------------


def _modified_second_kind(op: Builder, value: Value, order: int, scaled: bool) -> Value:
    """K, which is infinite at zero and NaN below it."""
    x = op.cast(value, DOUBLE)
    y, log = _square(op, x, 2.0), op.Log(op.Mul(x, 0.5))
    first = polynomial(op, y, _maclaurin_coefficients(order, 14, 1, 2.0))
    rest = op.Mul(polynomial(op, y, _second_kind(order, 14, 1, 2.0)), 0.5)
    near = op.Sub(rest, op.Mul(log, first))
    if order:
        near = op.Sub(op.Reciprocal(x), op.Mul(near, op.Mul(x, 0.5)))
    t = op.Sub(op.Div(4.0, x), 1.0)
    far = op.Div(polynomial(op, t, K1 if order else K0), op.Sqrt(x))
    if scaled:
        near = op.Mul(near, op.Exp(x))
    else:
        far = op.Mul(far, op.Exp(op.Neg(x)))
    result = op.Where(op.LessOrEqual(x, 2.0), near, far)
    result = op.Where(op.Equal(x, 0.0), op.constant(math.inf, DOUBLE), result)
    return op.cast(result, op.result_dtype)


@register(aten.special_modified_bessel_k0.default)
def aten_special_modified_bessel_k0(op: Builder, self: Value) -> Value:
    return _modified_second_kind(op, self, 0, False)


@register(aten.special_modified_bessel_k1.default)
def aten_special_modified_bessel_k1(op: Builder, self: Value) -> Value:
    return _modified_second_kind(op, self, 1, False)


@register(aten.special_scaled_modified_bessel_k0.default)
def aten_special_scaled_modified_bessel_k0(op: Builder, x: Value) -> Value:
    return _modified_second_kind(op, x, 0, True)


@register(aten.special_scaled_modified_bessel_k1.default)
def aten_special_scaled_modified_bessel_k1(op: Builder, x: Value) -> Value:
    return _modified_second_kind(op, x, 1, True)


# --- J and Y ---------------------------------------------------------------------------------


def _far_waves(op: Builder, x: Value, order: int) -> tuple[Value, Value]:
    """J and Y far from zero (DLMF 10.17.3 and 10.17.4)."""
    inverse = op.Reciprocal(x)
    square = op.Mul(inverse, inverse)
    coefficients = _hankel_coefficients(order, 18)
    even = [c * (-1.0) ** k for k, c in enumerate(coefficients[0::2])]
    odd = [c * (-1.0) ** k for k, c in enumerate(coefficients[1::2])]
    p = polynomial(op, square, even)
    q = op.Mul(polynomial(op, square, odd), inverse)
    phase = op.Sub(x, (order / 2.0 + 0.25) * math.pi)
    cosine, sine = op.Cos(phase), op.Sin(phase)
    amplitude = op.Sqrt(op.Mul(inverse, 2.0 / math.pi))
    first = op.Mul(amplitude, op.Sub(op.Mul(p, cosine), op.Mul(q, sine)))
    second = op.Mul(amplitude, op.Add(op.Mul(p, sine), op.Mul(q, cosine)))
    return first, second


def _near_first(op: Builder, x: Value, order: int) -> Value:
    near = polynomial(op, _square(op, x), _maclaurin_coefficients(order, TERMS, -1))
    return op.Mul(near, op.Mul(x, 0.5)) if order else near


def _bessel_first_kind(op: Builder, value: Value, order: int) -> Value:
    x = op.cast(value, DOUBLE)
    a = op.Abs(x)
    far, _ = _far_waves(op, a, order)
    result = op.Where(op.LessOrEqual(a, FAR), _near_first(op, a, order), far)
    if order:
        result = op.Mul(result, op.Sign(x))
    return op.cast(result, op.result_dtype)


def _bessel_second_kind(op: Builder, value: Value, order: int) -> Value:
    """Y, which is minus infinity at zero and NaN below it (DLMF 10.8.1)."""
    x = op.cast(value, DOUBLE)
    near = op.Mul(op.Mul(_near_first(op, x, order), op.Log(op.Mul(x, 0.5))), 2.0)
    rest = polynomial(op, _square(op, x), _second_kind(order, TERMS, -1))
    if order:
        rest = op.Add(op.Mul(rest, op.Mul(x, 0.5)), op.Div(2.0, x))
    near = op.Div(op.Sub(near, rest), math.pi)
    _, far = _far_waves(op, x, order)
    result = op.Where(op.LessOrEqual(x, FAR), near, far)
    result = op.Where(op.Equal(x, 0.0), op.constant(-math.inf, DOUBLE), result)
    return op.cast(result, op.result_dtype)


@register(aten.special_bessel_j0.default)
def aten_special_bessel_j0(op: Builder, self: Value) -> Value:
    return _bessel_first_kind(op, self, 0)


@register(aten.special_bessel_j1.default)
def aten_special_bessel_j1(op: Builder, self: Value) -> Value:
    return _bessel_first_kind(op, self, 1)


@register(aten.special_bessel_y0.default)
def aten_special_bessel_y0(op: Builder, self: Value) -> Value:
    return _bessel_second_kind(op, self, 0)


@register(aten.special_bessel_y1.default)
def aten_special_bessel_y1(op: Builder, self: Value) -> Value:
    return _bessel_second_kind(op, self, 1)


@register(aten.special_spherical_bessel_j0.default)
def aten_special_spherical_bessel_j0(op: Builder, x: Value) -> Value:
    """``sin(x) / x``, 1 at zero and 0 at infinity."""
    wide = op.cast(x, DOUBLE)
    value = op.Div(op.Sin(wide), wide)
    value = op.Where(op.Equal(wide, 0.0), op.constant(1.0, DOUBLE), value)
    value = op.Where(op.IsInf(wide), op.constant(0.0, DOUBLE), value)
    return op.cast(value, op.result_dtype)


# --- Airy's function -------------------------------------------------------------------------

AI_0 = 3.0 ** (-2.0 / 3.0) / math.gamma(2.0 / 3.0)
AI_SLOPE = 3.0 ** (-1.0 / 3.0) / math.gamma(1.0 / 3.0)
AIRY_FAR = -7.0
AIRY_RIGHT = 2.8  # z = 3.1 there


def _airy_maclaurin(start: float, first: int) -> list[float]:
    """Coefficients in ``(x / AIRY_FAR)^3``: each is the last over ``n (n - 1)`` (DLMF 9.4.1)."""
    coefficients, n = [start], first
    for _ in range(29):
        coefficients.append(coefficients[-1] * AIRY_FAR**3 / (n * (n - 1)))
        n += 3
    return coefficients


def _airy_asymptotic(terms: int) -> list[float]:
    """Coefficients ``u(k)`` of DLMF 9.7.2."""
    u = [1.0]
    for k in range(1, terms):
        u.append(u[-1] * (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216 * k * (2 * k - 1)))
    return u


@register(aten.special_airy_ai.default)
def aten_special_airy_ai(op: Builder, x: Value) -> Value:
    """Maclaurin's series in the middle, decay to the right, waves to the left (DLMF 9.7.9)."""
    wide = op.cast(x, DOUBLE)
    unit = op.Mul(wide, 1.0 / AIRY_FAR)
    cube = op.Mul(op.Mul(unit, unit), unit)
    middle = op.Sub(
        polynomial(op, cube, _airy_maclaurin(AI_0, 3)),
        op.Mul(wide, polynomial(op, cube, _airy_maclaurin(AI_SLOPE, 4))),
    )
    a = op.Abs(wide)
    root = op.Sqrt(a)
    z = op.Mul(op.Mul(a, root), 2.0 / 3.0)
    inverse, fourth_root = op.Reciprocal(z), op.Sqrt(root)
    t = op.Sub(op.Mul(inverse, 6.0), 1.0)
    right = op.Div(op.Mul(polynomial(op, t, AIRY), op.Exp(op.Neg(z))), fourth_root)
    u = _airy_asymptotic(18)
    square = op.Mul(inverse, inverse)
    even = polynomial(op, square, [c * (-1.0) ** k for k, c in enumerate(u[0::2])])
    odd = polynomial(op, square, [c * (-1.0) ** k for k, c in enumerate(u[1::2])])
    phase = op.Sub(z, math.pi / 4.0)
    waves = op.Add(op.Mul(op.Cos(phase), even), op.Mul(op.Sin(phase), op.Mul(odd, inverse)))
    left = op.Div(waves, op.Mul(fourth_root, math.sqrt(math.pi)))
    value = op.Where(op.Less(wide, AIRY_FAR), left, middle)
    value = op.Where(op.Greater(wide, AIRY_RIGHT), right, value)
    value = op.Where(op.IsInf(wide), op.constant(math.nan, DOUBLE), value)
    return op.cast(value, op.result_dtype)


_CLOSER = "float64 is exact to 1e-10, PyTorch's own value is off by up to {} between {}"
LIMITS.update(
    {
        aten.special_airy_ai.default: _CLOSER.format("1e-6", "-3 and -2"),
        aten.special_bessel_j0.default: _CLOSER.format("4e-7", "5 and 16"),
        aten.special_bessel_j1.default: _CLOSER.format("4e-7", "5 and 16"),
        aten.special_bessel_y0.default: _CLOSER.format("2e-7", "5 and 16"),
        aten.special_bessel_y1.default: _CLOSER.format("1e-6", "5 and 16"),
    }
)
