"""Evaluates ONNX operators on constants with torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes

__all__ = ["EXACT", "ROUNDED", "Evaluation"]

Attributes = Mapping[str, Any]
Tensors = Sequence[torch.Tensor]
Evaluation = Callable[[Attributes, Tensors], torch.Tensor]
"""Function of attributes by name and inputs, none of them omitted, that returns the one output."""

_FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
_INTEGERS = frozenset({torch.bool, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64})


def _cast(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    """Casts with a defined result for every number; floating point to integers is refused."""
    to = ir.DataType(attributes["to"])
    wanted, source = dtypes.storage_dtype(to), inputs[0].dtype
    if wanted not in _FLOATS and wanted != torch.bool and not {wanted, source} <= _INTEGERS:
        raise NotImplementedError
    return _lowest_bits(inputs[0], to) if to in dtypes.FOUR_BITS else inputs[0].to(wanted)


def _lowest_bits(tensor: torch.Tensor, dtype: ir.DataType) -> torch.Tensor:
    """Returns 4-bit integers, one per byte; higher bits are dropped, as for wider integers."""
    low = tensor.to(torch.uint8) & 0xF
    return ((low ^ 8).to(torch.int8) - 8) if dtype == ir.DataType.INT4 else low


def _reshape(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    sizes = inputs[1].tolist()
    if not attributes.get("allowzero", 0):
        sizes = [inputs[0].shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    return inputs[0].reshape(sizes)


def _transpose(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    order = attributes.get("perm") or tuple(reversed(range(inputs[0].ndim)))
    return inputs[0].permute(tuple(order))


def _unsqueeze(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    rank = inputs[0].ndim + inputs[1].numel()
    result = inputs[0]
    for axis in sorted(axis % rank for axis in inputs[1].tolist()):
        result = result.unsqueeze(axis)
    return result


def _squeeze(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    source = inputs[0]
    axes = inputs[1].tolist() if len(inputs) > 1 else range(source.ndim)
    chosen = {axis % max(source.ndim, 1) for axis in axes}
    kept = [size for axis, size in enumerate(source.shape) if axis not in chosen or size != 1]
    return source.reshape(kept)


def _flatten(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    axis = attributes.get("axis", 1) % (inputs[0].ndim + 1)
    return inputs[0].reshape(inputs[0].shape[:axis].numel(), -1)


def _gather(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    source, indices = inputs
    axis = attributes.get("axis", 0) % source.ndim
    flat = indices.reshape(-1).to(torch.int64)
    if bool((flat >= source.shape[axis]).any()) or bool((flat < -source.shape[axis]).any()):
        raise IndexError("an index is out of range")
    taken = source.index_select(axis, torch.where(flat < 0, flat + source.shape[axis], flat))
    return taken.reshape([*source.shape[:axis], *indices.shape, *source.shape[axis + 1 :]])


def _slice(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    source, starts, ends = inputs[0], inputs[1].tolist(), inputs[2].tolist()
    axes = inputs[3].tolist() if len(inputs) > 3 else range(len(starts))
    steps = inputs[4].tolist() if len(inputs) > 4 else [1] * len(starts)
    cut = [slice(None)] * source.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step <= 0:
            raise NotImplementedError
        cut[axis] = slice(start, end, step)
    return source[tuple(cut)]


def _expand(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    wide = torch.broadcast_shapes(inputs[0].shape, tuple(inputs[1].tolist()))  # type: ignore[no-untyped-call]
    return inputs[0].expand(wide)


def _constant_of_shape(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    value = attributes.get("value")
    filled = torch.zeros(1) if value is None else torch.from_numpy(value.numpy().copy())
    return filled.expand(inputs[0].tolist())


def _range(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    start, limit, delta = (tensor.item() for tensor in inputs)
    if inputs[0].dtype not in (torch.int32, torch.int64):
        raise NotImplementedError
    return torch.tensor(range(int(start), int(limit), int(delta)), dtype=inputs[0].dtype)


def _divide(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    if inputs[0].is_floating_point():
        return inputs[0] / inputs[1]
    if bool((inputs[1] == 0).any()):
        raise ZeroDivisionError
    return torch.div(inputs[0], inputs[1], rounding_mode="trunc")


def _mod(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    if inputs[0].is_floating_point() or bool((inputs[1] == 0).any()):
        raise NotImplementedError
    return torch.fmod(*inputs) if attributes.get("fmod") else torch.remainder(*inputs)


def _where(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    return torch.where(inputs[0], inputs[1], inputs[2])


def _concat(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    return torch.cat(list(inputs), attributes["axis"])


def _gemm(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    left, right = (
        tensor.t() if attributes.get(name) else tensor
        for tensor, name in zip(inputs, ("transA", "transB"), strict=False)
    )
    product: torch.Tensor = (left @ right) * attributes.get("alpha", 1.0)
    return product + inputs[2] * attributes.get("beta", 1.0) if len(inputs) > 2 else product


def _ignore_attributes(function: Callable[..., torch.Tensor]) -> Evaluation:
    """Wraps a function of the inputs alone."""
    return lambda attributes, inputs: function(*inputs)


def _make_reduction(function: Callable[..., torch.Tensor]) -> Evaluation:
    def reduce(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
        axes = inputs[1].tolist() if len(inputs) > 1 else attributes.get("axes")
        if not axes:
            raise NotImplementedError
        keepdim = bool(attributes.get("keepdims", 1))
        return function(inputs[0], tuple(axes), keepdim=keepdim).to(inputs[0].dtype)

    return reduce


EXACT: dict[str, Evaluation] = {
    "Abs": _ignore_attributes(torch.abs),
    "Add": _ignore_attributes(torch.add),
    "And": _ignore_attributes(torch.logical_and),
    "Cast": _cast,
    "Ceil": _ignore_attributes(torch.ceil),
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Div": _divide,
    "Equal": _ignore_attributes(torch.eq),
    "Expand": _expand,
    "Flatten": _flatten,
    "Floor": _ignore_attributes(torch.floor),
    "Gather": _gather,
    "Greater": _ignore_attributes(torch.gt),
    "GreaterOrEqual": _ignore_attributes(torch.ge),
    "Less": _ignore_attributes(torch.lt),
    "LessOrEqual": _ignore_attributes(torch.le),
    "Mod": _mod,
    "Mul": _ignore_attributes(torch.mul),
    "Neg": _ignore_attributes(torch.neg),
    "Not": _ignore_attributes(torch.logical_not),
    "Or": _ignore_attributes(torch.logical_or),
    "Range": _range,
    "Relu": _ignore_attributes(torch.relu),
    "Reshape": _reshape,
    "Slice": _slice,
    "Sqrt": _ignore_attributes(torch.sqrt),
    "Squeeze": _squeeze,
    "Sub": _ignore_attributes(torch.sub),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
    "Xor": _ignore_attributes(torch.logical_xor),
}
"""Operators whose result is defined bit by bit by IEEE 754 and the ONNX standard."""

ROUNDED: dict[str, Evaluation] = {
    "Cos": _ignore_attributes(torch.cos),
    "Erf": _ignore_attributes(torch.erf),
    "Exp": _ignore_attributes(torch.exp),
    "Gemm": _gemm,
    "Log": _ignore_attributes(torch.log),
    "MatMul": _ignore_attributes(torch.matmul),
    "Pow": _ignore_attributes(torch.pow),
    "Reciprocal": _ignore_attributes(torch.reciprocal),
    "ReduceMean": _make_reduction(torch.mean),
    "ReduceSum": _make_reduction(torch.sum),
    "Sigmoid": _ignore_attributes(torch.sigmoid),
    "Sin": _ignore_attributes(torch.sin),
    "Tanh": _ignore_attributes(torch.tanh),
}
"""Operators that libraries round differently."""
