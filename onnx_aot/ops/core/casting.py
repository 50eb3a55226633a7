"""Translates changes of element type, and copies, which ONNX does not have."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value


@register(
    aten._to_copy.default,
    aten.to.device,
    aten.to.dtype,
    aten.to.dtype_layout,
)
def aten_to(op: Builder, self: Value, dtype: Any = None) -> Value:
    return op.cast(self, op.result_dtype)


@register(aten.to.other, aten.type_as.default)
def aten_to_other(op: Builder, self: Value, other: Value) -> Value:
    return op.cast(self, op.result_dtype)


@register(
    aten.alias.default,
    aten.clone.default,
    aten.contiguous.default,
    aten.detach.default,
    aten.detach_copy.default,
    aten.lift_fresh_copy.default,
)
def aten_same_values(op: Builder, self: Value) -> Value:
    return self


@register(aten.copy.default)
def aten_copy(op: Builder, self: Value, src: Value) -> Value:
    """Returns the source in the destination's type and shape.

    A buffer that the model assigns takes the source's shape, and the capture records it so.
    """
    source = op.cast(src, op.result_dtype)
    takes_shape = list(map(str, op.result.shape)) == list(map(str, op.recorded[1].shape))
    if takes_shape or source.shape == self.shape:
        return source
    return op.Expand(source, op.Shape(self))
