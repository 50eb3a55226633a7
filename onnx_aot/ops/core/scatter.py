"""Translates writes by index, the functional forms of in-place operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder, Size
from onnx_aot.dtypes import INT64_MAX, is_floating
from onnx_aot.errors import MissingInOpset, OpsetError
from onnx_aot.ops.core.elementwise import floor_divide
from onnx_aot.ops.core.indexing import IndexPlan, as_positions, clamp_indices, range_of_length
from onnx_aot.ops.core.movement import annotate_shape, expand, reshape, slice_axis
from onnx_aot.ops.core.size_math import add_sizes, product
from onnx_aot.ops.registry import FLOATING, LIMITS, REPORTED, register
from onnx_aot.torch_compat import aten

__all__ = ["scatter_elements"]

Value = ir.Value
BOOL = ir.DataType.BOOL
INT64 = ir.DataType.INT64


# Torch's names of reductions, and those of ScatterElements.
REDUCTIONS = {
    "add": "add",
    "multiply": "mul",
    "sum": "add",
    "mean": "add",
    "prod": "mul",
    "amax": "max",
    "amin": "min",
}

# Types in which to compute reductions that are not possible in the element type itself.
WIDE = {
    ir.DataType.BFLOAT16: ir.DataType.FLOAT,
    ir.DataType.FLOAT16: ir.DataType.FLOAT,
    BOOL: ir.DataType.INT32,
}


# --- element by element --------------------------------------------------------------------------


@register(aten.scatter.src)
def aten_scatter_src(op: Builder, self: Value, dim: int, index: Value, src: Value) -> Value:
    return _scatter_source(op, self, dim, index, src, "none")


@register(aten.scatter.value)
def aten_scatter_value(op: Builder, self: Value, dim: int, index: Value, value: Any) -> Value:
    source = _expand_like(op, index, op.cast(value, self.dtype))
    return _scatter_source(op, self, dim, index, source, "none")


@register(aten.scatter_add.default)
def aten_scatter_add(op: Builder, self: Value, dim: int, index: Value, src: Value) -> Value:
    return _scatter_source(op, self, dim, index, src, "add")


@register(aten.scatter.reduce)
def aten_scatter_reduce_src(
    op: Builder, self: Value, dim: int, index: Value, src: Value, reduce: str
) -> Value:
    return _scatter_source(op, self, dim, index, src, REDUCTIONS[reduce])


@register(aten.scatter.value_reduce)
def aten_scatter_value_reduce(
    op: Builder, self: Value, dim: int, index: Value, value: Any, reduce: str
) -> Value:
    source = _expand_like(op, index, op.cast(value, self.dtype))
    return _scatter_source(op, self, dim, index, source, REDUCTIONS[reduce])


@register(aten.scatter_reduce.two)
def aten_scatter_reduce(
    op: Builder,
    self: Value,
    dim: int,
    index: Value,
    src: Value,
    reduce: str,
    include_self: bool = True,
) -> Value:
    """Without ``include_self``, written elements start from the neutral element."""
    reduction = REDUCTIONS[reduce]
    if reduction in ("max", "min") and op.opset < 18:
        problem = (
            f"ONNX ScatterElements has no reduction {reduction!r} in opset {op.opset}: it exists "
            "since opset 18"
        )
        raise OpsetError(MissingInOpset("ScatterElements", problem, 18))
    reduced = _scatter_source(
        op,
        _initialize_reduction(op, self, dim, index, reduction, include_self),
        dim,
        index,
        src,
        reduction,
    )
    if reduce != "mean":
        return reduced
    ones = _expand_like(op, self, op.cast(1, self.dtype))
    count = _initialize_reduction(op, ones, dim, index, "add", include_self)
    one = _expand_like(op, index, op.cast(1, self.dtype))
    count = _scatter_source(op, count, dim, index, one, "add")
    return op.Div(reduced, count) if is_floating(self.dtype) else floor_divide(op, reduced, count)


@register(aten.index_reduce.default)
def aten_index_reduce(
    op: Builder,
    self: Value,
    dim: int,
    index: Value,
    source: Value,
    reduce: str,
    include_self: bool = True,
) -> Value:
    """Scatters slices along an axis; all elements of a slice have the same index."""
    rank = op.rank(source)
    axis = op.axis(source, dim)
    index = _as_vector(op, as_positions(op, index))
    around = [a for a in range(rank) if a != axis]
    index = op.Unsqueeze(index, around) if around else index
    index = annotate_shape(op.Expand(index, op.Shape(_as_vector(op, source))), source.shape or ())
    return aten_scatter_reduce(op, self, dim, index, source, reduce, include_self)


@register(aten.put.default)
def aten_put(
    op: Builder, self: Value, index: Value, source: Value, accumulate: bool = False
) -> Value:
    """``x.view(-1)[index] = source``, or ``+=``."""
    flat, index, source = (op.Reshape(value, [-1]) for value in (self, index, source))
    for value in (flat, index, source):
        annotate_shape(value, [None])
    reduction = "add" if accumulate else "none"
    written = _scatter_source(op, flat, 0, as_positions(op, index), source, reduction)
    return reshape(op, written, op.all_sizes(self))


LIMITS[aten.scatter_reduce.two] = LIMITS[aten.index_reduce.default] = (
    "amax and amin since opset 18; they may skip NaN, as ONNX Runtime's ScatterElements does"
)
REPORTED[aten.scatter_reduce.two] = REPORTED[aten.index_reduce.default] = FLOATING


def _initialize_reduction(
    op: Builder, value: Value, dim: int, index: Value, reduction: str, include: bool
) -> Value:
    """Returns the tensor that a reduction starts from."""
    if include:
        return value
    dtype = dtypes.to_torch(value.dtype or op.result_dtype)
    lowest, highest = _value_range(dtype)
    neutral = {"add": 0, "mul": 1, "max": lowest, "min": highest}[reduction]
    return _scatter_source(
        op, value, dim, index, _expand_like(op, index, op.cast(neutral, value.dtype)), "none"
    )


def _value_range(dtype: torch.dtype) -> tuple[float, float]:
    """Returns the lowest and the highest number of a type."""
    if dtype.is_floating_point:
        return -math.inf, math.inf
    if dtype == torch.bool:
        return False, True
    return torch.iinfo(dtype).min, torch.iinfo(dtype).max


def _expand_like(op: Builder, value: Value, fill: Value) -> Value:
    """Expands a 0-d value to the shape of another."""
    return annotate_shape(op.Expand(fill, op.Shape(value)), value.shape or ())


def _scatter_source(
    op: Builder, value: Value, dim: int, index: Value, source: Value, reduction: str
) -> Value:
    """Scatters the part of the source that the index covers; treats 0-d tensors as 1-d."""
    if index.shape is not None and 0 in index.shape:
        return value
    index = as_positions(op, index)
    if 0 in (op.rank(value), op.rank(index), op.rank(source)):
        flat = [_as_vector(op, tensor) for tensor in (value, index, source)]
        written = _scatter_source(op, flat[0], 0, flat[1], flat[2], reduction)
        return op.Reshape(written, op.constant([], INT64)) if op.rank(value) == 0 else written
    if source.shape is None or source.shape != index.shape:
        rank = op.rank(index)
        source = op.Slice(source, [0] * rank, op.Shape(index), list(range(rank)))
    return scatter_elements(op, value, index, source, dim, reduction)


def scatter_elements(
    op: Builder, value: Value, index: Value, source: Value, axis: int, reduction: str = "none"
) -> Value:
    """Emits ScatterElements; in ONNX Runtime it reduces neither half precision nor booleans."""
    wide = None if reduction == "none" else WIDE.get(value.dtype or op.result_dtype)
    if wide is None:
        return op.ScatterElements(value, index, source, axis=axis, reduction=reduction)
    numbers, source = op.Cast(value, to=wide), op.Cast(source, to=wide)
    written = op.ScatterElements(numbers, index, source, axis=axis, reduction=reduction)
    return op.cast(written, value.dtype)


def _as_vector(op: Builder, value: Value) -> Value:
    return op.Reshape(value, [1]) if op.rank(value) == 0 else value


@register(aten.masked_scatter.default)
def aten_masked_scatter(op: Builder, self: Value, mask: Value, source: Value) -> Value:
    """Writes elements of the source, in order, where the mask is true, in row-major order."""
    if op.result.dim() == 0:
        written = _scatter_by_mask(op, _as_vector(op, self), _as_vector(op, mask), source)
        return op.Reshape(written, op.constant([], INT64))
    return _scatter_by_mask(op, self, mask, source)


def _scatter_by_mask(op: Builder, value: Value, mask: Value, source: Value) -> Value:
    wide = op.Expand(mask, op.Shape(value))
    if mask.shape != value.shape:
        value = op.Expand(value, op.Shape(mask))
    positions = op.Transpose(op.NonZero(wide), perm=[1, 0])
    count = op.Shape(positions, start=0, end=1)
    return op.ScatterND(value, positions, op.Slice(op.Reshape(source, [-1]), [0], count, [0]))


@register(aten.masked_scatter_backward.default)
def aten_masked_scatter_backward(
    op: Builder, grad_output: Value, mask: Value, sizes: Sequence[Size]
) -> Value:
    """The selected gradients, in order, then zeros for what was not read of the source."""
    wide = op.Expand(mask, op.Shape(grad_output))
    chosen = op.Compress(op.Reshape(grad_output, [-1]), op.Reshape(wide, [-1]), axis=0)
    count = op.sizes([product(op, list(sizes))])
    rest = op.Sub(count, op.Shape(chosen))
    return op.Reshape(op.Pad(chosen, op.Concat(op.constant([0]), rest, axis=0)), op.sizes(sizes))


# --- along one axis ------------------------------------------------------------------------------


@register(aten.slice_scatter.default)
def aten_slice_scatter(
    op: Builder,
    self: Value,
    src: Value,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: int = 1,
) -> Value:
    """``x[start:end:step] = src`` along one axis."""
    dim = op.axis(self, dim)
    first = 0 if start is None else start
    last = INT64_MAX if end is None else end
    src = op.cast(src, self.dtype or op.result_dtype)
    if step == 1:
        sizes = op.all_sizes(self)
        sizes[dim] = op.size(src, dim)
        return _replace_slice(op, self, expand(op, src, sizes), dim, first, last, sizes[dim])
    positions = slice_axis(op, range_of_length(op, 0, op.size(self, dim)), 0, first, last, step)
    return _write_along(op, self, dim, positions, src)


def _replace_slice(
    op: Builder, value: Value, source: Value, axis: int, start: Size, end: Size, length: Size
) -> Value:
    """``[before | source | after]``; the source has the length of the slice that it replaces.

    If the start lies before the first element, or the end before the start, the bounds do not tell
    where ``after`` begins: it begins ``length`` elements behind ``before``.
    """
    size = op.size(value, axis)
    if isinstance(start, int) and isinstance(size, int):
        start = min(max(start + size if start < 0 else start, 0), size)
    parts = [source]
    if start != 0:
        parts.insert(0, slice_axis(op, value, axis, 0, start))
    if end == INT64_MAX:
        return op.Concat(*parts, axis=axis)
    if isinstance(start, int) and start >= 0:
        after = op.sizes([add_sizes(op, start, length)])
    else:
        after = op.Add(op.Shape(parts[0], start=axis, end=axis + 1), op.sizes([length]))
    if op.number(after) != size:
        parts.append(op.Slice(value, after, [INT64_MAX], [axis]))
    return op.Concat(*parts, axis=axis)


def _write_along(
    op: Builder, value: Value, axis: int, positions: Value, source: Value, reduction: str = "none"
) -> Value:
    """``x[positions] = source``, or ``+=``, along one axis.

    ScatterND is the cheapest, but writes along the first axis only, and ONNX Runtime adds duplicate
    positions in several threads that overwrite each other.
    """
    if axis == 0 and reduction == "none":
        return op.ScatterND(value, op.Unsqueeze(positions, [-1]), source)
    around = [a for a in range(op.rank(value)) if a != axis]
    index = op.Unsqueeze(positions, around) if around else positions
    index = op.Expand(index, op.Shape(source)) if around else index
    return scatter_elements(op, value, index, source, axis, reduction)


@register(aten.select_scatter.default)
def aten_select_scatter(op: Builder, self: Value, src: Value, dim: int, index: Size) -> Value:
    """``x[index] = src`` along one axis."""
    dim = op.axis(self, dim)
    src = op.cast(src, self.dtype or op.result_dtype)
    row = op.Unsqueeze(src, [dim])
    if dim == 0 or isinstance(index, ir.Value):
        return _write_along(op, self, dim, op.sizes([index]), row)
    return _replace_slice(op, self, row, dim, index, INT64_MAX if index == -1 else index + 1, 1)


@register(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def aten_index_fill(op: Builder, self: Value, dim: int, index: Value, value: Any) -> Value:
    fill = op.cast(value, self.dtype)
    if op.rank(self) == 0:
        filled = aten_index_fill(op, _as_vector(op, self), 0, index, fill)
        return op.Reshape(filled, op.constant([], INT64))
    if op.rank(index) == 0:
        index = _as_vector(op, index)
    dim = op.axis(self, dim)
    sizes = op.all_sizes(self)
    sizes[dim] = op.size(index, 0)
    rows = op.Expand(fill, op.sizes(sizes))
    return _write_along(op, self, dim, op.cast(index, INT64), rows)


# --- advanced indexing ---------------------------------------------------------------------------


@register(aten.index_put.default)
def aten_index_put(
    op: Builder,
    self: Value,
    indices: Sequence[Value | None],
    values: Value,
    accumulate: bool = False,
) -> Value:
    """``x[i, :, j] = v``, or ``+=``; a single value may have another type."""
    values = op.cast(values, op.result_dtype)
    plan = IndexPlan(op, self, indices)
    if (
        plan.mask is not None
        and self.dtype != BOOL
        and _is_constant_over_mask(op, self, values, plan)
    ):
        after = range(op.rank(plan.mask), op.rank(self) - plan.axes[0])
        mask = op.Unsqueeze(plan.mask, list(after)) if after else plan.mask
        return op.Where(mask, op.Add(self, values) if accumulate else values, self)
    if plan.mask is None and len(plan.axes) == 1:
        return _put_along(op, self, plan.axes[0], plan.indices[0], values, accumulate)
    front = op.Transpose(self, perm=plan.order)
    values = _move_values_to_front(op, values, plan, op.rank(self) - len(plan.axes))
    # A mask has no position twice, so ScatterND can add, too.
    if plan.mask is not None or not accumulate:
        written = _put_at(op, front, plan, values, "add" if accumulate else "none")
    else:
        written = _add_at(op, front, plan, values)
    back = [plan.order.index(axis) for axis in range(op.rank(self))]
    return op.Transpose(written, perm=back)


@register(aten._unsafe_masked_index_put_accumulate.default)
def aten_unsafe_masked_index_put(
    op: Builder, self: Value, mask: Value, indices: Sequence[Value | None], values: Value
) -> Value:
    """``x[indices] += values`` where the mask is true; elsewhere indices may be out of range."""
    if self.shape is not None and 0 in self.shape:
        return self
    values = op.Where(mask, values, op.constant(0, values.dtype))
    return aten_index_put(op, self, clamp_indices(op, self, indices), values, accumulate=True)


def _is_constant_over_mask(op: Builder, value: Value, values: Value, plan: IndexPlan) -> bool:
    """True if the values are the same for every element of the mask, including false ones."""
    dims = values.shape.dims if values.shape is not None else ()
    after = op.rank(value) - plan.axes[-1] - 1
    before = dims[: max(len(dims) - after, 0)]
    return len(dims) <= op.rank(value) and all(size == 1 for size in before)


def _put_along(
    op: Builder, value: Value, axis: int, index: Value, values: Value, accumulate: bool
) -> Value:
    """Writes at one integer index, whose shape replaces the axis in the written block."""
    reduction = "add" if accumulate else "none"
    before, after = range(axis), range(axis + 1, op.rank(value))
    values = _broadcast_to_block(op, value, values, before, index, after)
    if op.rank(index) != 1 and (accumulate or axis > 0):
        values, index = _flatten_index(op, value, values, before, index, after)
    return _write_along(op, value, axis, index, values, reduction)


def _put_at(op: Builder, front: Value, plan: IndexPlan, values: Value, reduction: str) -> Value:
    """Writes at several indices, or at a mask, whose axes come first."""
    positions = plan.positions(op)
    after = range(len(plan.axes), op.rank(front))
    if plan.mask is None:
        values = _broadcast_to_block(op, front, values, range(0), plan.indices[0], after)
    else:
        count = op.Shape(positions, start=0, end=1)
        values = op.Expand(values, _block_sizes(op, front, range(0), count, after))
    wide = None if reduction == "none" else WIDE.get(front.dtype or op.result_dtype)
    if wide is None:
        return op.ScatterND(front, positions, values, reduction=reduction)
    numbers, values = op.Cast(front, to=wide), op.Cast(values, to=wide)
    return op.cast(op.ScatterND(numbers, positions, values, reduction=reduction), front.dtype)


def _add_at(op: Builder, front: Value, plan: IndexPlan, values: Value) -> Value:
    """Adds at several indices, as one index into their merged axes; see ``_write_along``."""
    count = len(plan.axes)
    sizes = op.all_sizes(front)
    index = op.Mod(plan.indices[0], _at_least_one(op, sizes[0]))
    for size, other in zip(sizes[1:count], plan.indices[1:], strict=True):
        index = op.Add(op.Mul(index, size), op.Mod(other, _at_least_one(op, size)))
    merged = reshape(op, front, [product(op, sizes[:count]), *sizes[count:]])
    merged = annotate_shape(merged, [None, *(front.shape or ())[count:]])
    return reshape(op, _put_along(op, merged, 0, index, values, accumulate=True), sizes)


def _at_least_one(op: Builder, size: Size) -> Size:
    """Returns ``max(size, 1)``, as ONNX Runtime refuses a zero divisor even of an empty tensor."""
    return op.Max(size, 1) if isinstance(size, ir.Value) else max(size, 1)


def _broadcast_to_block(
    op: Builder, value: Value, values: Value, before: range, index: Value, after: range
) -> Value:
    """Broadcasts the values to the block that is written."""
    shape, indexed = value.shape or (), index.shape or ()
    block = ir.Shape([*(shape[a] for a in before), *indexed, *(shape[a] for a in after)])
    if values.shape == block and not block.has_unknown_dim():
        return values
    return op.Expand(values, _block_sizes(op, value, before, op.Shape(index), after))


def _block_sizes(op: Builder, value: Value, before: range, index: Value, after: range) -> Value:
    """Returns the sizes of the axes before the index, of the index, and of the axes after it."""
    outer, inner = ([op.size(value, axis) for axis in axes] for axes in (before, after))
    parts = [op.sizes(outer)] if outer else []
    return op.Concat(*parts, index, *([op.sizes(inner)] if inner else []), axis=0)


def _flatten_index(
    op: Builder, value: Value, values: Value, before: range, index: Value, after: range
) -> tuple[Value, Value]:
    """Returns the values and the index with the index's axes merged into one."""
    static = index.shape is not None and index.shape.is_static()
    count = product(op, op.all_sizes(index)) if static else op.Size(index)
    outer, inner = ([op.size(value, axis) for axis in axes] for axes in (before, after))
    return reshape(op, values, [*outer, count, *inner]), op.Reshape(index, [-1])


def _move_values_to_front(op: Builder, values: Value, plan: IndexPlan, kept: int) -> Value:
    """Moves the indices' axes of the values from ``plan.position`` to the front.

    Values that have only axes after these need no change.
    """
    if plan.position == 0 or op.rank(values) <= kept - plan.position:
        return values
    rank = plan.rank + kept
    missing = rank - op.rank(values)
    if missing > 0:
        values = op.Unsqueeze(values, list(range(missing)))
    block = list(range(plan.position, plan.position + plan.rank))
    rest = [axis for axis in range(rank) if axis not in block]
    return op.Transpose(values, perm=[*block, *rest])


@register(aten.diagonal_scatter.default)
def aten_diagonal_scatter(
    op: Builder, self: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Value:
    """``x[i, i + offset] = src`` in two axes; the diagonal is the last axis of the source."""
    rank = op.rank(self)
    first, second = dim1 % rank, dim2 % rank
    order = [first, second, *(axis for axis in range(rank) if axis not in (first, second))]
    length = op.size(src, -1)
    rows, columns = (range_of_length(op, max(start, 0), length) for start in (-offset, offset))
    positions = op.Concat(op.Unsqueeze(rows, [-1]), op.Unsqueeze(columns, [-1]), axis=-1)
    src = op.cast(src, self.dtype or op.result_dtype)
    source = op.Transpose(src, perm=[rank - 2, *range(rank - 2)])
    written = op.ScatterND(op.Transpose(self, perm=order), positions, source)
    return op.Transpose(written, perm=[order.index(axis) for axis in range(rank)])
