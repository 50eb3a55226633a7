"""Values without a graph, used as inputs of what a builder emits."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["FLOAT", "value"]

FLOAT = ir.DataType.FLOAT


def value(*shape: int | str, dtype: ir.DataType = FLOAT) -> ir.Value:
    return ir.Value(type=ir.TensorType(dtype), shape=ir.Shape(shape))
