"""Source pixels of a resized axis: torch's coordinates, as indices and weights.

The formulas are written once, for static sizes (the result is a constant) and for sizes that the
graph computes.
"""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.ops.core.size_math import add_sizes

__all__ = ["Factor", "index_of_nearest", "weights_of_linear", "weights_of_window"]

Value = ir.Value
FLOAT, DOUBLE, INT64 = ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT64
Factor = float | Value | None
"""Number of new pixels for an old one; None if it follows from the sizes."""


class _TorchOperators:
    """Operators that the formulas use, implemented on torch tensors."""

    Abs = staticmethod(torch.abs)
    Add = staticmethod(lambda a, b: a + b)
    And = staticmethod(torch.logical_and)
    Div = staticmethod(lambda a, b: a / b)
    Equal = staticmethod(lambda a, b: a == b)
    Floor = staticmethod(torch.floor)
    GreaterOrEqual = staticmethod(lambda a, b: a >= b)
    Less = staticmethod(lambda a, b: a < b)
    Mul = staticmethod(lambda a, b: a * b)
    Sin = staticmethod(torch.sin)
    Sub = staticmethod(lambda a, b: a - b)
    Where = staticmethod(torch.where)

    @staticmethod
    def Max(a: Any, b: Any) -> Any:  # noqa: N802 - named as the operator
        """Returns the larger of each pair."""
        return torch.maximum(torch.as_tensor(a), torch.as_tensor(b, dtype=torch.as_tensor(a).dtype))

    @staticmethod
    def Min(a: Any, b: Any) -> Any:  # noqa: N802
        """Returns the smaller of each pair."""
        return torch.minimum(torch.as_tensor(a), torch.as_tensor(b, dtype=torch.as_tensor(a).dtype))


def _make_operands(
    op: Builder, before: Size, after: Size, factor: Factor, dtype: ir.DataType
) -> tuple[Any, ...]:
    """Operators, both sizes, the old positions as a column and the new ones as a row."""
    if isinstance(before, int) and isinstance(after, int) and not isinstance(factor, Value):
        kind = torch.float32 if dtype == FLOAT else torch.float64
        sizes = (torch.tensor(before, dtype=kind), torch.tensor(after, dtype=kind))
        ranges = (torch.arange(before, dtype=kind)[:, None], torch.arange(after, dtype=kind))
        return (_TorchOperators, *sizes, *ranges)
    column = op.Unsqueeze(op.cast(op.Range(0, before, 1), dtype), [1])
    row = op.cast(op.Range(0, after, 1), dtype)
    return (op, op.cast(before, dtype), op.cast(after, dtype), column, row)


def _make_step(do: Any, size: Any, wanted: Any, factor: Factor, dtype: ir.DataType) -> Any:
    """Distance of two new pixels in old ones."""
    if factor is None:
        return do.Div(size, wanted)
    if do is _TorchOperators:
        assert isinstance(factor, (int, float))
        return torch.tensor(1.0 / factor, dtype=size.dtype)
    return do.cast(do.Div(do.constant(1.0, DOUBLE), do.cast(factor, DOUBLE)), dtype)


def _convert_to_value(op: Builder, value: Any, dtype: ir.DataType) -> Value:
    return op.constant(value, dtype) if isinstance(value, torch.Tensor) else op.cast(value, dtype)


def index_of_nearest(op: Builder, before: Size, after: Size, factor: Factor, exact: bool) -> Value:
    """``floor(i s)``, or ``floor((i + 0.5) s)`` if exact, computed in float32 as in torch."""
    is_same = isinstance(before, int) and before == after
    if factor is None and (is_same or before is after):
        return op.Range(0, after, 1)
    do, size, wanted, _, row = _make_operands(op, before, after, factor, FLOAT)
    if exact:
        row = do.Add(row, 0.5)
    place = do.Floor(do.Mul(row, _make_step(do, size, wanted, factor, FLOAT)))
    index = _convert_to_value(op, place, INT64)
    return op.Min(index, add_sizes(op, before, -1))


def _source_positions(
    do: Any, size: Any, wanted: Any, row: Any, factor: Factor, align_corners: bool
) -> Any:
    """Position of each new pixel among the old ones."""
    if align_corners:
        step = do.Div(do.Sub(size, 1.0), do.Max(do.Sub(wanted, 1.0), 1.0))
        return do.Mul(row, step)  # a single pixel is at position 0
    step = _make_step(do, size, wanted, factor, DOUBLE)
    return do.Sub(do.Mul(do.Add(row, 0.5), step), 0.5)


def weights_of_linear(
    op: Builder,
    before: Size,
    after: Size,
    factor: Factor,
    align_corners: bool,
    kind: str,
    dtype: ir.DataType,
) -> Value:
    """``[before, after]``: weights of two pixels around each position, or of four if cubic."""
    do, size, wanted, column, row = _make_operands(op, before, after, factor, DOUBLE)
    source = _source_positions(do, size, wanted, row, factor, align_corners)
    end = do.Sub(size, 1.0)
    if kind == "linear":
        source = do.Min(do.Max(source, 0.0), end)
        return _convert_to_value(
            op, do.Max(do.Sub(1.0, do.Abs(do.Sub(column, source))), 0.0), dtype
        )
    low = do.Floor(source)
    part = do.Sub(source, low)
    total: Any = None
    for step in (-1.0, 0.0, 1.0, 2.0):
        weight = _evaluate_cubic_kernel(do, do.Abs(do.Sub(part, step)), -0.75)
        place = do.Min(do.Max(do.Add(low, step), 0.0), end)
        term = do.Where(do.Equal(column, place), weight, 0.0)
        total = term if total is None else do.Add(total, term)
    return _convert_to_value(op, total, dtype)


def weights_of_window(
    op: Builder,
    before: Size,
    after: Size,
    factor: Factor,
    align_corners: bool,
    kind: str,
    dtype: ir.DataType,
) -> Value:
    """``[before, after]``: weights of a filter as wide as the old pixels that a new one covers.

    Antialiasing as in Pillow: the filter is evaluated at the centres of the pixels in the window,
    and the weights are divided by their sum.
    """
    do, size, wanted, column, row = _make_operands(op, before, after, factor, DOUBLE)
    if align_corners:
        step = do.Div(do.Sub(size, 1.0), do.Max(do.Sub(wanted, 1.0), 1.0))
        step = do.Where(do.Equal(wanted, 1.0), do.Sub(size, size), step)
    else:
        step = _make_step(do, size, wanted, factor, DOUBLE)
    width = do.Max(step, 1.0)
    reach = do.Mul(width, _REACH[kind])
    centre = do.Mul(do.Add(row, 0.5), step)
    first = do.Floor(do.Max(do.Add(do.Sub(centre, reach), 0.5), 0.0))
    last = do.Floor(do.Min(do.Add(do.Add(centre, reach), 0.5), size))
    distance = do.Abs(do.Div(do.Add(do.Sub(column, centre), 0.5), width))
    if kind == "linear":
        filtered = do.Max(do.Sub(1.0, distance), 0.0)
    elif kind == "cubic":
        filtered = _evaluate_cubic_kernel(do, distance, -0.5)
    else:
        filtered = _evaluate_lanczos_kernel(do, distance)
    inside = do.And(do.GreaterOrEqual(column, first), do.Less(column, last))
    weights = do.Where(inside, filtered, 0.0)
    if do is _TorchOperators:
        return op.constant(weights / weights.sum(0), dtype)
    total = op.reduce("ReduceSum", weights, [0], True)
    return op.cast(op.Div(weights, total), dtype)


_REACH = {"linear": 1.0, "cubic": 2.0, "lanczos": 3.0}
"""Old pixels on each side of a new one that count, by kind of filter."""


def _evaluate_lanczos_kernel(do: Any, x: Any) -> Any:
    """``sinc(x) sinc(x / 3)`` of a distance, the window with three lobes; 0 from 3 on."""
    angle = do.Mul(do.Where(do.Equal(x, 0.0), 1.0, x), math.pi)
    waves = do.Mul(do.Sin(angle), do.Sin(do.Div(angle, 3.0)))
    value = do.Div(do.Mul(waves, 3.0), do.Mul(angle, angle))
    return do.Where(do.Equal(x, 0.0), 1.0, do.Where(do.Less(x, 3.0), value, 0.0))


def _evaluate_cubic_kernel(do: Any, x: Any, a: float) -> Any:
    """Keys' cubic convolution of a distance; 0 from 2 on."""
    near = do.Add(do.Mul(do.Mul(do.Sub(do.Mul(x, a + 2), a + 3), x), x), 1.0)
    inner = do.Add(do.Mul(do.Sub(do.Mul(x, a), 5 * a), x), 8 * a)
    far = do.Sub(do.Mul(inner, x), 4 * a)
    return do.Where(do.Less(x, 1.0), near, do.Where(do.Less(x, 2.0), far, 0.0))
