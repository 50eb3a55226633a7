"""Makes attributes from Python values."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters

from onnx_aot import dtypes

__all__ = ["Attributes"]

_FORMS: dict[ir.AttributeType, Any] = {
    ir.AttributeType.INT: int,
    ir.AttributeType.FLOAT: float,
    ir.AttributeType.STRING: str,
    ir.AttributeType.INTS: lambda value: tuple(int(v) for v in value),
    ir.AttributeType.FLOATS: lambda value: tuple(float(v) for v in value),
    ir.AttributeType.STRINGS: tuple,
}
_KINDS = {
    float: ir.AttributeType.FLOAT,
    int: ir.AttributeType.INT,
    str: ir.AttributeType.STRING,
}


class Attributes:
    """Makes attributes; equal ones share one object, which is cheaper than making a new one."""

    def __init__(self) -> None:
        self._known: dict[Any, ir.Attr] = {}

    def make(self, name: str, value: Any, kind: ir.AttributeType | None = None) -> ir.Attr:
        """Returns an attribute.

        Args:
            name: Name of the attribute.
            value: A number, string, tensor or dtype, a list of these, or an ``ir.Attr``, which is
                returned as it is.
            kind: Type of the attribute; by default that of the Python value.
        """
        if isinstance(value, ir.Attr):
            return value
        if kind is None:
            kind = _kind_of(value)
        form = None if kind is None else _FORMS.get(kind)
        if form is None or kind is None:
            if isinstance(value, torch.Tensor):
                value = tensor_adapters.TorchTensor(value)
            elif isinstance(value, torch.dtype):
                value = int(dtypes.to_onnx(value))
            return ir.convenience.convert_attribute(name, value)
        value = form(value)
        key = (name, kind, value if kind != ir.AttributeType.FLOAT else repr(value))
        attribute = self._known.get(key)
        if attribute is None:
            attribute = self._known[key] = ir.Attr(name, kind, value)
        return attribute


def _kind_of(value: Any) -> ir.AttributeType | None:
    """Returns the type for the most common values, faster than ``onnx_ir``, which tries all."""
    kind = _KINDS.get(type(value))
    if kind is None and type(value) is list and value and set(map(type, value)) == {int}:
        return ir.AttributeType.INTS
    return kind
