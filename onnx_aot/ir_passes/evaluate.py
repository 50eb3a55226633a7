"""Evaluates ONNX operators on constants with torch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes

__all__ = ["EXACT", "ROUNDED", "SEVERAL", "Evaluation"]

Attributes = Mapping[str, Any]
Tensors = Sequence[torch.Tensor]
Evaluation = Callable[[Attributes, Tensors], torch.Tensor]
"""Function of attributes by name and inputs, none of them omitted, that returns the one output."""

_FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
_INTEGERS = frozenset({torch.bool, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64})


def _cast(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    """Casts with a defined result; floating point to integers only within the latter's range."""
    to = ir.DataType(attributes["to"])
    wanted, source = dtypes.storage_dtype(to), inputs[0].dtype
    if wanted not in _FLOATS and wanted != torch.bool and not {wanted, source} <= _INTEGERS:
        if wanted not in _INTEGERS or source not in _FLOATS or to in dtypes.FOUR_BITS:
            raise NotImplementedError
        limits = torch.iinfo(wanted)
        if not bool(((inputs[0] > limits.min) & (inputs[0] < limits.max)).all()):
            raise NotImplementedError
    return _lowest_bits(inputs[0], to) if to in dtypes.FOUR_BITS else inputs[0].to(wanted)


def _cast_infinite(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    """Casts to int64 too where elements are -inf, as the logarithm of 0 in relative positions.

    They become the lowest number, on every processor; ONNX leaves open what they become.
    """
    if attributes["to"] != ir.DataType.INT64 or inputs[0].dtype not in _FLOATS:
        raise NotImplementedError
    low = torch.isneginf(inputs[0])
    numbers = _cast(attributes, [torch.where(low, 0, inputs[0])])
    return torch.where(low, torch.iinfo(torch.int64).min, numbers)


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
    if inputs[0].is_floating_point() and not attributes.get("fmod"):
        raise NotImplementedError
    if bool((inputs[1] == 0).any()):
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


def _gather_elements(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    source, indices = inputs
    axis = attributes.get("axis", 0) % source.ndim
    size = source.shape[axis]
    if bool((indices >= size).any()) or bool((indices < -size).any()):
        raise IndexError("an index is out of range")
    return source.gather(axis, torch.where(indices < 0, indices + size, indices).to(torch.int64))


def _gather_nd(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    source, indices = inputs
    depth = indices.shape[-1]
    sizes = torch.tensor(source.shape[:depth])
    if attributes.get("batch_dims", 0) or depth == 0:
        raise NotImplementedError
    if bool((indices >= sizes).any()) or bool((indices < -sizes).any()):
        raise IndexError("an index is out of range")
    return source[tuple(indices.to(torch.int64).unbind(-1))]


def _sum_up(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    if inputs[0].is_floating_point() or attributes.get("exclusive") or attributes.get("reverse"):
        raise NotImplementedError
    return torch.cumsum(inputs[0], int(inputs[1].item()), dtype=inputs[0].dtype)


def _clip(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    return torch.clamp(inputs[0], *inputs[1:])


def _tile(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    return inputs[0].repeat(inputs[1].tolist())


def _pad(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    source, pads = inputs[0], inputs[1].tolist()
    if attributes.get("mode", "constant") != "constant" or len(inputs) > 3 or min(pads) < 0:
        raise NotImplementedError
    value = inputs[2].item() if len(inputs) > 2 else 0
    begins, ends = pads[: source.ndim], pads[source.ndim :]
    widths = [n for pair in zip(reversed(begins), reversed(ends), strict=True) for n in pair]
    return torch.nn.functional.pad(source, widths, value=value)


def _split(attributes: Attributes, inputs: Tensors) -> tuple[torch.Tensor, ...]:
    """The outputs of Split, which are views."""
    axis = attributes.get("axis", 0)
    if len(inputs) > 1:
        return torch.split(inputs[0], inputs[1].tolist(), axis)
    size, parts = inputs[0].shape[axis], attributes.get("num_outputs", 0)
    if not parts:
        raise NotImplementedError
    return torch.split(inputs[0], -(-size // parts), axis)


def _conv(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    source, weight, *bias = inputs
    axes = source.ndim - 2
    pads = attributes.get("pads") or [0] * (2 * axes)
    if attributes.get("auto_pad", "NOTSET") != "NOTSET" or pads[:axes] != pads[axes:]:
        raise NotImplementedError
    result: torch.Tensor = torch.convolution(
        source,
        weight,
        bias[0] if bias else None,
        list(attributes.get("strides") or [1] * axes),
        list(pads[:axes]),
        list(attributes.get("dilations") or [1] * axes),
        transposed=False,
        output_padding=[0] * axes,
        groups=attributes.get("group", 1),
    )
    return result


def _einsum(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
    return torch.einsum(attributes["equation"], *inputs)


def _ignore_attributes(function: Callable[..., torch.Tensor]) -> Evaluation:
    """Wraps a function of the inputs alone."""
    return lambda attributes, inputs: function(*inputs)


def _join_pairwise(function: Callable[..., torch.Tensor]) -> Evaluation:
    """Wraps a function of two tensors for any number of inputs."""
    return lambda attributes, inputs: functools.reduce(function, inputs)


def _make_reduction(function: Callable[..., torch.Tensor]) -> Evaluation:
    def reduce(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
        axes = inputs[1].tolist() if len(inputs) > 1 else attributes.get("axes")
        if not axes:
            raise NotImplementedError
        keepdim = bool(attributes.get("keepdims", 1))
        return function(inputs[0], tuple(axes), keepdim=keepdim).to(inputs[0].dtype)

    return reduce


def _of_integers(evaluation: Evaluation) -> Evaluation:
    """Refuses floating point, where libraries differ in the sign of the larger of two zeros."""

    def evaluate(attributes: Attributes, inputs: Tensors) -> torch.Tensor:
        if inputs[0].is_floating_point():
            raise NotImplementedError
        return evaluation(attributes, inputs)

    return evaluate


def _take_norm(order: int) -> Evaluation:
    def norm(tensor: torch.Tensor, axes: tuple[int, ...], keepdim: bool) -> torch.Tensor:
        found: torch.Tensor = torch.linalg.vector_norm(tensor, order, axes, keepdim)
        return found

    return _make_reduction(norm)


_EXTREMES: dict[str, Evaluation] = {
    "Clip": _clip,
    "Max": _join_pairwise(torch.maximum),
    "Min": _join_pairwise(torch.minimum),
    "ReduceMax": _make_reduction(torch.amax),
    "ReduceMin": _make_reduction(torch.amin),
}

EXACT: dict[str, Evaluation] = {
    "Abs": _ignore_attributes(torch.abs),
    "Add": _ignore_attributes(torch.add),
    "And": _ignore_attributes(torch.logical_and),
    "Cast": _cast,
    "Ceil": _ignore_attributes(torch.ceil),
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "CumSum": _sum_up,
    "Div": _divide,
    "Equal": _ignore_attributes(torch.eq),
    "Expand": _expand,
    "Flatten": _flatten,
    "Floor": _ignore_attributes(torch.floor),
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Greater": _ignore_attributes(torch.gt),
    "GreaterOrEqual": _ignore_attributes(torch.ge),
    "Less": _ignore_attributes(torch.lt),
    "LessOrEqual": _ignore_attributes(torch.le),
    "Mod": _mod,
    "Mul": _ignore_attributes(torch.mul),
    "Neg": _ignore_attributes(torch.neg),
    "Not": _ignore_attributes(torch.logical_not),
    "Or": _ignore_attributes(torch.logical_or),
    "Pad": _pad,
    "Range": _range,
    "Relu": _ignore_attributes(torch.relu),
    "Reshape": _reshape,
    "Slice": _slice,
    "Sqrt": _ignore_attributes(torch.sqrt),
    "Squeeze": _squeeze,
    "Sub": _ignore_attributes(torch.sub),
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
    "Xor": _ignore_attributes(torch.logical_xor),
    **{name: _of_integers(evaluation) for name, evaluation in _EXTREMES.items()},
}
"""Operators whose result is defined bit by bit by IEEE 754 and the ONNX standard."""

ROUNDED: dict[str, Evaluation] = {
    "Cast": _cast_infinite,
    "Conv": _conv,
    "Cos": _ignore_attributes(torch.cos),
    "Einsum": _einsum,
    "Erf": _ignore_attributes(torch.erf),
    "Exp": _ignore_attributes(torch.exp),
    "Gemm": _gemm,
    "Log": _ignore_attributes(torch.log),
    "MatMul": _ignore_attributes(torch.matmul),
    "Pow": _ignore_attributes(torch.pow),
    "Reciprocal": _ignore_attributes(torch.reciprocal),
    "ReduceL1": _take_norm(1),
    "ReduceL2": _take_norm(2),
    "ReduceMean": _make_reduction(torch.mean),
    "ReduceSum": _make_reduction(torch.sum),
    "Sigmoid": _ignore_attributes(torch.sigmoid),
    "Sin": _ignore_attributes(torch.sin),
    "Tanh": _ignore_attributes(torch.tanh),
    **_EXTREMES,
}
"""Operators that libraries round differently."""

SEVERAL: dict[str, Callable[[Attributes, Tensors], tuple[torch.Tensor, ...]]] = {"Split": _split}
"""Exact operators with several outputs."""
