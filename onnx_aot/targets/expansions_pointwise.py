"""Expresses pointwise functions of DOUBLE by those that ONNX Runtime has kernels for.

It has kernels for Abs, Neg, Exp, Log, Sqrt, Sin, Cos, Tanh, Sigmoid and arithmetic. Every formula
is accurate to a few units in the last place, also near zero, and agrees with torch for infinities
and NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import onnx_ir as ir

from onnx_aot.targets.emitter import Emitter

__all__ = ["FORMULAS", "Formula"]

Formula = Callable[[Emitter, ir.Node], ir.Value]
Value = ir.Value

LN2 = math.log(2.0)
LARGE = 1e100
"""Above this, 1 is negligible next to a square, which may overflow to infinity."""


def _first_input(node: ir.Node) -> Value:
    value = node.inputs[0]
    assert value is not None
    return value


def _emit_polynomial(e: Emitter, x: Value, coefficients: Sequence[float]) -> Value:
    """Evaluates a polynomial by Horner's rule; the coefficient of the highest power comes first."""
    value: Value = e.Mul(x, coefficients[0])
    for coefficient in coefficients[1:-1]:
        value = e.Mul(e.Add(value, coefficient), x)
    return e.Add(value, coefficients[-1])


def _log1p(e: Emitter, x: Value) -> Value:
    """Emits ``log(1 + x)`` with W. Kahan's correction of the rounding error of 1 + x."""
    total = e.Add(x, 1.0)
    rounded = e.Sub(total, 1.0)
    log = e.Log(total)
    corrected = e.Mul(log, e.Div(x, rounded))
    small = e.Where(e.Equal(rounded, 0.0), x, corrected)
    return e.Where(e.Greater(x, 1.0), log, small)


def _atan(e: Emitter, x: Value) -> Value:
    """Emits ``atan(x)``: reduces to 1 / x above 1, halves the angle twice, and sums a series.

    Halving uses ``atan(x) = 2 atan(x / (1 + sqrt(1 + x * x)))``. The first omitted term of the
    series is at most 0.2 ** 23 / 23.
    """
    size = e.Abs(x)
    beyond = e.Greater(size, 1.0)
    t = e.Where(beyond, e.Reciprocal(size), size)
    for _ in range(2):
        t = e.Div(t, e.Add(e.Sqrt(e.Add(e.Mul(t, t), 1.0)), 1.0))
    series = [(-1.0) ** k / (2 * k + 1) for k in reversed(range(11))]
    angle = e.Mul(e.Mul(_emit_polynomial(e, e.Mul(t, t), series), t), 4.0)
    return e.with_sign(x, e.Where(beyond, e.Sub(math.pi / 2, angle), angle))


def _atan_formula(e: Emitter, node: ir.Node) -> Value:
    return _atan(e, _first_input(node))


def _asin(e: Emitter, node: ir.Node) -> Value:
    x = _first_input(node)
    return _atan(e, e.Div(x, e.Sqrt(e.Mul(e.Sub(1.0, x), e.Add(x, 1.0)))))


def _acos(e: Emitter, node: ir.Node) -> Value:
    """Emits ``2 atan(sqrt((1 - x) / (1 + x)))``, which does not cancel near 1."""
    x = _first_input(node)
    return e.Mul(_atan(e, e.Sqrt(e.Div(e.Sub(1.0, x), e.Add(x, 1.0)))), 2.0)


def _tan(e: Emitter, node: ir.Node) -> Value:
    x = _first_input(node)
    return e.Div(e.Sin(x), e.Cos(x))


def _half_cosh(e: Emitter, x: Value) -> Value:
    """Emits ``cosh(x)`` as a sum of two halves, which do not overflow before the result does."""
    return e.Add(e.Exp(e.Sub(x, LN2)), e.Exp(e.Sub(e.Neg(x), LN2)))


def _cosh(e: Emitter, node: ir.Node) -> Value:
    return _half_cosh(e, _first_input(node))


def _sinh(e: Emitter, node: ir.Node) -> Value:
    """Emits ``tanh(x) cosh(x)``, which does not cancel near 0."""
    x = _first_input(node)
    return e.Mul(e.Tanh(x), _half_cosh(e, x))


def _asinh(e: Emitter, node: ir.Node) -> Value:
    """Emits ``log(|x| + sqrt(x * x + 1))`` with the sign of x."""
    x = _first_input(node)
    size = e.Abs(x)
    square = e.Mul(size, size)
    root = e.Add(e.Sqrt(e.Add(square, 1.0)), 1.0)
    near = _log1p(e, e.Add(size, e.Div(square, root)))
    far = e.Add(e.Log(size), LN2)
    return e.with_sign(x, e.Where(e.Greater(size, LARGE), far, near))


def _acosh(e: Emitter, node: ir.Node) -> Value:
    """Emits ``log(x + sqrt(x * x - 1))``, computed from ``x - 1``; NaN below 1."""
    x = _first_input(node)
    t = e.Sub(x, 1.0)
    near = _log1p(e, e.Add(t, e.Mul(e.Sqrt(t), e.Sqrt(e.Add(t, 2.0)))))
    far = e.Add(e.Log(x), LN2)
    return e.Where(e.Greater(x, LARGE), far, near)


def _atanh(e: Emitter, node: ir.Node) -> Value:
    """Emits ``log((1 + |x|) / (1 - |x|)) / 2`` with the sign of x."""
    x = _first_input(node)
    size = e.Abs(x)
    ratio = e.Div(e.Mul(size, 2.0), e.Sub(1.0, size))
    return e.with_sign(x, e.Mul(_log1p(e, ratio), 0.5))


# W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969).
ERF_NEAR = (
    (
        1.85777706184603153e-1,
        3.16112374387056560,
        1.13864154151050156e2,
        3.77485237685302021e2,
        3.20937758913846947e3,
    ),
    (
        1.0,
        2.36012909523441209e1,
        2.44024637934444173e2,
        1.28261652607737228e3,
        2.84423683343917062e3,
    ),
)
ERFC_FAR = (
    (
        2.15311535474403846e-8,
        5.64188496988670089e-1,
        8.88314979438837594,
        6.61191906371416295e1,
        2.98635138197400131e2,
        8.81952221241769090e2,
        1.71204761263407058e3,
        2.05107837782607147e3,
        1.23033935479799725e3,
    ),
    (
        1.0,
        1.57449261107098347e1,
        1.17693950891312499e2,
        5.37181101862009858e2,
        1.62138957456669019e3,
        3.29079923573345963e3,
        4.36261909014324716e3,
        3.43936767414372164e3,
        1.23033935480374942e3,
    ),
)
ERF_SPLIT = 0.46875
ERF_ONE = 6.0
"""From here on, the nearest double to erf is 1."""


def _erf(e: Emitter, x: Value) -> Value:
    """Emits Cody's two quotients: in x * x near 0, and for ``erfc(|x|) exp(x * x)`` elsewhere."""
    size = e.Abs(x)
    near = e.Less(size, ERF_SPLIT)
    square = e.Mul(x, x)
    inner = e.Min(square, ERF_SPLIT * ERF_SPLIT)  # keeps the unused branch from overflowing
    quotient = e.Div(
        _emit_polynomial(e, inner, ERF_NEAR[0]), _emit_polynomial(e, inner, ERF_NEAR[1])
    )
    outer = e.Min(size, ERF_ONE)
    tail = e.Div(_emit_polynomial(e, outer, ERFC_FAR[0]), _emit_polynomial(e, outer, ERFC_FAR[1]))
    tail = e.Mul(tail, e.Exp(e.Neg(e.Mul(outer, outer))))
    return e.Where(near, e.Mul(x, quotient), e.with_sign(x, e.Sub(1.0, tail)))


def _erf_formula(e: Emitter, node: ir.Node) -> Value:
    return _erf(e, _first_input(node))


def _gelu(e: Emitter, node: ir.Node) -> Value:
    """Emits ``x (1 + erf(x / sqrt(2))) / 2``, or the approximation with tanh."""
    x = _first_input(node)
    if node.attributes.get_string("approximate") == "tanh":
        cube = e.Mul(e.Mul(x, x), x)
        inner = e.Mul(e.Add(x, e.Mul(cube, 0.044715)), math.sqrt(2 / math.pi))
        return e.Mul(e.Mul(x, 0.5), e.Add(e.Tanh(inner), 1.0))
    return e.Mul(e.Mul(x, 0.5), e.Add(_erf(e, e.Mul(x, math.sqrt(0.5))), 1.0))


# --- activations ---------------------------------------------------------------------------------


def _softplus(e: Emitter, x: Value) -> Value:
    """Emits ``log(1 + exp(x))`` as ``max(x, 0) + log1p(exp(-|x|))``, which does not overflow."""
    return e.Add(e.Max(x, 0.0), _log1p(e, e.Exp(e.Neg(e.Abs(x)))))


def _softplus_formula(e: Emitter, node: ir.Node) -> Value:
    return _softplus(e, _first_input(node))


def _mish(e: Emitter, node: ir.Node) -> Value:
    x = _first_input(node)
    return e.Mul(x, e.Tanh(_softplus(e, x)))


def _emit_exponential_unit(e: Emitter, x: Value, alpha: float) -> Value:
    """Emits ``x`` above 0 and ``alpha (exp(x) - 1)`` below."""
    below = e.Mul(e.Sub(e.Exp(e.Min(x, 0.0)), 1.0), alpha)
    return e.Where(e.Less(x, 0.0), below, x)


def _elu(e: Emitter, node: ir.Node) -> Value:
    return _emit_exponential_unit(e, _first_input(node), node.attributes.get_float("alpha", 1.0))


def _selu(e: Emitter, node: ir.Node) -> Value:
    alpha = node.attributes.get_float("alpha", 1.67326319217681884765625)
    gamma = node.attributes.get_float("gamma", 1.05070102214813232421875)
    return e.Mul(_emit_exponential_unit(e, _first_input(node), alpha), gamma)


def _leaky_relu(e: Emitter, node: ir.Node) -> Value:
    x = _first_input(node)
    return e.Where(e.Less(x, 0.0), e.Mul(x, node.attributes.get_float("alpha", 0.01)), x)


def _prelu(e: Emitter, node: ir.Node) -> Value:
    x = _first_input(node)
    return e.Where(e.Less(x, 0.0), e.Mul(x, node.inputs[1]), x)


def _thresholded_relu(e: Emitter, node: ir.Node) -> Value:
    x = _first_input(node)
    return e.Where(e.Greater(x, node.attributes.get_float("alpha", 1.0)), x, 0.0)


def _hard_sigmoid(e: Emitter, x: Value, alpha: float, beta: float) -> Value:
    return e.Min(e.Max(e.Add(e.Mul(x, alpha), beta), 0.0), 1.0)


def _hard_sigmoid_formula(e: Emitter, node: ir.Node) -> Value:
    alpha, beta = node.attributes.get_float("alpha", 0.2), node.attributes.get_float("beta", 0.5)
    return _hard_sigmoid(e, _first_input(node), alpha, beta)


def _hard_swish(e: Emitter, node: ir.Node) -> Value:
    x = _first_input(node)
    return e.Mul(x, _hard_sigmoid(e, x, 1 / 6, 0.5))


def _softsign(e: Emitter, node: ir.Node) -> Value:
    x = _first_input(node)
    return e.Div(x, e.Add(e.Abs(x), 1.0))


FORMULAS: dict[str, Formula] = {
    "Acos": _acos,
    "Acosh": _acosh,
    "Asin": _asin,
    "Asinh": _asinh,
    "Atan": _atan_formula,
    "Atanh": _atanh,
    "Cosh": _cosh,
    "Elu": _elu,
    "Erf": _erf_formula,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid_formula,
    "HardSwish": _hard_swish,
    "LeakyRelu": _leaky_relu,
    "Mish": _mish,
    "PRelu": _prelu,
    "Selu": _selu,
    "Sinh": _sinh,
    "Softplus": _softplus_formula,
    "Softsign": _softsign,
    "Tan": _tan,
    "ThresholdedRelu": _thresholded_relu,
}
"""Formulas for DOUBLE, by operator."""
