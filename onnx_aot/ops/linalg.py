"""Matrix products."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.ops.builder import Builder
from onnx_aot.ops.movement import swapped
from onnx_aot.ops.registry import register, register_names

__all__: list[str] = []

aten = torch.ops.aten
Value = ir.Value

register_names(
    {
        aten.mm.default: "MatMul",
        aten.bmm.default: "MatMul",
        aten.matmul.default: "MatMul",
        aten.mv.default: "MatMul",
    }
)


@register(aten.dot.default)
def aten_dot(op: Builder, self: Value, tensor: Value) -> Value:
    return op.MatMul(self, tensor)


@register(aten.linear.default)
def aten_linear(op: Builder, input: Value, weight: Value, bias: Value | None = None) -> Value:
    """Gemm for matrices, which holds the transposed weight as it is; MatMul otherwise."""
    if op.rank(input) == 2:
        return op.Gemm(input, weight, bias, transB=1)
    product = op.MatMul(input, swapped(op, weight, -2, -1))
    return product if bias is None else op.Add(product, bias)


@register(aten.addmm.default)
def aten_addmm(
    op: Builder, self: Value, mat1: Value, mat2: Value, beta: Any = 1, alpha: Any = 1
) -> Value:
    """``beta self + alpha (mat1 @ mat2)``; with beta 0 self is not read, so its NaNs vanish."""
    if beta == 0:
        return op.Gemm(mat1, mat2, alpha=alpha)
    return op.Gemm(mat1, mat2, self, alpha=alpha, beta=beta)


@register(aten.baddbmm.default)
def aten_baddbmm(
    op: Builder, self: Value, batch1: Value, batch2: Value, beta: Any = 1, alpha: Any = 1
) -> Value:
    return _plus_product(op, self, op.MatMul(batch1, batch2), beta, alpha)


@register(aten.addmv.default)
def aten_addmv(
    op: Builder, self: Value, mat: Value, vec: Value, beta: Any = 1, alpha: Any = 1
) -> Value:
    return _plus_product(op, self, op.MatMul(mat, vec), beta, alpha)


@register(aten.addbmm.default)
def aten_addbmm(
    op: Builder, self: Value, batch1: Value, batch2: Value, beta: Any = 1, alpha: Any = 1
) -> Value:
    total = op.reduce("ReduceSum", op.MatMul(batch1, batch2), [0], False)
    return _plus_product(op, self, total, beta, alpha)


def _plus_product(op: Builder, added: Value, product: Value, beta: Any, alpha: Any) -> Value:
    scaled = product if alpha == 1 else op.Mul(product, alpha)
    if beta == 0:
        return scaled
    return op.Add(added if beta == 1 else op.Mul(added, beta), scaled)


@register(aten.einsum.default)
def aten_einsum(op: Builder, equation: str, tensors: list[Value], path: Any = None) -> Value:
    return op.Einsum(*tensors, equation=equation)


@register(aten.linalg_vector_norm.default)
def aten_linalg_vector_norm(
    op: Builder,
    self: Value,
    ord: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> Value:
    value = op.cast(self, op.result_dtype)
    axes = [dim] if isinstance(dim, int) else dim
    if op.rank(value) == 0:
        return op.cast(op.Not(op.Equal(value, 0.0)), op.result_dtype) if ord == 0 else op.Abs(value)
    if ord == 2:
        return op.reduce("ReduceL2", value, axes, keepdim)
    if ord == 1:
        return op.reduce("ReduceL1", value, axes, keepdim)
    size = op.Abs(value)
    if ord == float("inf"):
        return op.reduce("ReduceMax", size, axes, keepdim)
    if ord == float("-inf"):
        return op.reduce("ReduceMin", size, axes, keepdim)
    if ord == 0:
        nonzero = op.cast(op.Not(op.Equal(value, 0.0)), op.result_dtype)
        return op.reduce("ReduceSum", nonzero, axes, keepdim)
    total = op.reduce("ReduceSum", op.Pow(size, float(ord)), axes, keepdim)
    return op.Pow(total, 1.0 / ord)


@register(aten.norm.ScalarOpt_dim, aten.norm.Scalar)
def aten_norm(
    op: Builder, self: Value, p: Any = 2, dim: Any = None, keepdim: bool = False
) -> Value:
    return aten_linalg_vector_norm(op, self, 2 if p is None else p, dim or None, keepdim)
