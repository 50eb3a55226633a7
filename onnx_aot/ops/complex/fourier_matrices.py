"""Fourier transforms of short known lengths, as products with matrices of cosines and sines.

ONNX Runtime's DFT of a length that is not a power of two is Bluestein's algorithm in the type of
its input: of 500 float32 signals of 400 samples it takes 15 ms and is off by 3e-4 of their standard
deviation. The product takes 0.7 ms and is off by 3e-6, and it needs no runtime that has DFT.
"""

from __future__ import annotations

import math
from typing import TypeGuard

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder, Size
from onnx_aot.ops.complex.pairs import Complex

__all__ = ["fits_matrix", "is_power_of_two", "multiply_back_to_real", "multiply_by_matrix"]

Value = ir.Value

LONGEST = 1024
"""Longest signal that is multiplied; the two matrices of a real one have 4 MiB in float32."""

LONGEST_COMPLEX = 256
"""The same for complex signals of powers of two; ONNX Runtime's DFT of longer ones is faster."""


def is_power_of_two(length: Size | None) -> bool:
    """True for 1, 2, 4, ...; False for others and for sizes that are not known."""
    return isinstance(length, int) and length > 0 and length & (length - 1) == 0


def fits_matrix(length: Size, *, is_complex: bool, has_dft: bool) -> TypeGuard[int]:
    """True if a transform of this length is faster and more exact as a product.

    An opset without DFT (``has_dft`` is False) multiplies complex signals of every length that is
    not too long for its matrices.
    """
    longest = LONGEST_COMPLEX if has_dft and is_complex and is_power_of_two(length) else LONGEST
    return isinstance(length, int) and 0 < length <= longest


def multiply_by_matrix(
    op: Builder,
    value: Value | Complex,
    axis: int,
    length: int,
    *,
    inverse: bool = False,
    onesided: bool = False,
) -> Complex:
    """Transforms a real or complex value along an axis; the inverse divides by the length.

    Args:
        op: The builder.
        value: The signals.
        axis: Non-negative axis to transform along.
        length: Its size.
        inverse: True transforms back.
        onesided: True leaves out the second half of the transform.
    """
    outputs = length // 2 + 1 if onesided else length
    phases = _phases(length, length, outputs)
    factor = 1.0 / length if inverse else 1.0
    cos, sin = phases.cos() * factor, phases.sin() * (factor if inverse else -factor)
    if not isinstance(value, Complex):
        return Complex(_multiply(op, value, axis, cos), _multiply(op, value, axis, sin))
    real = op.Sub(_multiply(op, value.real, axis, cos), _multiply(op, value.imag, axis, sin))
    imag = op.Add(_multiply(op, value.real, axis, sin), _multiply(op, value.imag, axis, cos))
    return Complex(real, imag)


def multiply_back_to_real(
    op: Builder, value: Complex, axis: int, length: int, count: int, weights: torch.Tensor
) -> Value:
    """Transforms the first half of a spectrum back to a real signal, divided by its length.

    Args:
        op: The builder.
        value: The spectrum.
        axis: Non-negative axis to transform along.
        length: Number of samples of the signal.
        count: Size of the axis, at most ``length // 2 + 1``.
        weights: For each of its elements, the number of elements that it stands for.
    """
    phases = _phases(length, count, length)
    factors = weights.to(torch.float64).unsqueeze(1) / length
    real = _multiply(op, value.real, axis, phases.cos() * factors)
    return op.Sub(real, _multiply(op, value.imag, axis, phases.sin() * factors))


def _phases(length: int, inputs: int, outputs: int) -> torch.Tensor:
    """``2 pi j k / length`` for all j and k, ``[inputs, outputs]``, between 0 and 2 pi."""
    steps = torch.outer(torch.arange(inputs), torch.arange(outputs)) % length
    return steps.to(torch.float64) * (2.0 * math.pi / length)


def _multiply(op: Builder, value: Value, axis: int, matrix: torch.Tensor) -> Value:
    """Multiplies the vectors along an axis by ``matrix``, ``[size, results]``."""
    matrix = torch.where(matrix.abs() < 1e-15, 0.0, matrix)  # sin(pi) is not zero in float64
    last = op.rank(value) - 1
    if axis == last:
        return op.MatMul(value, op.constant(matrix, value.dtype))
    if axis == last - 1:
        return op.MatMul(op.constant(matrix.T, value.dtype), value)
    order = list(range(last + 1))
    order[axis], order[last] = last, axis
    product = op.MatMul(op.Transpose(value, perm=order), op.constant(matrix, value.dtype))
    return op.Transpose(product, perm=order)
