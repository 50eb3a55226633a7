"""Shapes of common operators, worked out at once while a model is traced.

Torch finds the shape of such a result by running the operator's decomposition: ``hardtanh`` is
eight operators, and each compares all sizes and strides. Each rule here is for the plain case, in
which the result's shape follows from an operand's alone; for any other it returns None, and torch
works it out, or raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from onnx_aot.torch_compat import ShapeRule, contiguous_like

__all__ = ["SHAPE_RULES"]

aten = torch.ops.aten
Tensor = torch.Tensor
New = Callable[[Sequence[Any], Tensor], Tensor]


def _pointwise(new: New, self: Tensor, *args: Any, **kwargs: Any) -> Tensor | None:
    """``gelu``, ``silu`` and their like: of a float tensor one of the same shape and dtype."""
    plain = self.is_floating_point() and contiguous_like(self)
    return new(self.shape, self) if plain else None


def _in_place(new: New, self: Tensor, *args: Any, **kwargs: Any) -> Tensor | None:
    return self if self.is_floating_point() else None


def _power(new: New, self: Tensor, exponent: Any) -> Tensor | None:
    return _pointwise(new, self) if isinstance(exponent, (int, float)) else None


def _softmax(new: New, self: Tensor, dim: int, half_to_float: Any = False) -> Tensor | None:
    plain = half_to_float is False and -self.dim() <= dim < self.dim()
    return _pointwise(new, self) if plain else None


def _clone(new: New, self: Tensor, *, memory_format: Any = None) -> Tensor | None:
    if memory_format is torch.contiguous_format:
        return new(self.shape, self)
    plain = memory_format in (None, torch.preserve_format) and contiguous_like(self)
    return new(self.shape, self) if plain else None


def _mean(
    new: New, self: Tensor, dim: Any, keepdim: bool = False, *, dtype: Any = None
) -> Tensor | None:
    axes = {axis % self.dim() for axis in dim or () if -self.dim() <= axis < self.dim()}
    if dtype is not None or not dim or len(axes) != len(dim) or not self.is_floating_point():
        return None
    if not contiguous_like(self):
        return None
    sizes = [1 if axis in axes else size for axis, size in enumerate(self.shape)]
    return new([s for axis, s in enumerate(sizes) if keepdim or axis not in axes], self)


def _batch_norm(
    new: New,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...] | None:
    if input.dim() < 2 or not contiguous_like(input):
        return None
    if not _are_like((weight, bias, running_mean, running_var), input, [input.shape[1]]):
        return None
    return new(input.shape, input), new((0,), input), new((0,), input)


def _layer_norm(
    new: New,
    input: Tensor,
    normalized_shape: Sequence[Any],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, ...] | None:
    sizes, axis = list(normalized_shape), input.dim() - len(normalized_shape)
    if axis < 0 or not _are_like((weight, bias), input, sizes):
        return None
    if any(type(size) is not int for size in input.shape[axis:]) or sizes != [*input.shape[axis:]]:
        return None
    means = [*input.shape[:axis], *(1 for _ in sizes)]
    return new(input.shape, input), new(means, input), new(means, input)


def _addmm(
    new: New, self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor | None:
    if (mat1.dim(), mat2.dim()) != (2, 2):
        return None
    inner, columns = mat2.shape
    if type(inner) is not int or type(mat1.shape[1]) is not int or inner != mat1.shape[1]:
        return None
    if mat2.dtype != mat1.dtype or not _are_like((self,), mat1, [columns]):
        return None
    return new([mat1.shape[0], columns], mat1)


def _are_like(others: Sequence[Tensor | None], tensor: Tensor, shape: list[Any]) -> bool:
    """Whether tensors have this shape, of known numbers, and the dtype and device of another."""
    if not tensor.is_floating_point() or any(type(size) is not int for size in shape):
        return False
    return all(
        other is None
        or (
            (other.dtype == tensor.dtype and other.device == tensor.device)
            and other.dim() == len(shape)
            and all(type(size) is int for size in other.shape)
            and list(other.shape) == shape
        )
        for other in others
    )


_POINTWISE = (
    "cos elu erf exp gelu hardsigmoid hardswish hardtanh leaky_relu mish neg relu rsqrt sigmoid "
    "silu sin softplus sqrt tanh"
)
_IN_PLACE = "elu_ hardswish_ hardtanh_ leaky_relu_ relu_ silu_"

SHAPE_RULES: dict[Any, ShapeRule] = {
    **{getattr(aten, name).default: _pointwise for name in _POINTWISE.split()},
    **{getattr(aten, name).default: _in_place for name in _IN_PLACE.split()},
    aten._native_batch_norm_legit_no_training.default: _batch_norm,
    aten._safe_softmax.default: _softmax,
    aten._softmax.default: _softmax,
    aten.addmm.default: _addmm,
    aten.clone.default: _clone,
    aten.mean.dim: _mean,
    aten.native_layer_norm.default: _layer_norm,
    aten.pow.Tensor_Scalar: _power,
}
