"""Compares sizes with rounded quotients, remainders and powers: ``8 * ((n + 7) // 8) >= n``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from onnx_aot.torch_compat.patching import Patch, Settings

__all__ = ["SIZE_ORDER", "decide_order"]

_SHAPES = "torch.fx.experimental.symbolic_shapes"

# Functions of torch.utils._sympy.functions.
_DIVISIONS = ("FloorDiv", "Mod", "PythonMod")
_ROUNDINGS = ("FloorToInt", "CeilToInt")


def decide_order(relation: Any, limits: Mapping[Any, Any]) -> bool | None:
    """Decides a relation of sizes by linear bounds of their rounded quotients.

    All are written with ``floor``: ``n % c`` is ``n - c * floor(n / c)``, so the sizes that padding
    makes, such as ``n + -n % c``, lose their remainders. For integers, ``floor(n / c)`` is at least
    ``(n - c + 1) / c``; with that, the difference of both sides has linear bounds. A difference of
    integers that is above -1 is not negative. Powers of two that a rounded logarithm gives are
    replaced by their bounds first.

    Args:
        relation: A relation of sympy, or several joined by ``And``, with symbols for integers.
        limits: The smallest value of each symbol.

    Returns:
        The answer if it is the same for all values of the symbols; None otherwise.
    """
    import sympy

    if isinstance(relation, sympy.And):
        answers = [decide_order(part, limits) for part in relation.args]
        if False in answers:
            return False
        return None if None in answers else True
    if relation in (sympy.true, sympy.false):
        return bool(relation)
    if not isinstance(relation, (sympy.Le, sympy.Lt, sympy.Ge, sympy.Gt, sympy.Eq, sympy.Ne)):
        return None
    is_reversed = isinstance(relation, (sympy.Le, sympy.Lt))
    larger, smaller = (relation.rhs, relation.lhs)[:: 1 if is_reversed else -1]
    difference = _with_floors(larger) - _with_floors(smaller)
    least, most = (_find_least(_bound_powers(side, limits)) for side in (difference, -difference))
    lowest = None if least is None else _lowest(least, limits)
    highest = None if most is None else _lowest(most, limits)
    is_above, is_below = _is_positive(lowest), _is_positive(highest)
    if isinstance(relation, (sympy.Eq, sympy.Ne)):
        return isinstance(relation, sympy.Ne) if is_above or is_below else None
    if isinstance(relation, (sympy.Lt, sympy.Gt)):
        return True if is_above else False if _is_not_negative(highest, difference) else None
    return True if _is_not_negative(lowest, difference) else False if is_below else None


def _lowest(bound: Any, limits: Mapping[Any, Any]) -> Any:
    """A bound in terms of what its symbols are larger than their limits."""
    import sympy

    rest = {
        symbol: sympy.Dummy(integer=True, nonnegative=True) + limits[symbol]
        for symbol in bound.free_symbols & limits.keys()
    }
    return bound.xreplace(rest).expand()


def _is_positive(term: Any) -> bool:
    return term is not None and term.is_positive is True


def _is_not_negative(bound: Any, term: Any) -> bool:
    """True if the lower bound of a term is at least 0, or above -1 for an integer."""
    if bound is None:
        return False
    return bound.is_nonnegative is True or (
        term.is_integer is True and (bound + 1).is_positive is True
    )


def _with_floors(term: Any) -> Any:
    """The term with all quotients by numbers written as ``floor``."""
    import sympy

    name = type(term).__name__
    if name in _ROUNDINGS:
        quotient, sign = term.args[0], 1 if name == "FloorToInt" else -1
        if type(quotient).__name__ != "IntTrueDiv" or not _is_divisor(quotient.args[1]):
            return term
        return sign * sympy.floor(
            (sign * _with_floors(quotient.args[0]) / quotient.args[1]).expand()
        )
    if name in _DIVISIONS:
        base, divisor = _with_floors(term.args[0]), term.args[1]
        if not _is_divisor(divisor):
            return term
        rounded = sympy.floor((base / divisor).expand())
        return rounded if name == "FloorDiv" else (base - divisor * rounded).expand()
    if term.is_Add or term.is_Mul:
        return term.func(*map(_with_floors, term.args)).expand()
    return term


def _is_divisor(term: Any) -> bool:
    return bool(term.is_Integer and term > 0)


def _bound_powers(term: Any, limits: Mapping[Any, Any]) -> Any:
    """Lower bound of a sum by bounds of the powers of two in it; others are left as they are."""
    total = term.expand()
    for part, factor in total.as_coefficients_dict().items():
        bound = _bound_power(part, factor < 0, limits)
        if bound is not None:
            total = (total + factor * (_with_floors(bound) - part)).expand()
    return total


def _bound_power(part: Any, is_upper: bool, limits: Mapping[Any, Any]) -> Any:
    """A bound of ``2**ceil(log2(m) + c)``, which is from ``m`` on and below ``2*m`` for ``c = 0``.

    The one with ``floor`` is above ``m / 2`` and at most ``m``. The number ``c`` is small, and
    there to round as float32 does. None for other terms.
    """
    import sympy

    if type(part).__name__ != "PowByNatural" or part.args[0] != 2:
        return None
    rounding = type(part.args[1]).__name__
    if rounding not in _POWERS:
        return None
    added, logarithm = part.args[1].args[0].as_coeff_Add()
    added = sympy.Rational(added)
    if type(logarithm).__name__ != "OpaqueUnaryFn_log2" or not _POWERS[rounding] * added >= 0:
        return None
    number = _without_maximum(logarithm.args[0].args[0], is_upper, limits)
    if rounding == "CeilToInt":
        return 2 * number - 1 if is_upper else number * (1 + added)
    return number * (1 + added) if is_upper else (number + 1) / 2


_POWERS = {"CeilToInt": -1, "FloorToInt": 1, "TruncToInt": 1}
"""Roundings in exponents, and the sign of what is added to the logarithm that they round."""


def _without_maximum(number: Any, is_upper: bool, limits: Mapping[Any, Any]) -> Any:
    """``m`` for ``max(m, 1)`` if that is the same, or also a bound."""
    if type(number).__name__ != "Max" or len(number.args) != 2 or 1 not in number.args:
        return number
    (other,) = (part for part in number.args if part != 1)
    if not is_upper:
        return other
    least = _find_least(_with_floors(other - 1))
    is_same = least is not None and _lowest(least, limits).is_nonnegative is True
    return other if is_same else number


def _find_least(term: Any) -> Any:
    """Lower bound of a sum without rounding; None where none is found.

    Floors around others are replaced first, because what is in them may cancel.
    """
    import sympy

    total = term.expand()
    while True:
        factors = total.as_coefficients_dict()
        floors = [part for part in factors if isinstance(part, sympy.floor)]
        if not floors:
            break
        outer = max(floors, key=_measure_depth)
        bound = _bound_floor(outer, is_upper=factors[outer] < 0)
        if bound is None:
            return None
        total = (total + factors[outer] * (bound - outer)).expand()
    return total if all(map(_is_product_of_symbols, factors)) else None


def _measure_depth(floor: Any) -> int:
    import sympy

    return 1 + max(map(_measure_depth, floor.args[0].atoms(sympy.floor)), default=0)


def _is_product_of_symbols(part: Any) -> bool:
    return bool(part.is_Number or part.is_Symbol) or (
        part.is_Mul and all(factor.is_Symbol for factor in part.args)
    )


def _bound_floor(floor: Any, is_upper: bool) -> Any:
    """A bound by the common denominator of a sum of multiples of integers."""
    import sympy

    (quotient,) = floor.args
    factors = quotient.as_coefficients_dict()
    if not all(part.is_integer and factor.is_Rational for part, factor in factors.items()):
        return None
    denominator = sympy.ilcm(1, *(factor.q for factor in factors.values()))
    return quotient if is_upper else quotient - 1 + sympy.Rational(1, denominator)


def _has_quotient(relation: Any) -> bool:
    import sympy

    names = (*_DIVISIONS, *_ROUNDINGS, "TruncToInt")
    return any(type(part).__name__ in names for part in sympy.preorder_traversal(relation))


def _decide_first(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Asks ``decide_order`` about sizes with quotients before torch's search."""
    import sympy

    @functools.lru_cache(maxsize=4096)
    def decide(relation: Any, limits: tuple[Any, ...]) -> bool | None:
        return decide_order(relation, dict(limits)) if _has_quotient(relation) else None

    @functools.wraps(original)
    def evaluate(expr: Any, symbol_info: Any, unbacked_only: bool, *args: Any) -> Any:
        if not unbacked_only and isinstance(expr, sympy.logic.boolalg.Boolean):
            limits = tuple(
                (info.k, info.vr.lower)
                for info in symbol_info
                if info.vr is not None and info.vr.is_int and info.vr.lower.is_finite
            )
            answer = decide(expr, limits)
            if answer is not None:
                return sympy.true if answer else sympy.false
            if isinstance(expr, sympy.And) and _has_quotient(expr):  # torch may know some parts
                parts = [evaluate(part, symbol_info, unbacked_only, *args) for part in expr.args]
                if sympy.false in parts or all(part == sympy.true for part in parts):
                    return sympy.false if sympy.false in parts else sympy.true
        return original(expr, symbol_info, unbacked_only, *args)

    return evaluate


SIZE_ORDER = Patch(
    f"{_SHAPES}:_maybe_evaluate_static_worker",
    _decide_first,
    "Models that pad to a multiple and crop, block after block, take minutes to be captured, "
    "and sizes of their results have a min(...) for each block.",
    when=lambda settings: settings.dynamic,
    parameters="expr, symbol_info, unbacked_only, size_oblivious",
)
"""Row for comparisons of sizes with quotients."""
