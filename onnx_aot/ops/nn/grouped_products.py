"""Products of groups of rows with one matrix per group, as in mixtures of experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.errors import ConversionError
from onnx_aot.ops.core.creation import make_full
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.torch_compat import aten

__all__ = ["multiply_groups"]

Value = ir.Value
INT64 = ir.DataType.INT64


def multiply_groups(op: Builder, rows: Value, weight: Value, ends: Value) -> Value:
    """Stacks ``rows[ends[i - 1]:ends[i]] @ weight[i]`` of all groups into [S, N].

    Args:
        op: The builder.
        rows: Rows of all groups, [S, K].
        weight: One matrix per group, [groups, K, N].
        ends: End of each group's rows, [groups]. Rows after the last end give zeros.
    """
    ends = op.cast(ends, INT64)
    starts = op.Concat(op.constant([0]), op.Slice(ends, [0], [-1], [0]), axis=0)
    count = op.sizes([op.size(rows, 0)])

    def step(group: Value, total: Value) -> Sequence[Value]:
        place = op.Unsqueeze(group, [0])
        start, end = op.Gather(starts, place), op.Gather(ends, place)
        product = op.MatMul(op.Slice(rows, start, end, [0]), op.Gather(weight, group))
        pads = op.Concat(start, [0], op.Sub(count, end), [0], axis=0)
        return [op.Add(total, op.Pad(product, pads))]

    assert rows.dtype is not None
    zeros = make_full(op, [op.size(rows, 0), op.size(weight, 2)], 0, rows.dtype)
    return op.loop(op.size(weight, 0), [zeros], step)[0]


@register(aten._grouped_mm.default)
def aten__grouped_mm(
    op: Builder,
    self: Value,
    mat2: Value,
    offs: Value | None = None,
    bias: Value | None = None,
    out_dtype: Any = None,
) -> Value:
    """Emits a Loop over the groups; without groups, a batched product."""
    if offs is None and op.rank(self) == op.rank(mat2) == 3:
        product = op.MatMul(self, mat2)
    elif offs is not None and (op.rank(self), op.rank(mat2)) == (2, 3):
        product = multiply_groups(op, self, mat2, offs)
    else:
        raise ConversionError(
            f"grouped_mm of tensors with {op.rank(self)} and {op.rank(mat2)} dimensions; rows in "
            "groups with a matrix each, [S, K] and [groups, K, N], and batches are exported. "
            "Multiply the groups one by one",
            code="OA404",
        )
    product = op.cast(product, op.result_dtype)
    return product if bias is None else op.Add(product, bias)


LIMITS[aten._grouped_mm.default] = (
    "rows in groups, and batches; rows behind the last group, which PyTorch leaves undefined, are 0"
)
