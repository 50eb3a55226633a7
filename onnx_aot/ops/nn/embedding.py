"""Embeddings: table lookups, sums over bags, and tables with a maximum norm."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.dtypes import to_onnx
from onnx_aot.errors import MissingInOpset, OpsetError
from onnx_aot.ops.core.creation import make_full
from onnx_aot.ops.core.size_math import add_sizes, subtract_sizes
from onnx_aot.ops.linalg.products_and_norms import raise_to
from onnx_aot.ops.nn.conv_arguments import NARROW
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
INT64 = ir.DataType.INT64

SUM, MEAN, MAX = 0, 1, 2


@register(aten.embedding.default)
def aten_embedding(
    op: Builder,
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    return op.Gather(weight, indices, axis=0)


# --- the largest norm ----------------------------------------------------------------------------


@register(aten.embedding_renorm.default)
def aten_embedding_renorm(
    op: Builder, self: Value, indices: Value, max_norm: float, norm_type: float
) -> Value:
    """Table whose rows are scaled down to the maximum norm if they occur among the indices."""
    rows = op.size(self, 0)
    places = op.Reshape(op.cast(indices, INT64), [-1])
    ones = op.Expand(True, op.Shape(places))
    seen = op.ScatterElements(make_full(op, [rows], 0, ir.DataType.BOOL), places, ones, axis=0)
    scale = op.Where(
        op.Unsqueeze(seen, [1]), _renorm_factor(op, self, norm_type, [1], max_norm), 1.0
    )
    return _scale_rows(op, self, scale)


@register(aten.renorm.default)
def aten_renorm(op: Builder, self: Value, p: float, dim: int, maxnorm: float) -> Value:
    """Scales every slice of an axis down to the maximum norm, by a factor in the result's type."""
    axis = op.axis(self, dim)
    others = [other for other in range(op.rank(self)) if other != axis]
    return op.Mul(self, op.cast(_renorm_factor(op, self, p, others, maxnorm), self.dtype))


def _renorm_factor(
    op: Builder, value: Value, p: float, axes: Sequence[int], largest: float
) -> Value:
    """``largest / (norm + 1e-7)`` where the norm is larger, else 1; in float32 at least."""
    wide = op.cast(value, ir.DataType.FLOAT) if value.dtype in NARROW else value
    norm = _reduce_norm(op, wide, float(p), axes)
    return op.Where(op.Greater(norm, largest), op.Div(largest, op.Add(norm, 1e-7)), 1.0)


def _reduce_norm(op: Builder, value: Value, p: float, axes: Sequence[int]) -> Value:
    if p in (1.0, 2.0):
        return op.reduce(f"ReduceL{int(p)}", value, axes, True)
    size = op.Abs(value)
    if p == math.inf:
        return op.reduce("ReduceMax", size, axes, True)
    if p == 0.0:
        return op.reduce("ReduceSum", op.Sign(size), axes, True)
    return raise_to(op, op.reduce("ReduceSum", raise_to(op, size, p), axes, True), 1.0 / p)


def _scale_rows(op: Builder, value: Value, scale: Value) -> Value:
    if value.dtype not in NARROW:
        return op.Mul(value, scale)
    return op.cast(op.Mul(op.cast(value, ir.DataType.FLOAT), scale), value.dtype)


# --- bags ----------------------------------------------------------------------------------------


@register(aten.embedding_bag.default)
def aten_embedding_bag(
    op: Builder,
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
) -> list[Value]:
    return _reduce_bags(
        op, weight, indices, offsets, mode, per_sample_weights, include_last_offset, None
    )


@register(aten.embedding_bag.padding_idx)
def aten_embedding_bag_padding_idx(
    op: Builder,
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Value | None,
    include_last_offset: bool,
    padding_idx: int | None,
) -> list[Value]:
    padding: Size | None = padding_idx
    if padding_idx is not None and padding_idx < 0:
        padding = add_sizes(op, op.size(weight, 0), padding_idx)
    return _reduce_bags(
        op, weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding
    )


@register(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def aten__embedding_bag(
    op: Builder,
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> list[Value]:
    padding = None if padding_idx < 0 else padding_idx
    return _reduce_bags(
        op, weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding
    )


for _target in (
    aten.embedding_bag.default,
    aten.embedding_bag.padding_idx,
    aten._embedding_bag.default,
    aten._embedding_bag_forward_only.default,
):
    LIMITS[_target] = (
        "with include_last_offset=True bag_size and max_indices are as long as torch's shape "
        "function says, which differs by one from eager: bag_size with mode='mean' and 'max', "
        "max_indices with 'sum'; mode='max' since opset 18"
    )


def _reduce_bags(
    op: Builder,
    weight: Value,
    indices: Value,
    offsets: Value,
    mode: int,
    per_sample_weights: Value | None,
    include_last_offset: bool,
    padding: Size | None,
) -> list[Value]:
    """Sum, mean or column-wise maximum of each bag's rows, and three more results.

    The other results are the bag of each index; the sizes of the bags without ``padding``, or zeros
    for sums; and the index that each maximum came from. ScatterND adds the rows to their bags.
    """
    indices, offsets = op.cast(indices, INT64), op.cast(offsets, INT64)
    bags = op.size(offsets, 0)
    bags = subtract_sizes(op, bags, 1) if include_last_offset else bags
    starts = op.Slice(offsets, [0], op.sizes([bags]), [0]) if include_last_offset else offsets
    bag = _assign_bags(op, starts, op.size(indices, 0))
    kept = None if padding is None else op.Not(op.Equal(indices, padding))
    rows = op.Gather(weight, indices, axis=0)
    # ONNX Runtime's ScatterND does not add or compare float16 and bfloat16
    rows = op.cast(rows, ir.DataType.FLOAT) if rows.dtype in NARROW else rows
    sizes = _count_indices(op, bag, kept, bags)
    shape = [bags, op.size(weight, 1)]
    if mode == MAX:
        output, largest = _maximize_bags(op, rows, indices, bag, kept, sizes, shape)
    else:
        output = _sum_bags(op, rows, bag, kept, per_sample_weights, shape)
        if mode == MEAN:
            count = op.cast(op.Max(sizes, 1), rows.dtype)
            output = op.Div(output, op.Unsqueeze(count, [1]))
        sizes = op.Mul(sizes, 0) if mode == SUM else sizes
        largest = sizes
    if include_last_offset:  # torch's shape function makes them as long as the offsets
        sizes = op.Concat(sizes, op.constant([0]), axis=0)
    output = op.cast(output, weight.dtype)
    recorded = op.result[1].shape[0]
    nothing = isinstance(recorded, int) and recorded == 0
    others = [op.constant([], INT64) if nothing else bag, sizes, largest]
    types = [to_onnx(tensor.dtype) for tensor in op.result[1:]]
    return [output, *(op.cast(value, dtype) for value, dtype in zip(others, types, strict=True))]


def _sum_bags(
    op: Builder,
    rows: Value,
    bag: Value,
    kept: Value | None,
    weights: Value | None,
    shape: Sequence[Size],
) -> Value:
    """Weighted sum of each bag's kept rows."""
    if weights is not None:
        rows = op.Mul(rows, op.Unsqueeze(op.cast(weights, rows.dtype), [1]))
    if kept is not None:
        rows = op.Where(op.Unsqueeze(kept, [1]), rows, 0.0)
    assert rows.dtype is not None
    zeros = make_full(op, shape, 0, rows.dtype)
    return op.ScatterND(zeros, op.Unsqueeze(bag, [1]), rows, reduction="add")


def _assign_bags(op: Builder, starts: Value, count: Size) -> Value:
    """Bag of each index: the number of bags that have begun there, less one."""
    begun = make_full(op, [add_sizes(op, count, 1)], 0, INT64)
    ones = op.Expand(op.constant([1]), op.Shape(starts))
    begun = op.ScatterElements(begun, starts, ones, axis=0, reduction="add")
    begun = op.Slice(begun, [0], op.sizes([count]), [0])
    return op.Sub(op.CumSum(begun, 0), 1)


def _count_indices(op: Builder, bag: Value, kept: Value | None, bags: Size) -> Value:
    """Number of indices in each bag, without padding."""
    ones = op.Expand(op.constant([1]), op.Shape(bag)) if kept is None else op.cast(kept, INT64)
    return op.ScatterElements(make_full(op, [bags], 0, INT64), bag, ones, axis=0, reduction="add")


def _maximize_bags(
    op: Builder,
    rows: Value,
    indices: Value,
    bag: Value,
    kept: Value | None,
    sizes: Value,
    shape: Sequence[Size],
) -> tuple[Value, Value]:
    """Maximum of each column of a bag, 0 if it is empty, and the first index that has it."""
    if op.opset < 18:
        problem = (
            f"ONNX ScatterND has no reduction 'max' in opset {op.opset}: it exists since opset 18"
        )
        raise OpsetError(MissingInOpset("ScatterND", problem, 18))
    assert rows.dtype is not None
    place = op.Unsqueeze(bag, [1])
    lowest = make_full(op, shape, -math.inf, rows.dtype)
    if kept is not None:
        rows = op.Where(op.Unsqueeze(kept, [1]), rows, -math.inf)
    largest = op.ScatterND(lowest, place, rows, reduction="max")
    count = op.size(indices, 0)
    order = op.Unsqueeze(op.Range(0, count, 1), [1])
    holds = op.Equal(rows, op.Gather(largest, bag, axis=0))
    if kept is not None:
        holds = op.And(holds, op.Unsqueeze(kept, [1]))
    nowhere = make_full(op, shape, 0, INT64) if count == 0 else op.Expand(count, op.sizes(shape))
    first = op.ScatterND(nowhere, place, op.Where(holds, order, count), reduction="min")
    source = op.Gather(op.Concat(indices, op.constant([0]), axis=0), first, axis=0)
    empty = op.Unsqueeze(op.Equal(sizes, 0), [1])
    return op.Where(empty, 0.0, largest), source
