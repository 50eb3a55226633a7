"""Writes rounded sizes by quotients of integers.

``n + -n % 8`` is ``8*((n + 7)//8)``, and ``math.ceil(n / 8)`` is ``(n + 7)//8``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from onnx_aot.torch_compat.lookup import private, private_attribute
from onnx_aot.torch_compat.patching import Patch, Settings
from onnx_aot.torch_compat.tracing import current_tracer

__all__ = ["ROUNDED_SIZES", "round_sum", "write_rounding"]

_SHAPES = "torch.fx.experimental.symbolic_shapes"
_FUNCTIONS = "torch.utils._sympy.functions"
_REMAINDERS = ("Mod", "PythonMod")
_QUOTIENTS = ("IntTrueDiv", "FloatTrueDiv")
_ROUNDINGS = ("CeilToInt", "FloorToInt", "TruncToInt")

LARGEST = 2**16
"""Largest denominator of a float that is rounded, so that no error of a float reaches an integer.

Sizes below 2**31 have errors below 2**-18, and numbers that are no integers are 2**-16 from one.
"""


def round_sum(expression: Any) -> Any:
    """Writes a sum by quotients if it loses a term by that, and returns it as it is otherwise.

    ``n - n % 8`` becomes ``8*(n//8)``, and ``n + (8 - n % 8) % 8`` becomes ``8*((n + 7)//8)``, of
    which torch knows that 8 divides it.
    """
    if not expression.is_Add or not any(map(_has_remainder, expression.args)):
        return expression
    written = _write_by_quotients(expression)
    return written if _count_terms(written) < len(expression.args) else expression


def _has_remainder(term: Any) -> bool:
    if term.is_Mul:
        term = term.as_coeff_Mul()[1]
    return _is_remainder(term)


def _is_remainder(term: Any) -> bool:
    return type(term).__name__ in _REMAINDERS and bool(term.args[1].is_Integer and term.args[1] > 0)


def _count_terms(expression: Any) -> int:
    return len(expression.args) if expression.is_Add else 1


@functools.lru_cache(maxsize=1024)
def _write_by_quotients(expression: Any) -> Any:
    if _is_remainder(expression):
        base, divisor = _write_by_quotients(expression.args[0]), expression.args[1]
        return (base - divisor * _divide(base, divisor)).expand()
    if expression.is_Add or expression.is_Mul:
        return expression.func(*map(_write_by_quotients, expression.args)).expand()
    return expression


def _divide(base: Any, divisor: Any) -> Any:
    """``base // divisor``, where torch takes out what is divisible; ``-n//8`` is ``-((n + 7)//8)``.

    Sizes are rounded up by both, so both get one form.
    """
    floor_div: Any = private(f"{_FUNCTIONS}:FloorDiv")
    quotient = floor_div(base, divisor)
    negative = {
        part: -floor_div(-part.args[0] + part.args[1] - 1, part.args[1])
        for part in quotient.atoms(floor_div)
        if part.args[1].is_Integer and part.args[0].could_extract_minus_sign()
    }
    return quotient.xreplace(negative)


def write_rounding(expression: Any) -> Any:
    """Writes ``floor``, ``ceil`` and ``trunc`` of floats computed from sizes without floats.

    ``math.floor(n / 3)`` becomes ``n//3``, and ``int(n - 2.0)`` becomes ``n - 2``. Others
    are returned as they are, such as ``math.floor(n * 0.1)``: the product of floats may reach an
    integer that the numbers do not reach.
    """
    name = type(expression).__name__
    if name not in _ROUNDINGS:
        return expression
    value = _find_value(expression.args[0])
    if value is None:
        return expression
    dividend, divisor = value.as_numer_denom()
    if name == "TruncToInt" and divisor != 1 and not _is_sum_of_positives(dividend):
        return expression
    if name == "CeilToInt":
        dividend += divisor - 1
    return dividend.expand() if divisor == 1 else _divide(dividend.expand(), divisor)


def _is_sum_of_positives(term: Any) -> bool:
    """True if a sum has nothing below zero, also if one of its sizes is 0."""
    return all(
        part.is_nonnegative is True and factor >= 0
        for part, factor in term.as_coefficients_dict().items()
    )


def _find_value(number: Any) -> Any:
    """The exact value of a float, as a sum of multiples of integers; None if it may be rounded.

    One quotient may be rounded, such as ``n / 3``: it is an integer where the exact one is.
    """
    import sympy

    total, rounded = sympy.Integer(0), 0
    for term in sympy.Add.make_args(number):
        factor, rest = term.as_coeff_Mul()
        scale, divisor = _as_exact(factor), sympy.Integer(1)
        if type(rest).__name__ in _QUOTIENTS:
            rest, divisor = rest.args[0], _as_exact(rest.args[1])
        if type(rest).__name__ == "ToFloat":
            (rest,) = rest.args
        if scale is None or divisor is None or divisor <= 0 or not _is_integer(rest):
            return None
        if not _is_power_of_two(divisor):
            rounded += 1
            if not _is_power_of_two(abs(scale)):
                return None
        total += scale / divisor * rest
    denominator = total.together().as_numer_denom()[1]
    exact = denominator.is_Integer and denominator <= LARGEST
    return total.together() if exact and rounded <= 1 else None


def _is_integer(term: Any) -> bool:
    """True if a term is an integer, also inside; torch says so of ``Mod(n, 2.5)`` too."""
    if not term.is_integer or term.is_Float:
        return False
    return type(term).__name__ in _ROUNDINGS or all(map(_is_integer, term.args))


def _as_exact(number: Any) -> Any:
    """A number as a fraction whose denominator is a power of two; None for others."""
    import sympy

    if not number.is_Integer and not number.is_Float:
        return None
    fraction = sympy.Rational(number)
    return fraction if max(abs(fraction.p), fraction.q) <= LARGEST else None


def _is_power_of_two(number: Any) -> bool:
    numerator, denominator = int(number.p), int(number.q)
    return numerator & (numerator - 1) == 0 and denominator & (denominator - 1) == 0


def _write_result(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    if private(f"{_FUNCTIONS}:FloorDiv") is None:
        return original

    @functools.wraps(original)
    def convert(self: Any) -> Any:
        result = original(self)
        expression = getattr(result, "_expr", None)
        if expression is not None:
            result._expr = write_rounding(expression)
        return result

    return convert


def _round_result(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    if private(f"{_FUNCTIONS}:FloorDiv") is None:
        return original

    @functools.wraps(original)
    def combine(self: Any, other: Any) -> Any:
        result = original(self, other)
        expression = getattr(result, "_expr", None)
        if expression is None or not expression.is_Add:
            return result
        divisor = _find_padded_divisor(result, expression)
        if divisor is not None:
            number: Any = torch.SymInt(result)  # type: ignore[no-untyped-call]
            return (number % divisor).node  # recorded, as all that the model computes
        rounded = round_sum(expression)
        if rounded is not expression:
            result._expr = rounded
        return result

    return combine


def _find_padded_divisor(node: Any, expression: Any) -> int | None:
    """Returns 8 for ``8 - n % 8``, if the model has asked before whether ``n % 8`` is 0: it is not.

    Models pad by as much if that is necessary. ``(8 - n % 8) % 8`` is the same there, and it is
    right too where nothing is to be padded, so the capture is for both sides of the question.
    """
    if len(expression.args) != 2 or current_tracer() is None:
        return None
    number, term = expression.args
    remainder = -term
    if not _is_remainder(remainder) or number != remainder.args[1]:
        return None
    guards = private_attribute(node.shape_env, f"{_SHAPES}:ShapeEnv.guards", ())
    if any(_says_not_zero(guard.expr, remainder) for guard in guards):
        return int(number)
    return None


def _says_not_zero(condition: Any, remainder: Any) -> bool:
    sides = {
        "Unequality": ((remainder, 0), (0, remainder)),
        "StrictGreaterThan": ((remainder, 0),),
        "StrictLessThan": ((0, remainder),),
    }
    return condition.args in sides.get(type(condition).__name__, ())


ROUNDED_SIZES = tuple(
    Patch(
        f"torch.fx.experimental.sym_node:SymNode.{name}",
        _round_result,
        "Models that pad to a multiple have long sizes, and some take a minute to be captured.",
        when=lambda settings: settings.dynamic,
        parameters="self, other",
    )
    for name in ("_add", "_sub")
) + tuple(
    Patch(
        f"torch.fx.experimental.sym_node:SymNode.{name}",
        _write_result,
        "Torch cannot compare sizes rounded by floats with others, so that slices to "
        "math.floor(n / 3) * 3 have sizes with min(...).",
        when=lambda settings: settings.dynamic,
        parameters="self",
    )
    for name in ("_ceil", "_floor", "_trunc")
)
"""Rows for sums and differences of sizes, and for floats that are rounded."""
