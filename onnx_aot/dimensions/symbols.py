"""Maps symbolic sizes of the capture to named ONNX dimensions."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.dimensions.expressions import Texts, is_identifier
from onnx_aot.torch_compat import CONTENT_SIZE, expression_key, size_function, symbolic_expression

__all__ = ["Dimensions", "range_of"]

Dimension = int | ir.SymbolicDim

UNLIMITED = 2**62
"""The capture records this or a larger number as the maximum of an unlimited size."""


class Dimensions:
    """Turns recorded sizes into ints or ``ir.SymbolicDim``, with the names the user gave.

    ``s77`` becomes ``batch`` and ``2*s27 + 1`` becomes ``2*seq + 1`` everywhere. A dimension whose
    name is not an identifier, such as ``batch size``, keeps it where it stands alone, and is
    ``batch_size`` in expressions. Unbacked symbols keep the capture's names, such as ``u0``.
    """

    def __init__(self, names: Mapping[str, str], ranges: Mapping[Any, Any] | None = None) -> None:
        """``names`` maps the capture's symbols to the user's names, ``ranges`` to their ranges."""
        self._names = dict(names)
        self._ranges = dict(ranges or {})
        self._taken = set(names.values())
        self._in_expressions: dict[str, str] = {}
        self._known: dict[Any, Dimension] = {}
        self._recorded: dict[Any, Dimension] = {}
        self._expressions: dict[str, Any] = {}
        self._smallest: dict[Any, float] = {}
        self._standing_for: dict[Any, Any] = {}
        self._first_of_name: dict[str, Any] = {}
        self._texts = Texts(self.identifier_of)

    def dimension(self, size: int | torch.SymInt) -> Dimension:
        """Returns the dimension for a recorded size."""
        if isinstance(size, int):
            return size
        if self._standing_for:
            return self.of_expression(symbolic_expression(size))
        key = expression_key(size)
        known = self._recorded.get(key)
        if known is None:
            known = self._recorded[key] = self.of_expression(symbolic_expression(size))
        return known

    def of_expression(self, expression: Any) -> Dimension:
        """Returns the dimension for a sympy expression over the capture's symbols."""
        if self._standing_for and hasattr(expression, "xreplace"):
            expression = expression.xreplace(self._standing_for)
        known = self._known.get(expression)
        if known is None:
            known = self._known[expression] = self._make(expression)
        return known

    def _make(self, expression: Any) -> Dimension:
        if isinstance(expression, (int, str)):
            return expression if isinstance(expression, int) else ir.SymbolicDim(expression)
        if not expression.is_Symbol:
            expression = self._with_equal_symbols(expression)
            expression = expression.expand()  # 2*(n + 1) and 2*n + 2 are one size
            expression = _without_minimum(expression)
        if expression.is_number:
            return int(expression)
        text = self.text(expression)
        self._expressions[text] = expression
        return ir.SymbolicDim(text)

    def _with_equal_symbols(self, expression: Any) -> Any:
        """Uses one symbol for all that have the same name, so that ``(batch*seq)//batch`` is short.

        The capture has one per input; the user says that they are equal.
        """
        equal = {}
        for symbol in sorted(expression.free_symbols, key=str):
            name = self._names.get(str(symbol))
            first = symbol if name is None else self._first_of_name.setdefault(name, symbol)
            if first is not symbol:
                equal[symbol] = first
        return expression.xreplace(equal) if equal else expression

    def text(self, expression: Any) -> str:
        """Writes an expression or condition in the user's names."""
        if self._standing_for and hasattr(expression, "xreplace"):
            expression = expression.xreplace(self._standing_for)
        if expression.is_Symbol:
            return self._name_of(str(expression))
        return self._texts.text(expression)

    def _name_of(self, symbol: str) -> str:
        name = self._names.get(symbol)
        if name is None:  # a symbol of the capture; the user may give its name to another dimension
            name = self._names[symbol] = self.unique(
                symbol if CONTENT_SIZE.fullmatch(symbol) else f"size_{len(self._names)}"
            )
        return name

    def identifier_of(self, symbol: str) -> str:
        """Name of a symbol inside an expression, always an identifier."""
        name = self._name_of(symbol)
        if is_identifier(name):
            return name
        written = self._in_expressions.get(symbol)
        if written is None:
            written = re.sub(r"\W|^(?=\d)", "_", name)
            written = self.unique(written if is_identifier(written) else f"{written}_")
            self._in_expressions[symbol] = written
        return written

    def unique(self, name: str) -> str:
        """Returns the name, with underscores appended if another dimension has it."""
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    # --- bodies of higher-order operators --------------------------------------------------------

    @contextlib.contextmanager
    def bind_symbols(self, symbols: Mapping[Any, Dimension | None]) -> Iterator[None]:
        """Lets symbols of a body stand for other sizes while it is translated.

        Args:
            symbols: The size of each symbol in this call of the body; None for one that is known
                only when the model runs, which gets a name of its own.
        """
        before = self._standing_for
        self._standing_for = {
            **before,
            **{s: self._expression_of(s, d) for s, d in symbols.items()},
        }
        try:
            yield
        finally:
            self._standing_for = before

    def _expression_of(self, symbol: Any, dimension: Dimension | None) -> Any:
        if dimension is None:
            fresh = type(symbol)(f"{symbol}_{len(self._names)}", **symbol.assumptions0)
            self._names[str(fresh)] = self.unique(str(symbol))
            self._ranges[fresh] = self._ranges.get(symbol)
            return fresh
        if isinstance(dimension, int):
            return symbol * 0 + dimension
        return self._expressions.get(str(dimension.value), symbol)

    # --- arithmetic, for sizes inside of a translation -------------------------------------------

    def combine(self, function: str, *operands: Dimension) -> Dimension | None:
        """Computes a size from others; None if one of them is not a recorded size.

        Args:
            function: ``add``, ``sub``, ``mul``, ``max``, ``min``, ``floordiv`` or ``mod``.
            operands: Two sizes.
        """
        left, right = (
            operand if isinstance(operand, int) else self._expressions.get(str(operand.value))
            for operand in operands
        )
        compute = size_function(function)
        if left is None or right is None or compute is None:
            return None
        return self.of_expression(compute(left, right))

    def at_least(self, dimension: Dimension, number: int) -> bool:
        """True if the ranges of the sizes imply that one is never smaller than a number."""
        if isinstance(dimension, int):
            return dimension >= number
        expression = self._expressions.get(str(dimension.value))
        return expression is not None and self._lower_bound(expression) >= number

    def _lower_bound(self, expression: Any) -> float:
        """Lower bound of an expression, minus infinity if none is known."""
        least = self._smallest.get(expression)
        if least is None:
            least = self._smallest[expression] = self._find_least(expression)
        return least

    def _find_least(self, expression: Any) -> float:
        if expression.is_Integer:
            return int(expression)
        if expression.is_Symbol:
            return _range_end(self._ranges.get(expression), "lower", -math.inf)
        arguments = expression.args
        if expression.is_Add:
            return sum(map(self._lower_bound, arguments))
        coefficient, rest = expression.as_coeff_Mul()
        if coefficient.is_negative:  # of a symbol with a largest value
            most = _range_end(self._ranges.get(rest), "upper", math.inf)
            return math.floor(coefficient * most) if most < math.inf else -math.inf
        if not all(argument.is_integer for argument in arguments):
            return -math.inf
        if expression.is_Mul:
            factors = [self._lower_bound(argument) for argument in arguments]
            return math.prod(factors) if min(factors) >= 0 else -math.inf
        kind = type(expression).__name__
        if kind == "Max":
            return max(map(self._lower_bound, arguments))
        if kind == "Min":
            return min(map(self._lower_bound, arguments))
        if kind in ("FloorDiv", "CleanDiv") and arguments[1].is_Integer and arguments[1] > 0:
            least = self._lower_bound(arguments[0])
            return least // int(arguments[1]) if math.isfinite(least) else least
        return -math.inf

    # --- values ----------------------------------------------------------------------------------

    def name(self, size: Any) -> str | None:
        """Returns the name of a recorded symbolic size, or None if it is a number."""
        if not isinstance(size, torch.SymInt):
            return None
        dimension = self.dimension(size)
        return dimension.value if isinstance(dimension, ir.SymbolicDim) else None

    def shape(self, sizes: Sequence[int | torch.SymInt]) -> ir.Shape:
        """Returns the ONNX shape for recorded sizes."""
        return ir.Shape([s if type(s) is int else self.dimension(s) for s in sizes])

    def describe(self, value: ir.Value, recorded: Any) -> None:
        """Sets the type and shape that the capture recorded for a value."""
        if isinstance(recorded, torch.Tensor):
            dtype = dtypes.to_onnx(recorded.dtype)
            if value.dtype != dtype:
                value.type = ir.TensorType(dtype)
            dims = tuple(s if type(s) is int else self.dimension(s) for s in recorded.shape)
            if value.shape is None or value.shape.dims != dims:
                value.shape = ir.Shape(dims)
        else:
            of_number = dtypes.of_number(recorded)
            if of_number is not None:
                value.type = ir.TensorType(of_number)
                value.shape = ir.Shape([])


def _without_minimum(expression: Any) -> Any:
    """Rewrites ``max(0, n - min(1, n))``, the size of ``x[1:]``, as ``max(0, n - 1)``."""
    if type(expression).__name__ != "Max":
        return expression
    largest = type(expression)
    for term in expression.args:
        for smaller in getattr(term, "args", ()):
            if type(-smaller).__name__ == "Min" and len((-smaller).args) == 2:
                number, whole = sorted((-smaller).args, key=lambda a: not a.is_number)
                if number.is_number and term - smaller == whole:
                    rest = [arg for arg in expression.args if arg is not term]
                    return largest(*rest, whole - number)
    return expression


def range_of(interval: Any) -> dict[str, int]:
    """``min`` and ``max`` of a range that the capture recorded, without unlimited ends."""
    least = _range_end(interval, "lower", -math.inf)
    most = _range_end(interval, "upper", math.inf)
    found = {} if least == -math.inf else {"min": int(least)}
    return found if most >= UNLIMITED else found | {"max": int(most)}


def _range_end(interval: Any, side: str, infinite: float) -> float:
    """The lower or upper end of a range that the capture recorded."""
    end: Any = getattr(interval, side, None)
    return int(end) if getattr(end, "is_Integer", isinstance(end, int)) else infinite
