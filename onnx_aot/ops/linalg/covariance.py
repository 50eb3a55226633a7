"""Covariances and correlations."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.linalg.matrices import diagonal, transpose_matrix
from onnx_aot.ops.registry import LIMITS, register
from onnx_aot.torch_compat import aten

__all__ = [
    "as_observations",
    "center_observations",
    "count_freedom",
    "drop_axes",
    "scale_correlations",
]

Value = ir.Value


def center_observations(
    op: Builder, matrix: Value, fweights: Value | None, aweights: Value | None
) -> tuple[Value, Value | None]:
    """Subtracts the weighted mean of each row.

    Args:
        op: The builder.
        matrix: Observations in columns, ``[variables, observations]``.
        fweights: How often each observation was made, 0-d or 1-D.
        aweights: The weight of each observation, 0-d or 1-D.

    Returns:
        The centered matrix, and the products of both weights, ``[observations]``.
    """
    given = [op.cast(w, matrix.dtype) for w in (fweights, aweights) if w is not None]
    weights = given[0] if len(given) == 1 else op.Mul(*given) if given else None
    if weights is not None and op.rank(weights) == 0:
        weights = op.Unsqueeze(weights, [0])
    weighted = matrix if weights is None else op.Mul(matrix, weights)
    total = op.reduce("ReduceSum", weighted, [-1], keepdims=True)
    count = op.size(matrix, -1) if weights is None else _sum_all(op, weights)
    return op.Sub(matrix, op.Div(total, op.cast(count, matrix.dtype))), weights


def count_freedom(
    op: Builder, matrix: Value, weights: Value | None, aweights: Value | None, correction: int
) -> Value:
    """Divisor of the sums of products: the sum of weights less the correction, at least 0.

    With ``aweights`` the correction is weighted as in ``numpy.cov``.
    """
    if weights is None:
        count = op.cast(op.size(matrix, -1), matrix.dtype)
        return op.Max(op.Sub(count, float(correction)), 0.0)
    total = _sum_all(op, weights)
    lost: Any = float(correction)
    if aweights is not None and correction:
        squares = _sum_all(op, op.Mul(weights, op.cast(aweights, matrix.dtype)))
        lost = op.Div(op.Mul(squares, lost), total)
    return op.Max(op.Sub(total, lost), 0.0)


def _sum_all(op: Builder, value: Value) -> Value:
    return op.reduce("ReduceSum", value, None, keepdims=False)


def _compute_covariance(
    op: Builder,
    observations: Value,
    correction: int = 1,
    fweights: Value | None = None,
    aweights: Value | None = None,
) -> Value:
    """Covariance matrix ``[variables, variables]`` in at least float32."""
    wide = ir.DataType.DOUBLE if op.result_dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT
    matrix = op.cast(observations, wide)
    centered, weights = center_observations(op, matrix, fweights, aweights)
    weighted = centered if weights is None else op.Mul(centered, weights)
    products = op.MatMul(centered, transpose_matrix(op, weighted))
    return op.Div(products, count_freedom(op, matrix, weights, aweights, correction))


def as_observations(op: Builder, value: Value) -> Value:
    """Tensor with at most two axes as a matrix; fewer axes are one row."""
    return op.Unsqueeze(value, list(range(2 - op.rank(value)))) if op.rank(value) < 2 else value


def drop_axes(op: Builder, matrix: Value) -> Value:
    """Drops both axes of a matrix of one variable, as its recorded result has none."""
    return op.Squeeze(matrix, [0, 1]) if op.result.ndim == 0 else matrix


@register(aten.cov.default)
def aten_cov(
    op: Builder,
    self: Value,
    correction: int = 1,
    fweights: Value | None = None,
    aweights: Value | None = None,
) -> Value:
    covariance = _compute_covariance(op, as_observations(op, self), correction, fweights, aweights)
    return op.cast(drop_axes(op, covariance), op.result_dtype)


LIMITS[aten.cov.default] = "negative weights, and weights whose sum is zero, are not refused"


def scale_correlations(op: Builder, covariance: Value, variances: Value) -> Value:
    """Divides by the standard deviations of row and column.

    Args:
        op: The builder.
        covariance: One part of the covariance matrix.
        variances: Its real diagonal as a column.
    """
    deviations = op.Sqrt(variances)
    scaled = op.Div(op.Div(covariance, deviations), transpose_matrix(op, deviations))
    # Clip turns NaN into a bound in some versions of ONNX Runtime
    return op.Where(op.IsNaN(scaled), scaled, op.Clip(scaled, -1.0, 1.0))


@register(aten.corrcoef.default)
def aten_corrcoef(op: Builder, self: Value) -> Value:
    """One variable correlates with itself by ``c / c``, which is NaN if it is constant."""
    covariance = _compute_covariance(op, as_observations(op, self))
    if op.result.ndim == 0:
        single = drop_axes(op, covariance)
        return op.cast(op.Div(single, single), op.result_dtype)
    scaled = scale_correlations(op, covariance, diagonal(op, covariance, keepdims=True))
    return op.cast(scaled, op.result_dtype)
