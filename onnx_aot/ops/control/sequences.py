"""Lists of tensors of dynamic length, as ONNX sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder, Size
from onnx_aot.ops.registry import register
from onnx_aot.torch_ops.scripted_ops import (
    sequence_append,
    sequence_at,
    sequence_cat,
    sequence_construct,
    sequence_erase,
    sequence_insert,
    sequence_length,
    sequence_split,
    sequence_stack,
)

__all__: list[str] = []

Value = ir.Value


def _emit(
    op: Builder, name: str, inputs: Sequence[Value], kind: ir.TypeProtocol, **attributes: Any
) -> Value:
    """Emits one node directly, because the builder's type rules are for tensors."""
    value = ir.Value(type=kind)
    given = ir.convenience.convert_attributes(attributes)
    op.add_node(ir.Node("", name, inputs, given, outputs=[value]))
    return value


def _kind_of(sequence: Value) -> ir.TypeProtocol:
    assert sequence.type is not None
    return sequence.type


def _element_type(sequence: Value) -> ir.TypeProtocol:
    return ir.TensorType(ir.DataType(_kind_of(sequence).dtype))


def _cast_index(op: Builder, index: Size) -> Value:
    return op.cast(index, ir.DataType.INT64)


@register(sequence_construct)
def construct(op: Builder, items: Sequence[Value], element: torch.dtype) -> Value:
    dtype = dtypes.to_onnx(element)
    kind = ir.SequenceType(ir.TensorType(dtype))
    if not items:
        return _emit(op, "SequenceEmpty", [], kind, dtype=int(dtype))
    return _emit(op, "SequenceConstruct", items, kind)


@register(sequence_append)
def append(op: Builder, sequence: Value, item: Value) -> Value:
    return _emit(op, "SequenceInsert", [sequence, item], _kind_of(sequence))


@register(sequence_insert)
def insert(op: Builder, sequence: Value, index: Size, item: Value) -> Value:
    inputs = [sequence, item, _cast_index(op, index)]
    return _emit(op, "SequenceInsert", inputs, _kind_of(sequence))


@register(sequence_erase)
def erase(op: Builder, sequence: Value, index: Size) -> Value:
    return _emit(op, "SequenceErase", [sequence, _cast_index(op, index)], _kind_of(sequence))


@register(sequence_at)
def at(op: Builder, sequence: Value, index: Size) -> Value:
    return _emit(op, "SequenceAt", [sequence, _cast_index(op, index)], _element_type(sequence))


@register(sequence_length)
def length(op: Builder, sequence: Value) -> Value:
    value = _emit(op, "SequenceLength", [sequence], ir.TensorType(ir.DataType.INT64))
    value.shape = ir.Shape([])
    return value


@register(sequence_cat)
def cat(op: Builder, sequence: Value, dim: int) -> Value:
    return _emit(op, "ConcatFromSequence", [sequence], _element_type(sequence), axis=dim)


@register(sequence_stack)
def stack(op: Builder, sequence: Value, dim: int) -> Value:
    return _emit(
        op, "ConcatFromSequence", [sequence], _element_type(sequence), axis=dim, new_axis=1
    )


@register(sequence_split)
def split(op: Builder, tensor: Value, size: Size, dim: int, keep: bool) -> Value:
    """Splits by a number, as a tensor of sizes would not allow a smaller piece."""
    assert tensor.dtype is not None
    kind = ir.SequenceType(ir.TensorType(tensor.dtype))
    if keep:
        return _emit(op, "SplitToSequence", [tensor, _cast_index(op, size)], kind, axis=dim)
    return _emit(op, "SplitToSequence", [tensor], kind, axis=dim, keepdims=0)
