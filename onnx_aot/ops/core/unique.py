"""Translates removal of duplicates; the sizes of the results depend on the data."""

from __future__ import annotations

import onnx_ir as ir

from onnx_aot import dtypes
from onnx_aot.builder.builder import Builder
from onnx_aot.dtypes import INT64_MAX
from onnx_aot.errors import TranslationError
from onnx_aot.ops.core.movement import annotate_shape, move_axis, reshape, slice_axis
from onnx_aot.ops.core.size_math import product
from onnx_aot.ops.core.sorting import make_empty_result, mark_run_starts, sort_along_axis
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
INT64 = ir.DataType.INT64


@register(aten._unique2.default)
def aten_unique2(
    op: Builder,
    self: Value,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> list[Value]:
    """Sorts even if that is not asked for, as torch does on the CPU."""
    values, inverse, counts = _find_unique(op, op.Reshape(self, [-1]))
    return [
        values,
        reshape(op, inverse, op.all_sizes(self)) if return_inverse else make_empty_result(op),
        counts if return_counts else make_empty_result(op),
    ]


@register(aten._unique.default)
def aten_unique(
    op: Builder, self: Value, sorted: bool = True, return_inverse: bool = False
) -> list[Value]:
    return aten_unique2(op, self, sorted, return_inverse)[:2]


def _find_unique(op: Builder, flat: Value) -> tuple[Value, Value, Value]:
    """Returns the distinct elements in order, the inverse positions, and the counts.

    No NaN equals another one, but ONNX Runtime's Unique does not respect that.
    """
    if not dtypes.is_floating(flat.dtype):
        values, _, inverse, counts = op.Unique(flat, sorted=1, _outputs=4)
        return (
            annotate_shape(values, [None]),
            annotate_shape(inverse, flat.shape or ()),
            annotate_shape(counts, [None]),
        )
    values, positions = sort_along_axis(op, flat, 0)
    starts = mark_run_starts(op, values, 0)
    # positions are a permutation, so that every element of the first operand is overwritten
    inverse = op.ScatterElements(positions, positions, _number_runs(op, starts), axis=0)
    return op.Compress(values, starts, axis=0), inverse, _measure_runs(op, starts)


def _number_runs(op: Builder, starts: Value) -> Value:
    """Returns the number of the run that each element belongs to."""
    return op.Sub(op.CumSum(op.Cast(starts, to=INT64), 0), 1)


def _measure_runs(op: Builder, starts: Value) -> Value:
    first = annotate_shape(op.Gather(op.NonZero(starts), 0, axis=0), [None])
    after = op.Concat(
        slice_axis(op, first, 0, 1, INT64_MAX), op.sizes([op.size(starts, 0)]), axis=0
    )
    # no elements: no runs, and no end either
    return op.Sub(op.Slice(after, [0], op.Shape(first), [0]), first)


@register(aten.unique_consecutive.default)
def aten_unique_consecutive(
    op: Builder,
    self: Value,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> list[Value]:
    """Keeps one of each run of equal elements, or of equal slices along an axis."""
    if dim is not None and op.rank(self) and op.result[0].dim() != op.rank(self):
        raise TranslationError(
            f"torch.export records a result of {op.result[0].dim()} dimensions for "
            f"unique_consecutive of a tensor of {op.rank(self)} along dim {dim}; count the "
            f"dimension from the front: dim={op.axis(self, dim)}",
            code="OA404",
        )
    if dim is None or op.rank(self) == 0:
        flat = op.Reshape(self, [-1])
        starts = mark_run_starts(op, flat, 0)
        values = op.Compress(flat, starts, axis=0)
    else:
        starts = _mark_slice_starts(op, self, op.axis(self, dim))
        values = op.Compress(self, starts, axis=op.axis(self, dim))
    inverse = make_empty_result(op)
    if return_inverse:
        inverse = _number_runs(op, starts)
        inverse = reshape(op, inverse, op.all_sizes(self)) if dim is None else inverse
    return [values, inverse, _measure_runs(op, starts) if return_counts else make_empty_result(op)]


def _mark_slice_starts(op: Builder, value: Value, axis: int) -> Value:
    """True where a slice along an axis differs from the one before it in any element."""
    first = move_axis(op, value, axis, 0)
    sizes = op.all_sizes(first)
    rows = reshape(op, first, [sizes[0], product(op, sizes[1:])])
    annotate_shape(rows, [None, None])
    before, after = slice_axis(op, rows, 0, 0, -1), slice_axis(op, rows, 0, 1, INT64_MAX)
    differs = op.Cast(op.Not(op.Equal(after, before)), to=INT64)
    some = op.Greater(op.ReduceSum(differs, [1], keepdims=0), 0)
    starts = op.Concat(op.constant([True]), some, axis=0)
    starts = op.Slice(starts, [0], op.sizes(sizes[:1]), [0])
    starts.shape = ir.Shape([value.shape[axis] if value.shape is not None else None])
    return starts


@register(aten.unique_dim.default)
def aten_unique_dim(
    op: Builder,
    self: Value,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> list[Value]:
    """Returns the distinct slices along an axis in lexicographic order.

    Torch returns positions and counts even if they are not asked for.
    """
    if op.rank(self) == 0:
        values, inverse, counts = _find_unique(op, op.Reshape(self, [1]))
        values = op.Reshape(values, op.constant([], INT64))
    else:
        axis = op.axis(self, dim)
        values, _, inverse, counts = op.Unique(self, sorted=1, axis=axis, _outputs=4)
    return [values, inverse, counts]


LIMITS[aten.unique_consecutive.default] = (
    "programs that torch.export has captured along dim=-1 and that compute with the result have "
    "other sizes there: an error says so; models do not have this limit"
)
LIMITS[aten.unique_dim.default] = "slices that hold NaN count as equal"
