"""Symbolic sizes of the capture as named ONNX dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.torch_compat import symbolic_expression

__all__ = ["Dimensions", "scalar_dtype"]


class Dimensions:
    """Turns recorded sizes into ints or ``ir.SymbolicDim``, with the names the user gave.

    ``s77`` becomes ``batch`` and ``2*s27 + 1`` becomes ``2*seq + 1`` everywhere.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        """``names`` maps the capture's symbols to the user's names."""
        self._names = dict(names)
        self._taken = set(names.values())
        self._known: dict[Any, ir.SymbolicDim] = {}

    def dimension(self, size: int | torch.SymInt) -> int | ir.SymbolicDim:
        """One recorded size."""
        if isinstance(size, int):
            return size
        expression = symbolic_expression(size)
        known = self._known.get(expression)
        if known is not None:
            return known
        if getattr(expression, "is_number", False):
            return int(expression)
        renaming = {}
        for symbol in getattr(expression, "free_symbols", ()):
            name = str(symbol)
            if name not in self._names and name in self._taken:
                self._names[name] = self._unique(name)  # the user calls another dimension so
            if name in self._names:
                renaming[symbol] = self._names[name]
        known = ir.SymbolicDim(_render(expression, renaming))
        self._known[expression] = known
        return known

    def _unique(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def name(self, size: Any) -> str | None:
        """The name of a recorded symbolic size, or None when it is a number."""
        if not isinstance(size, torch.SymInt):
            return None
        dimension = self.dimension(size)
        return dimension.value if isinstance(dimension, ir.SymbolicDim) else None

    def shape(self, sizes: Sequence[int | torch.SymInt]) -> ir.Shape:
        """A recorded shape."""
        return ir.Shape([s if type(s) is int else self.dimension(s) for s in sizes])

    def describe(self, value: ir.Value, recorded: Any) -> None:
        """Gives a value the type and shape that the capture recorded for it."""
        if isinstance(recorded, torch.Tensor):
            value.type = ir.TensorType(dtypes.to_onnx(recorded.dtype))
            value.shape = self.shape(recorded.shape)
        else:
            dtype = scalar_dtype(recorded)
            if dtype is not None:
                value.type = ir.TensorType(dtype)
                value.shape = ir.Shape([])


def scalar_dtype(recorded: Any) -> ir.DataType | None:
    """The ONNX type that a recorded Python or symbolic number is held in.

    Symbolic floats are DOUBLE, which holds every size that occurs exactly.
    """
    if isinstance(recorded, (bool, torch.SymBool)):
        return ir.DataType.BOOL
    if isinstance(recorded, (int, torch.SymInt)):
        return ir.DataType.INT64
    if isinstance(recorded, (float, torch.SymFloat)):
        return ir.DataType.DOUBLE
    return None


def _render(expression: Any, renaming: Mapping[Any, str]) -> str:
    """The expression as text, with the given symbols renamed; a lone symbol costs no sympy."""
    if not renaming:
        return str(expression)
    if expression in renaming:
        return renaming[expression]
    import sympy  # type: ignore[import-untyped]

    renamed = {symbol: sympy.Symbol(name) for symbol, name in renaming.items()}
    return str(expression.xreplace(renamed))
