"""Activation functions (``torch.nn.functional``), one ONNX operator each where one exists."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.core.size_math import divide_size
from onnx_aot.ops.registry import LIMITS, register, register_names
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value

register_names({aten.hardswish.default: "HardSwish"})

SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
"""Constants of torch's selu; ONNX Selu has them by default, rounded to float32."""


@register(aten.gelu.default)
def aten_gelu(op: Builder, self: Value, approximate: str = "none") -> Value:
    """``x Phi(x)``; written out with Erf or Tanh before opset 20, which introduced Gelu."""
    if op.opset >= 20:
        return op.Gelu(self, approximate=approximate)
    if approximate == "tanh":
        cubic = op.Add(self, op.Mul(op.Mul(op.Mul(self, self), self), 0.044715))
        inner = op.Tanh(op.Mul(cubic, math.sqrt(2.0 / math.pi)))
    else:
        inner = op.Erf(op.Div(self, math.sqrt(2.0)))
    return op.Mul(op.Mul(self, 0.5), op.Add(inner, 1.0))


LIMITS[aten.gelu.default] = (
    "for infinity, approximate='none' gives infinity where eager gives NaN; float64 also gives NaN"
)


@register(aten.silu.default)
def aten_silu(op: Builder, self: Value) -> Value:
    return op.Mul(self, op.Sigmoid(self))


@register(aten.mish.default)
def aten_mish(op: Builder, self: Value) -> Value:
    """``x tanh(softplus(x))``; Mish exists since opset 18."""
    return op.Mish(self) if op.opset >= 18 else op.Mul(self, op.Tanh(op.Softplus(self)))


@register(aten.hardsigmoid.default)
def aten_hardsigmoid(op: Builder, self: Value) -> Value:
    return op.HardSigmoid(self, alpha=1.0 / 6.0, beta=0.5)


@register(aten.hardtanh.default)
def aten_hardtanh(op: Builder, self: Value, min_val: Any = -1, max_val: Any = 1) -> Value:
    if self.dtype == ir.DataType.UINT8:  # torch 2.15 accepts limits outside of the type's range
        min_val, max_val = max(min_val, 0), min(max_val, 255)
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
    """``scale x`` where x is positive, else ``scale alpha (exp(input_scale x) - 1)``."""
    if input_scale == 1:
        value = op.Elu(self, alpha=alpha)
    else:
        exponential = op.Exp(op.Mul(self, input_scale))
        value = _where_positive(op, self, op.Mul(op.Sub(exponential, 1.0), alpha))
    return value if scale == 1 else op.Mul(value, scale)


@register(aten.selu.default)
def aten_selu(op: Builder, self: Value) -> Value:
    """``scale (x if x > 0 else alpha (exp(x) - 1))``; written out in float64."""
    if self.dtype != ir.DataType.DOUBLE:
        return op.Selu(self)
    exponential = op.Exp(op.Min(self, 0.0))
    below = op.Mul(op.Sub(exponential, 1.0), SELU_ALPHA)
    return op.Mul(_where_positive(op, self, below), SELU_SCALE)


@register(aten.celu.default)
def aten_celu(op: Builder, self: Value, alpha: Any = 1.0) -> Value:
    """``x`` where positive, else ``alpha (exp(x / alpha) - 1)``; Celu supports FLOAT only."""
    if self.dtype == ir.DataType.FLOAT:
        return op.Celu(self, alpha=alpha)
    exponential = op.Exp(op.Div(self, alpha))
    return _where_positive(op, self, op.Mul(op.Sub(exponential, 1.0), alpha))


def _where_positive(op: Builder, value: Value, otherwise: Value) -> Value:
    return op.Where(op.Greater(value, 0.0), value, otherwise)


@register(aten.softplus.default)
def aten_softplus(op: Builder, self: Value, beta: Any = 1, threshold: Any = 20) -> Value:
    """``log(1 + exp(beta x)) / beta``, and ``x`` where ``beta x`` is above the threshold.

    Softplus does not overflow, and above 20 the two differ by less than 1e-10 of their value.
    """
    scaled = self if beta == 1 else op.Mul(self, beta)
    soft = op.Softplus(scaled)
    if beta != 1:
        soft = op.Div(soft, beta)
    if threshold >= 20:
        return soft
    return op.Where(op.Greater(scaled, threshold), self, soft)


@register(aten.log_sigmoid.default)
def aten_log_sigmoid(op: Builder, self: Value) -> Value:
    return op.Neg(op.Softplus(op.Neg(self)))


@register(aten.prelu.default)
def aten_prelu(op: Builder, self: Value, weight: Value) -> Value:
    """The weight is one slope, or one per channel (axis 1)."""
    rank = op.rank(self)
    if rank == 0:
        weight = op.Reshape(weight, op.sizes([]))
    elif rank > 2 and weight.shape not in ([], [1]):
        weight = op.Reshape(weight, [-1] + [1] * (rank - 2))
    return op.PRelu(self, weight)


@register(aten.softshrink.default)
def aten_softshrink(op: Builder, self: Value, lambd: Any = 0.5) -> Value:
    """``x - clamp(x, -lambd, lambd)``; Shrink would turn NaN into 0."""
    return op.Sub(self, op.Clip(self, -lambd, lambd))


@register(aten.threshold.default)
def aten_threshold(op: Builder, self: Value, threshold: Any, value: Any) -> Value:
    """Keeps NaN, which ``Where(x > threshold, x, value)`` would replace."""
    return op.Where(op.LessOrEqual(self, threshold), value, self)


@register(aten.glu.default)
def aten_glu(op: Builder, self: Value, dim: int = -1) -> Value:
    """The first half times the sigmoid of the second; before opset 18 Split halves by default.

    Split cannot halve an empty axis unless it is given the sizes of the halves.
    """
    size = op.size(self, dim)
    if isinstance(size, int) and size > 0:
        halves = 2 if op.opset >= 18 else None
        left, right = op.Split(self, num_outputs=halves, axis=dim, _outputs=2)
    else:
        half = divide_size(op, size, 2)
        left, right = op.Split(self, op.sizes([half, half]), axis=dim, _outputs=2)
    return op.Mul(left, op.Sigmoid(right))


@register(aten.softmax.int, aten._softmax.default)
def aten_softmax(
    op: Builder, self: Value, dim: int, dtype: Any = None, half_to_float: bool = False
) -> Value:
    return _emit_softmax(op, "Softmax", self, dim)


@register(aten.log_softmax.int, aten._log_softmax.default)
def aten_log_softmax(
    op: Builder, self: Value, dim: int, dtype: Any = None, half_to_float: bool = False
) -> Value:
    if op.result_dtype == ir.DataType.DOUBLE and op.rank(self) > 0:
        return _emit_log_softmax(op, op.cast(self, op.result_dtype), dim)
    return _emit_softmax(op, "LogSoftmax", self, dim)


def _emit_log_softmax(op: Builder, value: Value, dim: int) -> Value:
    """By its definition: ONNX Runtime's kernel for DOUBLE loses NaN."""
    shifted = op.Sub(value, op.reduce("ReduceMax", value, [dim], True))
    total = op.reduce("ReduceSum", op.Exp(shifted), [dim], True)
    return op.Sub(shifted, op.Log(total))


def _emit_softmax(op: Builder, name: str, value: Value, dim: int) -> Value:
    value = op.cast(value, op.result_dtype)
    if op.rank(value) == 0:
        whole = op.call_op(name, [op.Unsqueeze(value, [0])], {"axis": 0})
        return op.Squeeze(whole, [0])
    return op.call_op(name, [value], {"axis": dim})
