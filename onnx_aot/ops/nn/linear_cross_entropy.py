"""Cross entropy of a linear layer, which torch computes in chunks to save memory.

This family is imported only if a graph has these operators: they exist once
``torch.nn.functional.linear_cross_entropy`` has been called.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder
from onnx_aot.dtypes import to_onnx
from onnx_aot.ops.registry import register

__all__: list[str] = []

namespace = torch.ops.torch_nn
Value = ir.Value


@register(namespace._linear_cross_entropy_batch_chunked.default)
def torch_nn_linear_cross_entropy_batch_chunked(
    op: Builder,
    input: Value,
    linear_weight: Value,
    target: Value,
    linear_bias: Value | None,
    weight: Value | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    batch_chunk_size: int,
    acc_policy: str,
    acc_dtype: Any,
    allow_retain_graph: bool,
    compute_input_grad: bool,
    compute_linear_weight_grad: bool,
    compute_linear_bias_grad: bool,
) -> list[Value | None]:
    """Sum or mean of the losses; gradients that are not requested are empty.

    Torch refuses label smoothing.
    """
    losses, weights = _compute_losses(
        op, input, linear_weight, target, linear_bias, weight, ignore_index
    )
    loss = op.reduce("ReduceSum", losses, None, False)
    if reduction == "mean":
        loss = op.Div(loss, op.reduce("ReduceSum", weights, None, False))
    results: list[Value | None] = [op.cast(loss, input.dtype)]
    asked = (compute_input_grad, compute_linear_weight_grad, compute_linear_bias_grad)
    for gradient, recorded in zip(asked, op.result[1:], strict=True):
        empty = torch.empty([0] * recorded.dim())
        results.append(None if gradient else op.constant(empty, to_onnx(recorded.dtype)))
    return results


@register(namespace._linear_cross_entropy_batch_chunked_no_reduction.default)
def torch_nn_linear_cross_entropy_batch_chunked_no_reduction(
    op: Builder,
    input: Value,
    linear_weight: Value,
    target: Value,
    linear_bias: Value | None,
    weight: Value | None,
    ignore_index: int,
    batch_chunk_size: int,
    acc_policy: str,
    acc_dtype: Any,
) -> Value:
    losses, _ = _compute_losses(op, input, linear_weight, target, linear_bias, weight, ignore_index)
    return op.cast(losses, input.dtype)


def _compute_losses(
    op: Builder,
    input: Value,
    linear_weight: Value,
    target: Value,
    linear_bias: Value | None,
    weight: Value | None,
    ignore_index: int,
) -> tuple[Value, Value]:
    """Loss of each sample and the weight of its class; both 0 where the sample is ignored.

    The loss is ``w[t] nll[t]``, computed in float32 at least.
    """
    wide = ir.DataType.DOUBLE if input.dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT
    logits = op.MatMul(
        op.cast(input, wide), op.Transpose(op.cast(linear_weight, wide), perm=[1, 0])
    )
    if linear_bias is not None:
        logits = op.Add(logits, op.cast(linear_bias, wide))
    negative = op.Neg(op.LogSoftmax(logits, axis=1))
    ignored = op.Equal(target, ignore_index)
    label = op.Where(ignored, 0, target)
    own = op.Squeeze(op.GatherElements(negative, op.Unsqueeze(label, [1]), axis=1), [1])
    if weight is None:
        weights = op.Expand(op.constant(1.0, wide), op.Shape(label))
    else:
        weights = op.Gather(op.cast(weight, wide), label, axis=0)
    losses = op.Mul(own, weights)
    return op.Where(ignored, 0.0, losses), op.Where(ignored, 0.0, weights)
