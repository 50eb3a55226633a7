"""Writes expressions over sizes as readable text: ``2*seq + 1``, ``(n + 1)//2``, ``max(1, n)``.

The text is Python over the names of dimensions; ``/`` is true division, and ``ceil``, ``floor``
and ``trunc`` are those of ``math``. Two expressions that differ in value have different texts.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable
from typing import Any

__all__ = ["Texts", "is_identifier"]

# Precedence in Python of the text of an expression, loosest binding first.
CHOICE, OR, AND, NOT, COMPARISON, BITS, SHIFT, SUM, PRODUCT, UNARY, POWER, ATOM = range(12)

# Python operators for the classes of the capture's expressions and of sympy's.
OPERATORS = {
    "FloorDiv": ("//", PRODUCT),
    "CleanDiv": ("//", PRODUCT),
    "IntTrueDiv": ("/", PRODUCT),
    "FloatTrueDiv": ("/", PRODUCT),
    "Mod": (" % ", PRODUCT),
    "PythonMod": (" % ", PRODUCT),
    "LShift": (" << ", SHIFT),
    "RShift": (" >> ", SHIFT),
    "PowByNatural": ("**", POWER),
    "FloatPow": ("**", POWER),
    "Pow": ("**", POWER),
    "BitwiseFn_bitwise_and": (" & ", BITS),
    "BitwiseFn_bitwise_or": (" | ", BITS),
    "BitwiseFn_bitwise_xor": (" ^ ", BITS),
    "Equality": (" == ", COMPARISON),
    "Unequality": (" != ", COMPARISON),
    "StrictLessThan": (" < ", COMPARISON),
    "LessThan": (" <= ", COMPARISON),
    "StrictGreaterThan": (" > ", COMPARISON),
    "GreaterThan": (" >= ", COMPARISON),
}
FUNCTIONS = {
    "Abs": "abs",
    "CeilToInt": "ceil",
    "ceiling": "ceil",
    "FloorToInt": "floor",
    "floor": "floor",
    "TruncToInt": "trunc",
    "TruncToFloat": "trunc",
    "RoundToInt": "round",
    "RoundDecimal": "round",
}
SYMMETRIC = {"Max": "max", "Min": "min"}
UNCHANGED = frozenset({"Identity", "ToFloat"})

FUNCTION_NAMES = frozenset({*FUNCTIONS.values(), *SYMMETRIC.values(), "log2", "sqrt"})
"""Names of functions in expressions, which dimensions cannot have there."""


def is_identifier(name: str) -> bool:
    """True if a name can be used in an expression."""
    return name.isidentifier() and not keyword.iskeyword(name) and name not in FUNCTION_NAMES


class Texts:
    """Writes sympy expressions as text; common subexpressions are written once."""

    def __init__(self, name_of: Callable[[str], str]) -> None:
        """``name_of`` returns the name of a symbol, an identifier."""
        self._name_of = name_of
        self._known: dict[Any, tuple[str, int]] = {}

    def text(self, expression: Any) -> str:
        """Writes a captured expression: arithmetic, comparisons, torch's functions of sizes."""
        return self._write_cached(expression)[0]

    def _write_cached(self, expression: Any) -> tuple[str, int]:
        """The text and its precedence."""
        known = self._known.get(expression)
        if known is None:
            known = self._known[expression] = self._write(expression)
        return known

    def _parenthesize(self, expression: Any, level: int) -> str:
        """The text, in parentheses unless it binds more tightly than the level."""
        text, binds = self._write_cached(expression)
        return text if binds > level else f"({text})"

    def _write(self, expression: Any) -> tuple[str, int]:
        if expression.is_Symbol:
            return self._name_of(str(expression)), ATOM
        if getattr(expression, "is_number", False) and not expression.args:
            return _number(expression)
        kind = type(expression).__name__
        if expression.is_Add:
            return self._sum(expression), SUM
        if expression.is_Mul:
            return self._write_product(expression)
        arguments = expression.args
        if kind in UNCHANGED:
            return self._write_cached(arguments[0])
        if kind in SYMMETRIC:
            texts = sorted((self.text(a) for a in arguments), key=lambda t: (len(t), t))
            return f"{SYMMETRIC[kind]}({', '.join(texts)})", ATOM
        if kind in OPERATORS and len(arguments) == 2:
            sign, level = OPERATORS[kind]
            above = BITS if level <= SHIFT else PRODUCT
            left, right = (self._parenthesize(a, above) for a in arguments)
            return f"{left}{sign}{right}", level
        return self._write_other(kind, arguments)

    def _write_other(self, kind: str, arguments: Any) -> tuple[str, int]:
        if kind in ("And", "Or"):
            level = AND if kind == "And" else OR
            parts = sorted(self._parenthesize(a, level) for a in arguments)
            return f" {kind.lower()} ".join(parts), level
        if kind == "Not":
            return f"not {self._parenthesize(arguments[0], NOT)}", NOT
        if kind in ("BooleanTrue", "BooleanFalse"):
            return kind.removeprefix("Boolean"), ATOM
        if kind == "Where":
            condition, then, otherwise = (self._parenthesize(a, CHOICE) for a in arguments)
            return f"{then} if {condition} else {otherwise}", CHOICE
        if kind == "ModularIndexing":
            base, divisor, modulus = (self._parenthesize(a, PRODUCT) for a in arguments)
            return f"({base}//{divisor}) % {modulus}", PRODUCT
        name = FUNCTIONS.get(kind, kind.removeprefix("OpaqueUnaryFn_"))
        return f"{name}({', '.join(map(self.text, arguments))})", ATOM

    def _sum(self, expression: Any) -> str:
        """Positive terms first, those of higher degree before others, the number at the end."""
        terms = []
        for term in expression.args:
            coefficient, rest = term.as_coeff_Mul()
            negative = bool(coefficient.is_negative)
            text = self._parenthesize(-term if negative else term, SUM)
            degree = len(rest.args) if rest.is_Mul else 1
            terms.append((negative, term.is_number, -degree, text))
        terms.sort()
        first, *others = terms
        parts = [f"-{first[-1]}" if first[0] else first[-1]]
        parts += [f" - {text}" if negative else f" + {text}" for negative, *_, text in others]
        return "".join(parts)

    def _write_product(self, expression: Any) -> tuple[str, int]:
        coefficient, rest = expression.as_coeff_Mul()
        factors = sorted(
            self._parenthesize(f, PRODUCT) for f in (rest.args if rest.is_Mul else (rest,))
        )
        product = "*".join(factors)
        if coefficient == 1:
            return product, PRODUCT
        if coefficient == -1:
            return f"-{product}", PRODUCT
        if coefficient.is_Rational and not coefficient.is_Integer:
            above = product if abs(coefficient.p) == 1 else f"{abs(coefficient.p)}*{product}"
            sign = "-" if coefficient.is_negative else ""
            return f"{sign}{above}/{coefficient.q}", PRODUCT
        return f"{_number(coefficient)[0]}*{product}", PRODUCT


def _number(number: Any) -> tuple[str, int]:
    if number.is_Rational and not number.is_Integer:
        return f"{number.p}/{number.q}", PRODUCT
    text = str(int(number)) if number.is_Integer else repr(float(number))
    return text, UNARY if text.startswith("-") else ATOM
