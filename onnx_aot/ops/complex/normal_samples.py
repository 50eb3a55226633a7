"""Normally distributed complex numbers, each part of which has half of the variance."""

from __future__ import annotations

import math
from typing import Any

from onnx_aot.builder.builder import Builder
from onnx_aot.ops.complex.pairs import (
    Complex,
    make_recorded_part,
    parts,
    real_function,
    register_complex,
)
from onnx_aot.torch_compat import aten

__all__: list[str] = []


def _draw_parts(op: Builder, target: Any, real: tuple[Any, ...], imag: tuple[Any, ...]) -> Complex:
    recorded = op.result
    op.result = make_recorded_part(recorded)
    try:
        draw = real_function(target)
        return Complex(draw(op, *real), draw(op, *imag))
    finally:
        op.result = recorded


def _halve_variance(op: Builder, value: Complex) -> Complex:
    factor = op.constant(math.sqrt(0.5), value.real.dtype)
    return Complex(op.Mul(value.real, factor), op.Mul(value.imag, factor))


@register_complex(aten.randn.default)
def complex_randn(op: Builder, size: Any, dtype: Any = None) -> Complex:
    return _halve_variance(op, _draw_parts(op, aten.randn.default, (size, None), (size, None)))


@register_complex(aten.randn_like.default)
def complex_randn_like(op: Builder, self: Any, dtype: Any = None) -> Any:
    """Draws complex numbers like real ones, real ones like complex ones, or both complex."""
    target = aten.randn_like.default
    real, imag = parts(op, self)
    imag = real if imag is None else imag
    if not op.result.dtype.is_complex:
        return real_function(target)(op, real, None)
    return _halve_variance(op, _draw_parts(op, target, (real, None), (imag, None)))


@register_complex(aten.normal_functional.default)
def complex_normal(op: Builder, self: Complex, mean: float = 0.0, std: float = 1.0) -> Complex:
    """The mean applies to the real part."""
    share = std * math.sqrt(0.5)
    target = aten.normal_functional.default
    return _draw_parts(op, target, (self.real, mean, share), (self.imag, 0.0, share))
