"""Covariances and correlations of complex variables."""

from __future__ import annotations

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.complex.arithmetic import divide
from onnx_aot.ops.complex.pairs import Complex, register_complex
from onnx_aot.ops.linalg.covariance import (
    as_observations,
    center_observations,
    count_freedom,
    drop_axes,
    scale_correlations,
)
from onnx_aot.ops.linalg.matrices import diagonal, transpose_matrix
from onnx_aot.torch_compat import aten

__all__: list[str] = []

Value = ir.Value


def _compute_covariance(
    op: Builder,
    observations: Complex,
    correction: int = 1,
    fweights: Value | None = None,
    aweights: Value | None = None,
) -> Complex:
    """Covariance matrix ``X W X^H`` over the degrees of freedom."""
    rows = [as_observations(op, part) for part in (observations.real, observations.imag)]
    (real, weights), (imag, _) = [center_observations(op, m, fweights, aweights) for m in rows]
    freedom = count_freedom(op, rows[0], weights, aweights, correction)
    a, b = (
        transpose_matrix(op, part if weights is None else op.Mul(part, weights))
        for part in (real, imag)
    )
    return Complex(
        op.Div(op.Add(op.MatMul(real, a), op.MatMul(imag, b)), freedom),
        op.Div(op.Sub(op.MatMul(imag, a), op.MatMul(real, b)), freedom),
    )


@register_complex(aten.cov.default)
def complex_cov(
    op: Builder,
    self: Complex,
    correction: int = 1,
    fweights: Value | None = None,
    aweights: Value | None = None,
) -> Complex:
    matrix = _compute_covariance(op, self, correction, fweights, aweights)
    return Complex(drop_axes(op, matrix.real), drop_axes(op, matrix.imag))


@register_complex(aten.corrcoef.default)
def complex_corrcoef(op: Builder, self: Complex) -> Complex:
    matrix = _compute_covariance(op, self)
    if op.result.ndim == 0:
        single = Complex(drop_axes(op, matrix.real), drop_axes(op, matrix.imag))
        return divide(op, single, single)
    variances = diagonal(op, matrix.real, keepdims=True)
    return Complex(
        scale_correlations(op, matrix.real, variances),
        scale_correlations(op, matrix.imag, variances),
    )
