"""Gradients of pooling and of padding by replication, by their inputs.

Each output of a mean is a sum of inputs with weights, axis by axis. The gradient is the product
with the transposed weights, ``[outputs, inputs]``.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.ops.core.creation import make_full
from onnx_aot.ops.core.movement import reshape
from onnx_aot.ops.core.scatter import aten_scatter_add
from onnx_aot.ops.core.size_math import add_sizes, product
from onnx_aot.ops.nn.conv_arguments import apply_in_float, multiply_axis, per_axis
from onnx_aot.ops.nn.pooling import window_weights
from onnx_aot.ops.registry import register
from onnx_aot.torch_compat import OpOverload, aten

__all__: list[str] = []

Value = ir.Value
Ints = Sequence[int]


def _register_avg_pool(spatial: int, target: OpOverload) -> None:
    def aten_avg_pool_backward(
        op: Builder,
        grad_output: Value,
        self: Value,
        kernel_size: Ints,
        stride: Ints,
        padding: Ints,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Value:
        kernels = per_axis(kernel_size, spatial)
        steps, pads = per_axis(stride or kernels, spatial), per_axis(padding, spatial)
        first = op.rank(self) - spatial

        def spread(value: Value) -> Value:
            for place, (kernel, step, pad) in enumerate(zip(kernels, steps, pads, strict=True)):
                size, count = (op.size(each, first + place) for each in (self, grad_output))
                start = op.Sub(op.Mul(op.Range(0, count, 1), step), pad)
                start = op.Unsqueeze(start, [1])
                end = op.Add(start, kernel)
                weights = op.cast(_mark_between(op, start, end, size), value.dtype)
                if divisor_override is None:
                    if count_include_pad:
                        end = op.Min(end, add_sizes(op, size, pad))
                    else:
                        start, end = op.Max(start, 0), op.Min(end, size)
                    length = op.Max(op.Sub(end, start), 1)
                    weights = op.Div(weights, op.cast(length, value.dtype))
                value = _multiply(op, value, first + place, weights, (count, size))
            return value if divisor_override is None else op.Div(value, float(divisor_override))

        return apply_in_float(op, grad_output, spread)

    register(target)(aten_avg_pool_backward)


def _mark_between(op: Builder, start: Value, end: Value, size: Size) -> Value:
    """``[windows, size]``: true at the positions of each window."""
    position = op.Range(0, size, 1)
    inside: Value = op.And(op.GreaterOrEqual(position, start), op.Less(position, end))
    return inside


def _multiply(
    op: Builder, value: Value, axis: int, weights: Value, sizes: tuple[Size, Size]
) -> Value:
    """Multiplies an axis by weights of these sizes."""
    weights.shape = ir.Shape([size if isinstance(size, int) else None for size in sizes])
    return multiply_axis(op, value, axis, weights)


_register_avg_pool(2, aten.avg_pool2d_backward.default)
_register_avg_pool(3, aten.avg_pool3d_backward.default)


def _register_adaptive_avg_pool(spatial: int, target: OpOverload) -> None:
    def aten_adaptive_avg_pool_backward(op: Builder, grad_output: Value, self: Value) -> Value:
        first = op.rank(self) - spatial

        def spread(value: Value) -> Value:
            for axis in range(first, first + spatial):
                size, count = op.size(self, axis), op.size(grad_output, axis)
                weights = op.Transpose(window_weights(op, size, count, value.dtype), perm=[1, 0])
                value = _multiply(op, value, axis, weights, (count, size))
            return value

        return apply_in_float(op, grad_output, spread)

    register(target)(aten_adaptive_avg_pool_backward)


_register_adaptive_avg_pool(2, aten._adaptive_avg_pool2d_backward.default)
_register_adaptive_avg_pool(3, aten._adaptive_avg_pool3d_backward.default)


def _register_adaptive_max_pool(spatial: int, target: OpOverload) -> None:
    def aten_adaptive_max_pool_backward(
        op: Builder, grad_output: Value, self: Value, indices: Value
    ) -> Value:
        """Adds each gradient to the element that was the largest of its window."""
        sizes, windows = op.all_sizes(self), op.all_sizes(grad_output)
        rest = sizes[:-spatial]
        zeros = make_full(op, [*rest, product(op, sizes[-spatial:])], 0, op.result_dtype)
        flat = [*rest, product(op, windows[-spatial:])]
        grads, places = (reshape(op, value, flat) for value in (grad_output, indices))
        return reshape(op, aten_scatter_add(op, zeros, len(rest), places, grads), sizes)

    register(target)(aten_adaptive_max_pool_backward)


_register_adaptive_max_pool(2, aten.adaptive_max_pool2d_backward.default)
_register_adaptive_max_pool(3, aten.adaptive_max_pool3d_backward.default)


@register(
    aten.replication_pad1d_backward.default,
    aten.replication_pad2d_backward.default,
    aten.replication_pad3d_backward.default,
)
def aten_replication_pad_backward(
    op: Builder, grad_output: Value, self: Value, padding: Sequence[Size]
) -> Value:
    """Adds the gradients of the padding to those of the edges."""
    last = op.rank(self) - 1

    def gather(value: Value) -> Value:
        for number, before in enumerate(padding[::2]):
            axis = last - number
            size, count = op.size(self, axis), op.size(grad_output, axis)
            place = op.Sub(op.Range(0, count, 1), before)
            place = op.Max(op.Min(place, add_sizes(op, size, -1)), 0)
            hit = op.Equal(op.Unsqueeze(place, [1]), op.Range(0, size, 1))
            weights = op.cast(hit, value.dtype)
            value = _multiply(op, value, axis, weights, (count, size))
        return value

    return apply_in_float(op, grad_output, gather)
