"""Losses whose torch decompositions write in place or lose a rank, or that have none."""

from __future__ import annotations

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.dtypes import is_floating
from onnx_aot.ops.core.reduction import compute_mean
from onnx_aot.ops.nn.conv_arguments import NARROW
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value

NONE, MEAN, SUM = 0, 1, 2


def _reduce_loss(op: Builder, loss: Value, reduction: int) -> Value:
    """Loss of each element, or their mean or sum; the mean of none is NaN."""
    if reduction == NONE or op.rank(loss) == 0:
        return loss
    if reduction == MEAN:
        return compute_mean(op, loss, None, False)
    return op.reduce("ReduceSum", loss, None, False)


@register(aten.margin_ranking_loss.default)
def aten_margin_ranking_loss(
    op: Builder,
    input1: Value,
    input2: Value,
    target: Value,
    margin: float = 0.0,
    reduction: int = MEAN,
) -> Value:
    """``max(0, -y (x1 - x2) + margin)``; integers wrap around before the margin is added."""
    difference = op.Sub(input1, input2)
    dtype = target.dtype if is_floating(target.dtype) else difference.dtype
    product = op.Mul(op.cast(difference, dtype), op.cast(target, dtype))
    negative = op.cast(op.Sub(op.cast(0, dtype), product), op.result_dtype)
    return _reduce_loss(op, op.Max(op.Add(negative, margin), 0.0), reduction)


@register(aten.hinge_embedding_loss.default)
def aten_hinge_embedding_loss(
    op: Builder, self: Value, target: Value, margin: float = 1.0, reduction: int = MEAN
) -> Value:
    """``x`` where y is 1, ``max(0, margin - x)`` where it is -1, and both added elsewhere."""
    kind = op.cast(target, ir.DataType.FLOAT)
    apart = op.Where(op.Equal(kind, 1.0), 0.0, op.Max(op.Sub(margin, self), 0.0))
    close = op.Where(op.Equal(kind, -1.0), 0.0, self)
    return _reduce_loss(op, op.Add(apart, close), reduction)


@register(aten.binary_cross_entropy_with_logits.default)
def aten_binary_cross_entropy_with_logits(
    op: Builder,
    self: Value,
    target: Value,
    weight: Value | None = None,
    pos_weight: Value | None = None,
    reduction: int = MEAN,
) -> Value:
    """``w ((1 - y) x - (1 + (p - 1) y) logsigmoid(x))``, in float32 at least.

    The logarithm is ``min(x, 0) - log(1 + exp(-|x|))``.
    """
    dtype = op.result_dtype
    wide = ir.DataType.FLOAT if dtype in NARROW else dtype
    x, y = op.cast(self, wide), op.cast(target, wide)
    log = op.Sub(op.Min(x, 0.0), op.Log(op.Add(op.Exp(op.Neg(op.Abs(x))), 1.0)))
    if pos_weight is not None:
        positive = op.Sub(op.cast(pos_weight, wide), 1.0)
        log = op.Mul(op.Add(op.Mul(positive, y), 1.0), log)
    loss = op.Sub(op.Mul(op.Sub(1.0, y), x), log)
    if weight is not None:
        loss = op.Mul(loss, op.cast(weight, wide))
    return op.cast(_reduce_loss(op, loss, reduction), dtype)


@register(aten.multilabel_margin_loss.default)
def aten_multilabel_margin_loss(
    op: Builder, self: Value, target: Value, reduction: int = MEAN
) -> Value:
    loss = aten_multilabel_margin_loss_forward(op, self, target, reduction)[0]
    is_scalar = reduction == NONE and op.result.dim() == 0
    return op.Reshape(loss, op.constant([], ir.DataType.INT64)) if is_scalar else loss


LIMITS[aten.multilabel_margin_loss.default] = (
    "for one sample without a batch and with reduction='none', what a model computes with the "
    "result is 1-D, as torch's shape function says; in eager it is 0-d"
)


@register(aten.multilabel_margin_loss_forward.default)
def aten_multilabel_margin_loss_forward(
    op: Builder, self: Value, target: Value, reduction: int
) -> list[Value]:
    """``sum over i, j of max(0, 1 - (x[y_j] - x[i])) / C``, and the mask of the target classes.

    The targets y_j of a row end before its first negative entry; i runs over the other classes.
    """
    wide = op.cast(self, ir.DataType.FLOAT) if self.dtype in NARROW else self
    first = wide if op.rank(self) > 1 else op.Reshape(wide, [1, -1])
    labels = target if op.rank(target) > 1 else op.Reshape(target, [1, -1])
    ended = op.CumSum(op.cast(op.Less(labels, 0), ir.DataType.INT64), 1)
    valid = op.Equal(ended, 0)
    classes = op.size(first, 1)
    # [N, targets, classes]
    hits = op.Equal(op.Unsqueeze(labels, [2]), op.Range(0, classes, 1))
    hits = op.cast(op.And(hits, op.Unsqueeze(valid, [2])), ir.DataType.INT32)
    chosen = op.reduce("ReduceMax", hits, [1], False)
    own = op.GatherElements(first, op.Max(labels, 0), axis=1)
    margins = op.Sub(1.0, op.Sub(op.Unsqueeze(own, [2]), op.Unsqueeze(first, [1])))
    counted = op.And(op.Unsqueeze(valid, [2]), op.Unsqueeze(op.Equal(chosen, 0), [1]))
    terms = op.Where(counted, op.Max(margins, 0.0), 0.0)
    loss = op.reduce("ReduceSum", terms, [1, 2], False)
    loss = op.Div(loss, op.cast(classes, first.dtype))
    loss = op.cast(_reduce_loss(op, loss, reduction), self.dtype)
    return [loss, op.cast(op.Reshape(chosen, op.Shape(target)), self.dtype)]
