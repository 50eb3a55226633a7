"""Activation functions (``torch.nn.functional``), each one ONNX operator where there is one."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.ops.builder import Builder
from onnx_aot.ops.registry import register

__all__: list[str] = []

aten = torch.ops.aten
Value = ir.Value


@register(aten.gelu.default)
def aten_gelu(op: Builder, self: Value, approximate: str = "none") -> Value:
    """``x Phi(x)``; before Gelu (opset 20) written out with Erf or Tanh."""
    if op.opset >= 20:
        return op.Gelu(self, approximate=approximate)
    if approximate == "tanh":
        cubic = op.Add(self, op.Mul(op.Mul(op.Mul(self, self), self), 0.044715))
        inner = op.Tanh(op.Mul(cubic, math.sqrt(2.0 / math.pi)))
    else:
        inner = op.Erf(op.Div(self, math.sqrt(2.0)))
    return op.Mul(op.Mul(self, op.Add(inner, 1.0)), 0.5)


@register(aten.silu.default)
def aten_silu(op: Builder, self: Value) -> Value:
    return op.Mul(self, op.Sigmoid(self))


@register(aten.mish.default)
def aten_mish(op: Builder, self: Value) -> Value:
    """``x tanh(softplus(x))``; Mish exists since opset 18."""
    return op.Mish(self) if op.opset >= 18 else op.Mul(self, op.Tanh(op.Softplus(self)))


@register(aten.hardswish.default)
def aten_hardswish(op: Builder, self: Value) -> Value:
    return op.HardSwish(self)


@register(aten.hardsigmoid.default)
def aten_hardsigmoid(op: Builder, self: Value) -> Value:
    return op.HardSigmoid(self, alpha=1.0 / 6.0, beta=0.5)


@register(aten.hardtanh.default)
def aten_hardtanh(op: Builder, self: Value, min_val: Any = -1, max_val: Any = 1) -> Value:
    return op.Clip(self, min_val, max_val)


@register(aten.relu6.default)
def aten_relu6(op: Builder, self: Value) -> Value:
    return op.Clip(self, 0, 6)


@register(aten.leaky_relu.default)
def aten_leaky_relu(op: Builder, self: Value, negative_slope: Any = 0.01) -> Value:
    return op.LeakyRelu(self, alpha=negative_slope)


@register(aten.elu.default)
def aten_elu(
    op: Builder, self: Value, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1
) -> Value:
    if input_scale != 1:
        negative = op.Elu(op.Mul(self, input_scale), alpha=alpha)
        value = op.Where(op.Greater(self, 0.0), self, negative)
    else:
        value = op.Elu(self, alpha=alpha)
    return value if scale == 1 else op.Mul(value, scale)


@register(aten.selu.default)
def aten_selu(op: Builder, self: Value) -> Value:
    """With torch's constants, which have more digits than ONNX's defaults."""
    return op.Selu(self, alpha=1.6732632423543772, gamma=1.0507009873554805)


@register(aten.celu.default)
def aten_celu(op: Builder, self: Value, alpha: Any = 1.0) -> Value:
    return op.Where(
        op.Greater(self, 0.0),
        self,
        op.Mul(op.Sub(op.Exp(op.Div(self, alpha)), 1.0), alpha),
    )


@register(aten.softplus.default)
def aten_softplus(op: Builder, self: Value, beta: Any = 1, threshold: Any = 20) -> Value:
    scaled = self if beta == 1 else op.Mul(self, beta)
    soft = op.Softplus(scaled)
    if beta != 1:
        soft = op.Div(soft, beta)
    return op.Where(op.Greater(scaled, threshold), self, soft)


@register(aten.log_sigmoid.default)
def aten_log_sigmoid(op: Builder, self: Value) -> Value:
    return op.Neg(op.Softplus(op.Neg(self)))


@register(aten.prelu.default)
def aten_prelu(op: Builder, self: Value, weight: Value) -> Value:
    """One slope, or one per channel, which is axis 1."""
    rank = op.rank(self)
    if rank > 2:
        weight = op.Reshape(weight, [-1] + [1] * (rank - 2))
    return op.PRelu(self, weight)


@register(aten.threshold.default)
def aten_threshold(op: Builder, self: Value, threshold: Any, value: Any) -> Value:
    return op.Where(op.Greater(self, threshold), self, value)


@register(aten.glu.default)
def aten_glu(op: Builder, self: Value, dim: int = -1) -> Value:
    left, right = (
        op.Split(self, num_outputs=2, axis=dim, _outputs=2)
        if op.opset >= 18
        else (op.Split(self, axis=dim, _outputs=2))
    )
    return op.Mul(left, op.Sigmoid(right))


@register(aten.softmax.int, aten._softmax.default)
def aten_softmax(
    op: Builder, self: Value, dim: int, dtype: Any = None, half_to_float: bool = False
) -> Value:
    return _normalized(op, "Softmax", self, dim)


@register(aten.log_softmax.int, aten._log_softmax.default)
def aten_log_softmax(
    op: Builder, self: Value, dim: int, dtype: Any = None, half_to_float: bool = False
) -> Value:
    return _normalized(op, "LogSoftmax", self, dim)


def _normalized(op: Builder, name: str, value: Value, dim: int) -> Value:
    value = op.cast(value, op.result_dtype)
    if op.rank(value) == 0:
        whole = op.call_op(name, [op.Unsqueeze(value, [0])], {"axis": 0})
        return op.Squeeze(whole, [0])
    return op.call_op(name, [value], {"axis": dim})
