"""Fractional max pooling: windows of one size whose starts are pseudo-random.

Graham, "Fractional Max-Pooling", 2014. The random numbers are an argument of the operator.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.ops.core.movement import reshape
from onnx_aot.ops.core.size_math import product, subtract_sizes
from onnx_aot.ops.nn.conv_arguments import apply_batched
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value
INT64 = ir.DataType.INT64


@register(aten.fractional_max_pool2d.default)
def aten_fractional_max_pool2d(
    op: Builder,
    self: Value,
    kernel_size: Sequence[int],
    output_size: Sequence[int],
    random_samples: Value,
) -> list[Value]:
    """The samples are for the columns first, then for the rows."""
    samples = _split_samples(op, self, random_samples, (1, 0))
    return apply_batched(
        op, self, 2, lambda x: _pool_windows(op, x, kernel_size, output_size, samples)
    )


@register(aten.fractional_max_pool3d.default)
def aten_fractional_max_pool3d(
    op: Builder,
    self: Value,
    kernel_size: Sequence[int],
    output_size: Sequence[int],
    random_samples: Value,
) -> list[Value]:
    samples = _split_samples(op, self, random_samples, (0, 1, 2))
    return apply_batched(
        op, self, 3, lambda x: _pool_windows(op, x, kernel_size, output_size, samples)
    )


def _split_samples(op: Builder, image: Value, samples: Value, order: Sequence[int]) -> list[Value]:
    """Samples per axis, ``[N, C]``; an image without a batch uses those of the first entry."""
    if op.rank(image) == len(order) + 1:
        samples = op.Slice(samples, [0], [1], [0])
    return [op.Gather(samples, index, axis=2) for index in order]


def _pool_windows(
    op: Builder, value: Value, kernel: Sequence[int], wanted: Sequence[int], samples: list[Value]
) -> list[Value]:
    """Maximum of each window and its position in its channel."""
    batch, channels, *sizes = op.all_sizes(value)
    spatial = len(sizes)
    places: Value | None = None
    for axis, (k, count, sample) in enumerate(zip(kernel, wanted, samples, strict=True)):
        starts = _compute_starts(op, sizes[axis], k, count, op.cast(sample, value.dtype))
        within = op.Add(op.Unsqueeze(starts, [-1]), op.Range(0, k, 1))
        # [N, C, windows, k] to [N, C, windows of each axis, k of each axis]
        apart = [2 + other for other in range(spatial) if other != axis]
        apart += [2 + spatial + other for other in range(spatial) if other != axis]
        along = op.Mul(op.Unsqueeze(within, apart), product(op, sizes[axis + 1 :]))
        places = along if places is None else op.Add(places, along)
    assert places is not None
    elements = reshape(op, places, [batch, channels, *wanted, _count_elements(kernel)])
    flat = reshape(op, value, [batch, channels, product(op, sizes)])
    index = reshape(
        op, places, [batch, channels, _count_elements(wanted) * _count_elements(kernel)]
    )
    windows = op.GatherElements(flat, index, axis=2)
    windows = reshape(op, windows, [batch, channels, *wanted, _count_elements(kernel)])
    where = op.ArgMax(windows, axis=spatial + 2, keepdims=1)
    found = op.GatherElements(elements, where, axis=spatial + 2)
    largest = op.reduce("ReduceMax", windows, [spatial + 2], False)
    return [largest, op.Squeeze(found, [spatial + 2])]


def _count_elements(sizes: Sequence[int]) -> int:
    return torch.Size(sizes).numel()


def _compute_starts(op: Builder, size: Size, kernel: int, count: int, sample: Value) -> Value:
    """``floor((i + u) a) - floor(u a)`` with ``a = (size - k) / (count - 1)``; the last at the end.

    Computed in the input's type, as torch does; ``[N, C, count]`` from ``[N, C]``.
    """
    dtype = sample.dtype
    end = subtract_sizes(op, size, kernel)
    last = op.Add(op.Mul(op.cast(op.Unsqueeze(sample, [2]), INT64), 0), end)
    if count == 1:
        return last
    step = op.Div(op.cast(end, dtype), op.constant(count - 1, dtype))
    order = op.cast(op.Range(0, count - 1, 1), dtype)
    drawn = op.Unsqueeze(sample, [2])
    reached = op.cast(op.Mul(op.Add(order, drawn), step), INT64)
    first = op.cast(op.Mul(drawn, step), INT64)
    return op.Concat(op.Sub(reached, first), last, axis=2)
