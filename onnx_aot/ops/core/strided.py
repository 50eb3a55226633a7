"""Translates access to the storage of tensors with arbitrary sizes and strides.

ONNX has values only. If the elements of a tensor are dense in memory, in any order of its axes, its
storage is these elements in that order. The storage of other tensors is not known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.builder.peephole import FOLD_LIMIT
from onnx_aot.errors import TranslationError
from onnx_aot.ops.core.movement import annotate_shape, reshape
from onnx_aot.ops.core.size_math import largest, product, subtract_sizes
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value


@register(aten.as_strided.default, aten.as_strided_copy.default)
def aten_as_strided(
    op: Builder,
    self: Value,
    size: Sequence[Size],
    stride: Sequence[Size],
    storage_offset: Size | None = None,
) -> Value:
    storage, _, first = _recover_storage(op, self)
    start = 0 if storage_offset is None else subtract_sizes(op, storage_offset, first)
    _refuse_outside(op, self, size, stride, start)
    return op.Gather(storage, _compute_positions(op, size, stride, start), axis=0)


@register(aten.sym_stride.int)
def aten_sym_stride(op: Builder, self: Value, dim: int) -> Size:
    """The product of the sizes along the axes inside of this one, of which 0 counts as 1."""
    recorded = op.recorded[0]
    stride = recorded.stride(dim)
    order = sorted(range(recorded.dim()), key=lambda axis: _stride_sort_key(recorded, axis))
    inner = order[order.index(dim % recorded.dim()) + 1 :]
    expected = 1
    for axis in inner:
        expected = expected * torch.sym_max(recorded.shape[axis], 1)  # type: ignore[no-untyped-call]
    if not statically_known_true(stride == expected):
        raise TranslationError(
            f"the model reads stride {dim} of a tensor of sizes {tuple(recorded.shape)} and "
            f"strides {tuple(recorded.stride())}, which is not dense in memory; ONNX has values "
            "and no storage. Call .contiguous() first",
            code="OA404",
        )
    return product(op, [largest(op, [op.size(self, axis), 1]) for axis in inner])


@register(aten.as_strided_scatter.default)
def aten_as_strided_scatter(
    op: Builder,
    self: Value,
    src: Value,
    size: Sequence[Size],
    stride: Sequence[Size],
    storage_offset: Size | None = None,
) -> Value:
    storage, order, first = _recover_storage(op, self)
    start = 0 if storage_offset is None else subtract_sizes(op, storage_offset, first)
    _refuse_outside(op, self, size, stride, start)
    positions = op.Reshape(_compute_positions(op, size, stride, start), [-1])
    source = op.Reshape(op.Expand(op.cast(src, self.dtype), op.sizes(size)), [-1])
    written = op.ScatterElements(storage, positions, source, axis=0)
    sizes = op.all_sizes(self)
    laid = reshape(op, written, [sizes[axis] for axis in order])
    return op.Transpose(laid, perm=[order.index(axis) for axis in range(len(order))])


def _recover_storage(op: Builder, value: Value) -> tuple[Value, list[int], int]:
    """Returns the elements in memory order, the axes from the outermost on, and the offset."""
    recorded = op.recorded[0]
    order = sorted(range(recorded.dim()), key=lambda axis: _stride_sort_key(recorded, axis))
    expected = 1
    for axis in reversed(order):
        length, stride = recorded.shape[axis], recorded.stride(axis)
        if not _is_equal(length, 1) and not _is_equal(stride, expected):
            raise TranslationError(
                f"as_strided reads the storage of a tensor of sizes {tuple(recorded.shape)} and "
                f"strides {tuple(recorded.stride())}, which has elements outside the tensor; "
                "ONNX has values and no storage. Call .contiguous() first, or index the tensor",
                code="OA404",
            )
        expected = expected * torch.sym_max(length, 1)  # type: ignore[no-untyped-call]
    flat = op.Reshape(op.Transpose(value, perm=order) if order else value, [-1])
    return flat, order, int(recorded.storage_offset())


def _refuse_outside(
    op: Builder, value: Value, size: Sequence[Size], stride: Sequence[Size], start: Size
) -> None:
    """Checks that only the tensor's own elements are accessed, as far as sizes are known."""
    numbers = [op.number(n) for n in (*size, *stride, start)]
    known = [n for n in numbers if n is not None]
    count = product(op, op.all_sizes(value))
    if numbers[-1] is not None and numbers[-1] < 0:
        last = numbers[-1]
    elif len(known) < len(numbers) or not isinstance(count, int) or 0 in known[: len(size)]:
        return
    else:
        steps = zip(known[: len(size)], known[len(size) : -1], strict=True)
        last = known[-1] + sum((extent - 1) * step for extent, step in steps)
        if last < count:
            return
    raise TranslationError(
        f"as_strided reads element {last} of the storage, which lies outside the tensor; ONNX "
        "has values and no storage. Index the whole tensor instead",
        code="OA404",
    )


def _stride_sort_key(recorded: torch.Tensor, axis: int) -> tuple[float, int]:
    """Sort key by falling strides, or their hints; axes of size 1 may be anywhere.

    A stride without a hint comes from a size that depends on data. Such axes are taken for the
    outermost ones; the caller checks the order.
    """
    stride = recorded.stride(axis)
    hint = stride if isinstance(stride, int) else stride.node.hint
    return (-math.inf if hint is None else -hint, axis)


def _is_equal(size: Any, other: Any) -> bool:
    """True if two recorded sizes are equal: by their hints, or provably if one has none."""
    symbols = [n for n in (size, other) if isinstance(n, torch.SymInt)]
    if any(symbol.node.hint is None for symbol in symbols):
        return statically_known_true(size == other)
    return bool(size == other)


def _compute_positions(
    op: Builder, size: Sequence[Size], stride: Sequence[Size], start: Size
) -> Value:
    """``start + sum(index * stride)`` for every index; a constant if it is small and known."""
    numbers = [op.number(n) for n in (*size, *stride, start)]
    known = [n for n in numbers if n is not None]
    rank = len(size)
    if len(known) == len(numbers):
        total = torch.tensor(known[-1])
        for axis in range(rank):
            offsets = torch.arange(known[axis]) * known[rank + axis]
            total = total + offsets.view([-1 if a == axis else 1 for a in range(rank)])
            if total.numel() > FOLD_LIMIT:
                break
        else:
            return op.constant(total)
    position: Value = op.sizes([start])
    position = op.Reshape(position, op.constant([], ir.DataType.INT64))
    for axis, (extent, step) in enumerate(zip(size, stride, strict=True)):
        along = op.Mul(op.Range(0, extent, 1), step)
        after = list(range(1, rank - axis))
        position = op.Add(position, op.Unsqueeze(along, after) if after else along)
    return position


for _target in (
    aten.as_strided.default,
    aten.as_strided_copy.default,
    aten.as_strided_scatter.default,
):
    LIMITS[_target] = (
        "elements of the storage outside the tensor cannot be read: an error says so, with "
        "dynamic sizes only when the model runs"
    )


@register(aten.resize.default)
def aten_resize(op: Builder, self: Value, size: Sequence[Size]) -> Value:
    return _resize_storage(op, self, size)


@register(aten.resize_as.default)
def aten_resize_as(op: Builder, self: Value, the_template: Value) -> Value:
    return _resize_storage(op, self, op.all_sizes(the_template))


LIMITS[aten.sym_stride.int] = "the tensor has to be dense in memory, in any order of its axes"
LIMITS[aten.resize.default] = LIMITS[aten.resize_as.default] = (
    "elements beyond the end of the tensor, which eager leaves undefined, are 0"
)


def _resize_storage(op: Builder, value: Value, size: Sequence[Size]) -> Value:
    """Returns the first elements in memory order, followed by zeros if there are too few."""
    storage = annotate_shape(_recover_storage(op, value)[0], [None])
    wanted, there = product(op, list(size)), product(op, op.all_sizes(value))
    if not (isinstance(wanted, int) and wanted == there):
        added = subtract_sizes(op, wanted, there)
        if isinstance(added, int) and added < 0:
            storage = op.Slice(storage, [0], op.sizes([wanted]), [0])
        else:
            storage = op.Pad(storage, op.sizes([0, added]), op.constant(0, value.dtype))
    return reshape(op, storage, size)
