"""Divides long expressions of sizes without a search for simpler forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnx_aot.torch_compat.lookup import private
from onnx_aot.torch_compat.patching import Patch, Settings

__all__ = ["SIZE_DIVISION"]

_FUNCTIONS = "torch.utils._sympy.functions"


def _divide_terms(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Cancels what all terms of a quotient have in common: ``(6*a + 3*b)//9`` is ``(2*a + b)//3``.

    Torch passes the terms to ``sympy.simplify``, which takes a minute if ``a`` is long.
    """
    floor_div: Any = original.__self__  # type: ignore[attr-defined]
    find_common = private(f"{_FUNCTIONS}:simple_floordiv_gcd")

    def divide(base: Any, divisor: Any) -> Any:
        factors = base.as_coefficients_dict().values()
        is_split = divisor.is_Integer and any(not factor % divisor for factor in factors)
        if find_common is None or base.is_Number or isinstance(base, floor_div) or is_split:
            return original(base, divisor)
        common = find_common(base, divisor)
        if common == 1 or base == divisor:
            return original(base, divisor)
        return floor_div(_cancel(base, common), _cancel(divisor, common))

    return divide


def _cancel(expression: Any, factor: Any) -> Any:
    """Divides each term of an expression by a factor that it has."""
    import sympy

    if expression == factor:  # a sum too, whose terms do not have it
        return sympy.S.One
    terms = expression.args if expression.is_Add else (expression,)
    quotient = sum(term / factor for term in terms)
    if any(power.exp.is_negative for power in quotient.atoms(sympy.Pow)):
        # The factor is there in another form, such as 6*(n + 1) for 6*n + 6.
        return sympy.simplify(expression / factor)
    return quotient


SIZE_DIVISION = Patch(
    f"{_FUNCTIONS}:FloorDiv.eval",
    _divide_terms,
    "Models that compute a size in many steps take a minute to be captured or refused.",
    when=lambda settings: settings.dynamic,
    parameters="base, divisor",
)
"""Row for quotients of sizes."""
