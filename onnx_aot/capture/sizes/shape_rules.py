"""Computes shapes of common operators directly while a model is traced.

Torch finds such a shape by running the operator's decomposition: ``hardtanh`` is eight operators,
and each compares all sizes and strides. Each rule here covers the plain case, in which the shape
of the result follows from the operands' shapes alone. For other cases it returns None, and torch
computes the shape or raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from onnx_aot.capture.sizes.view_rules import VIEW_RULES, same_size
from onnx_aot.torch_compat import Results, ShapeRule, aten, symbolic_expression

__all__ = ["SHAPE_RULES"]

Tensor = torch.Tensor


def _pointwise(new: Results, self: Tensor, *args: Any, **kwargs: Any) -> Tensor | None:
    """``gelu``, ``silu`` and similar: a float tensor gives one of the same shape and dtype."""
    plain = self.is_floating_point() and new.is_contiguous(self)
    return new(self.shape, self) if plain else None


def _in_place(new: Results, self: Tensor, *args: Any, **kwargs: Any) -> Tensor | None:
    return self if self.is_floating_point() else None


def _new_like(new: Results, self: Tensor) -> Tensor | None:
    """Returns a result of the operand's shape, with the operand's order of dimensions in memory."""
    if new.is_contiguous(self):
        return new(self.shape, self)
    order = _order_in_memory(tuple(self.stride()))
    if order is None or any(_is_one(size) for size in self.shape):
        return None
    made = new([self.shape[axis] for axis in order], self)
    strides = dict(zip(order, made.stride(), strict=True))
    return new.view(made, self.shape, [strides[axis] for axis in range(len(order))])


def _order_in_memory(strides: Sequence[Any]) -> list[int] | None:
    """Axes from the largest stride to the smallest, each a multiple of the next at every size."""
    import sympy

    terms = [sympy.sympify(s) if type(s) is int else symbolic_expression(s) for s in strides]
    below = {}
    for axis, stride in enumerate(terms):
        if stride.is_positive is not True:
            return None
        others = (other for position, other in enumerate(terms) if position != axis)
        below[sum(bool((stride / other).is_integer) for other in others)] = axis
    if len(below) < len(terms):
        return None
    return [below[count] for count in reversed(range(len(terms)))]


def _negate(new: Results, self: Tensor) -> Tensor | None:
    return _new_like(new, self) if self.is_floating_point() else None


def _binary(new: Results, self: Any, other: Any, *, alpha: Any = 1) -> Tensor | None:
    """``add``, ``mul`` and similar, for tensors of one dtype, or a tensor and a number."""
    if not isinstance(self, Tensor):
        return None
    if type(other) in (int, float):
        return _pointwise(new, self)
    if not isinstance(other, Tensor) or other.dtype != self.dtype or other.device != self.device:
        return None
    sizes = _broadcast(self.shape, other.shape)
    # the strides of a dimension of size 1 depend on those of the operands
    if sizes is None or not self.is_floating_point() or any(_is_one(size) for size in sizes):
        return None
    if new.is_contiguous(self) and new.is_contiguous(other):
        return new(sizes, self)
    whole = len(sizes) == self.dim() and all(map(same_size, sizes, self.shape))
    return _new_like(new, self) if whole and not new.is_contiguous(self) else None


def _broadcast(one: Sequence[Any], other: Sequence[Any]) -> list[Any] | None:
    """Broadcasts shapes whose sizes are equal or the number 1; None for others."""
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    sizes = list(longer)
    for axis in range(-len(shorter), 0):
        if _is_one(sizes[axis]):
            sizes[axis] = shorter[axis]
        elif not _is_one(shorter[axis]) and not same_size(sizes[axis], shorter[axis]):
            return None
    return sizes


def _is_one(size: Any) -> bool:
    return type(size) is int and size == 1


def _power(new: Results, self: Tensor, exponent: Any) -> Tensor | None:
    return _pointwise(new, self) if isinstance(exponent, (int, float)) else None


def _softmax(new: Results, self: Tensor, dim: int, half_to_float: Any = False) -> Tensor | None:
    plain = half_to_float is False and -self.dim() <= dim < self.dim()
    return _pointwise(new, self) if plain else None


def _clone(new: Results, self: Tensor, *, memory_format: Any = None) -> Tensor | None:
    if memory_format is torch.contiguous_format:
        return new(self.shape, self)
    plain = memory_format in (None, torch.preserve_format) and new.is_contiguous(self)
    return new(self.shape, self) if plain else None


def _mean(
    new: Results, self: Tensor, dim: Any, keepdim: bool = False, *, dtype: Any = None
) -> Tensor | None:
    axes = {axis % self.dim() for axis in dim or () if -self.dim() <= axis < self.dim()}
    if dtype is not None or not dim or len(axes) != len(dim) or not self.is_floating_point():
        return None
    if not new.is_contiguous(self):
        return None
    sizes = [1 if axis in axes else size for axis, size in enumerate(self.shape)]
    return new([s for axis, s in enumerate(sizes) if keepdim or axis not in axes], self)


def _unfold_backward(
    new: Results, grad_in: Tensor, input_sizes: Sequence[Any], dim: int, size: int, step: int
) -> Tensor:
    """Overlapping windows are added up so by ``istft``."""
    return new(input_sizes, grad_in)


def _batch_norm(
    new: Results,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...] | None:
    if input.dim() < 2 or not new.is_contiguous(input):
        return None
    if not _are_like((weight, bias, running_mean, running_var), input, [input.shape[1]]):
        return None
    return new(input.shape, input), new((0,), input), new((0,), input)


def _layer_norm(
    new: Results,
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
    new: Results, self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor | None:
    if (mat1.dim(), mat2.dim()) != (2, 2):
        return None
    inner, columns = mat2.shape
    if type(inner) is not int or type(mat1.shape[1]) is not int or inner != mat1.shape[1]:
        return None
    if mat2.dtype != mat1.dtype or not _are_like((self,), mat1, [columns]):
        return None
    return new([mat1.shape[0], columns], mat1)


def _transform_to_real(
    new: Results, self: Tensor, dim: Sequence[int], normalization: int, last_dim_size: Any
) -> Tensor | None:
    """Fourier transform of half a spectrum.

    Torch divides the numbers of elements for it, and fails at quotients of two dynamic sizes.
    """
    sizes = list(self.shape)
    sizes[dim[-1]] = last_dim_size
    is_dynamic = any(type(size) is not int for size in sizes)
    if new.is_contiguous(self):
        order: list[int] | None = list(range(self.dim()))
    else:
        order = _order_in_memory(tuple(self.stride()))
    if not is_dynamic or order is None or self.device.type != "cpu":
        return None
    axes = [axis % self.dim() for axis in dim]
    for moved in (sorted(axes[:-1], key=order.index), axes[-1:]):  # as in the library that does it
        order = [axis for axis in order if axis not in moved] + moved
    real = self.new_empty([0], dtype=self.dtype.to_real())
    made = new([sizes[axis] for axis in order], real)
    if order == sorted(order):
        return made
    strides = dict(zip(order, made.stride(), strict=True))
    return new.view(made, sizes, [strides[axis] for axis in range(len(order))])


def _are_like(others: Sequence[Tensor | None], tensor: Tensor, shape: list[Any]) -> bool:
    """True if all tensors have this static shape, and the dtype and device of another tensor."""
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
    "cos elu erf exp gelu hardsigmoid hardswish hardtanh leaky_relu mish relu rsqrt sigmoid silu "
    "sin softplus sqrt tanh"
)
_IN_PLACE = "elu_ hardswish_ hardtanh_ leaky_relu_ relu_ silu_"

SHAPE_RULES: dict[Any, ShapeRule] = {
    **{getattr(aten, name).default: _pointwise for name in _POINTWISE.split()},
    **VIEW_RULES,
    **{getattr(aten, name).default: _in_place for name in _IN_PLACE.split()},
    aten._native_batch_norm_legit_no_training.default: _batch_norm,
    aten._fft_c2r.default: _transform_to_real,
    aten._safe_softmax.default: _softmax,
    aten._softmax.default: _softmax,
    aten.add.Tensor: _binary,
    aten.addmm.default: _addmm,
    aten.clone.default: _clone,
    aten.div.Tensor: _binary,
    aten.mean.dim: _mean,
    aten.mul.Tensor: _binary,
    aten.native_layer_norm.default: _layer_norm,
    aten.neg.default: _negate,
    aten.pow.Tensor_Scalar: _power,
    aten.sub.Tensor: _binary,
    aten.unfold_backward.default: _unfold_backward,
}
