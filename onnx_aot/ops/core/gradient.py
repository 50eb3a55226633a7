"""Translates ``torch.gradient``: derivatives from neighbouring samples.

Central differences are used inside, one-sided differences of first or second order at both ends
(B. Fornberg, "Generation of Finite Difference Formulas on Arbitrarily Spaced Grids", Mathematics of
Computation 51, 1988).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.dtypes import INT64_MAX
from onnx_aot.ops.core.movement import slice_axis
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
Spacing = float | Value
Dims = int | Sequence[int] | None


@register(aten.gradient.scalarint)
def aten_gradient(
    op: Builder, self: Value, spacing: Any = None, dim: int | None = None, edge_order: int = 1
) -> list[Value]:
    return _differentiate_axes(op, self, 1.0 if spacing is None else spacing, dim, edge_order)


@register(aten.gradient.scalararray)
def aten_gradient_scalar(
    op: Builder, self: Value, spacing: Any, dim: Dims, edge_order: int = 1
) -> list[Value]:
    return _differentiate_axes(op, self, spacing, dim, edge_order)


@register(aten.gradient.array)
def aten_gradient_array(op: Builder, self: Value, dim: Dims, edge_order: int = 1) -> list[Value]:
    return _differentiate_axes(op, self, 1.0, dim, edge_order)


@register(
    aten.gradient.scalarrayint,
    aten.gradient.scalarrayarray,
    aten.gradient.tensorarrayint,
    aten.gradient.tensorarray,
)
def aten_gradient_spacings(
    op: Builder, self: Value, spacing: Sequence[Any], dim: Dims = None, edge_order: int = 1
) -> list[Value]:
    return _differentiate_axes(op, self, spacing, dim, edge_order)


def _differentiate_axes(
    op: Builder, value: Value, spacing: Any, dim: Dims, edge_order: int
) -> list[Value]:
    """Returns one derivative per axis, with one spacing for all axes or one for each."""
    if dim is None:
        axes = list(range(op.rank(value)))
    else:
        axes = [op.axis(value, axis) for axis in ([dim] if isinstance(dim, int) else dim)]
    spacings = list(spacing) if isinstance(spacing, (list, tuple)) else [spacing] * len(axes)
    value = op.cast(value, op.result_dtype)
    return [
        _differentiate_axis(op, value, step, axis, edge_order)
        for step, axis in zip(spacings, axes, strict=True)
    ]


def _differentiate_axis(
    op: Builder, value: Value, spacing: Spacing, axis: int, order: int
) -> Value:
    first, last = [0, 1, 2][: order + 1], [-3, -2, -1][2 - order :]
    if isinstance(spacing, ir.Value):
        inner, before, after = _weights_of_coordinates(op, value, spacing, axis, order)
    else:
        half = 0.5 / spacing
        inner = [-half, None, half]
        before = [-1 / spacing, 1 / spacing] if order == 1 else [-3 * half, 4 * half, -half]
        after = [-1 / spacing, 1 / spacing] if order == 1 else [half, -4 * half, 3 * half]
    ends = [INT64_MAX if start == 2 else start - 2 for start in (0, 1, 2)]
    middle = [slice_axis(op, value, axis, start, end) for start, end in enumerate(ends)]
    parts = [_sum_weighted(op, [_gather_one(op, value, axis, i) for i in first], before)]
    parts.append(_sum_weighted(op, middle, inner))
    parts.append(_sum_weighted(op, [_gather_one(op, value, axis, i) for i in last], after))
    return op.Concat(*parts, axis=axis)


def _gather_one(op: Builder, value: Value, axis: int, index: int) -> Value:
    """Returns one element along an axis, which is kept."""
    return op.Gather(value, op.constant([index]), axis=axis)


def _sum_weighted(op: Builder, values: Sequence[Value], weights: Sequence[Spacing | None]) -> Value:
    terms = [op.Mul(v, w) for v, w in zip(values, weights, strict=True) if w is not None]
    total = terms[0]
    for term in terms[1:]:
        total = op.Add(total, term)
    return total


Weights = list[Any]


def _weights_of_coordinates(
    op: Builder, value: Value, coordinates: Value, axis: int, order: int
) -> tuple[Weights, Weights, Weights]:
    """Returns the weights of three neighbours inside, of the first ones and of the last ones."""
    around = list(range(1, op.rank(value) - axis))
    points = op.cast(coordinates, value.dtype)
    gaps = op.Sub(slice_axis(op, points, 0, 1, INT64_MAX), slice_axis(op, points, 0, 0, -1))
    if around:
        gaps = op.Unsqueeze(gaps, around)
    left, right = slice_axis(op, gaps, 0, 0, -1), slice_axis(op, gaps, 0, 1, INT64_MAX)
    both = op.Add(left, right)
    inner = [
        op.Neg(op.Div(right, op.Mul(left, both))),
        op.Div(op.Sub(right, left), op.Mul(left, right)),
        op.Div(left, op.Mul(right, both)),
    ]
    if order == 1:
        ends = [op.Reciprocal(op.Gather(gaps, op.constant([i]), axis=0)) for i in (0, -1)]
        return inner, [op.Neg(ends[0]), ends[0]], [op.Neg(ends[1]), ends[1]]
    a, b = (op.Gather(gaps, op.constant([i]), axis=0) for i in (0, 1))
    y, z = (op.Gather(gaps, op.constant([i]), axis=0) for i in (-2, -1))
    return inner, _one_sided_weights(op, a, b, 1), list(reversed(_one_sided_weights(op, z, y, -1)))


def _one_sided_weights(op: Builder, near: Value, far: Value, sign: int) -> Weights:
    """Returns second-order weights at an end, from it inwards; ``sign`` is the direction."""
    both = op.Add(near, far)
    weights = [
        op.Neg(op.Div(op.Add(near, both), op.Mul(near, both))),
        op.Div(both, op.Mul(near, far)),
        op.Neg(op.Div(near, op.Mul(far, both))),
    ]
    return weights if sign > 0 else [op.Neg(weight) for weight in weights]
