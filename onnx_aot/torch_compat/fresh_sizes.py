"""Replaces long expressions of sizes by new symbols, and keeps their definitions.

Captures take minutes if all sizes are computed from one long expression.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from onnx_aot.torch_compat.lookup import private, private_attribute
from onnx_aot.torch_compat.symbolic_sizes import EXAMPLES, example_size, symbolic_expression

__all__ = ["define_fresh", "fresh_size", "is_making_fresh_size", "shorten_size"]

_SYMPY = "torch.utils._sympy"
_SHAPES = "torch.fx.experimental.symbolic_shapes"

# Classes of torch.utils._sympy.functions. FloorDiv rounds too.
_ROUNDED = frozenset(("CeilToInt", "FloorToInt", "TruncToInt"))
_QUOTIENTS = frozenset(("FloorDiv", "IntTrueDiv"))

_DEFINITIONS: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()
"""Expressions of other symbols that the new ones stand for, by ShapeEnv."""

LONG = 12
"""Operations in an expression from which on torch takes seconds to minutes to compare sizes."""


class _Fresh:
    """Tells whether ``fresh_size`` is making a symbol, whose value must not be looked up."""

    active = False

    @contextlib.contextmanager
    def making(self) -> Iterator[None]:
        self.active = True
        try:
            yield
        finally:
            self.active = False


_FRESH = _Fresh()


def is_making_fresh_size() -> bool:
    """True while ``fresh_size`` makes a symbol."""
    return _FRESH.active


def fresh_size(size: Any, definition: Any = None) -> Any:
    """Replaces a size by a new symbol, the value of a tensor in the captured program.

    The symbol has the range of its definition. Its value in the example is kept for
    ``example_size``, and the definition for ``define_fresh``.

    Args:
        size: A symbolic int.
        definition: A simpler expression of the same value; None for the size's own.
    """
    if not isinstance(size, torch.SymInt):
        return size
    example = example_size(size)
    value: Any = size  # a number for torch's annotations
    definition = symbolic_expression(size) if definition is None else definition
    smallest = _find_smallest(size.node.shape_env, definition)
    with _FRESH.making():
        fresh: Any = torch.scalar_tensor(value, dtype=torch.int64).item()
    if smallest is not None:
        torch._check(fresh >= smallest)  # type: ignore[no-untyped-call]
    if isinstance(fresh, torch.SymInt) and example is not None:
        env, symbol = fresh.node.shape_env, symbolic_expression(fresh)
        EXAMPLES.setdefault(env, {})[symbol] = example
        definitions = _DEFINITIONS.setdefault(env, {})
        definitions[symbol] = definition.xreplace(definitions)
    return fresh


def _find_smallest(env: Any, expression: Any) -> int | None:
    """The lower bound of an expression, by the ranges of its symbols; None if there is none."""
    bound = private(f"{_SYMPY}.value_ranges:bound_sympy")
    ranges = private_attribute(env, f"{_SHAPES}:ShapeEnv.var_to_range", {})
    if bound is None or not expression.free_symbols <= ranges.keys():
        return None
    lower = bound(expression, {symbol: ranges[symbol] for symbol in expression.free_symbols}).lower
    return int(lower) if lower.is_Integer else None


def shorten_size(size: Any) -> Any:
    """Replaces the long part of a size by a new symbol; other sizes are returned as they are.

    The part is as small as it can be, because ``256*k + 340`` tells torch more about the sizes of
    strided layers than one symbol: these have sizes such as ``64*k + 84``.
    """
    expression = symbolic_expression(size)
    if expression.count_ops() <= LONG:
        return size
    rest, terms = _find_terms(expression)
    long = [term for term in terms if not term.is_Symbol]
    if len(long) != 1:
        return fresh_size(size)
    factor = terms.pop(long[0])
    for symbol, times in terms.items():
        rest += times * size.node.shape_env.create_symintnode(symbol, hint=None)
    return rest + factor * fresh_size((size - rest) // factor, long[0])


def _find_terms(expression: Any) -> tuple[Any, dict[Any, int]]:
    """Takes an integer expression apart into a constant and terms with integer factors."""
    constant, terms = 0, dict[Any, int]()
    for part, factor in expression.as_coefficients_dict().items():
        if not factor.is_Integer:
            return 0, {expression: 1}
        if part.is_Integer:
            constant += int(part) * int(factor)
            continue
        inner, inner_terms = _find_quotient(part) or (0, {part: 1})
        constant += int(factor) * inner
        for term, inner_factor in inner_terms.items():
            terms[term] = terms.get(term, 0) + int(factor) * inner_factor
    return constant, terms


def _find_quotient(expression: Any) -> tuple[int, dict[Any, int]] | None:
    """Takes a rounded quotient apart if the divisor divides each term; None otherwise."""
    if type(expression).__name__ in _ROUNDED and not expression.args[0].is_Symbol:
        (expression,) = expression.args
    if type(expression).__name__ not in _QUOTIENTS:
        return None
    dividend, divisor = expression.args
    if not divisor.is_Integer:
        return None
    constant, terms = _find_terms(dividend)
    if math.gcd(constant, *terms.values()) % int(divisor):
        return None
    return constant // int(divisor), {t: f // int(divisor) for t, f in terms.items()}


def define_fresh(env: Any, expression: Any) -> Any | None:
    """Writes an expression with the definitions of the symbols that ``fresh_size`` made.

    None if it has none of these symbols.
    """
    definitions = _DEFINITIONS.get(env)
    if not definitions or definitions.keys().isdisjoint(expression.free_symbols):
        return None
    return expression.xreplace(definitions)
