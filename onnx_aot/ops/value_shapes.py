"""Shapes of values inside one translation, where they follow without computing anything.

What a translation returns gets the shape that the capture recorded. Values between its nodes are
shaped here when the rule is trivial, so that translations can ask for their rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import onnx_ir as ir
import torch

__all__ = ["output_shape"]

# The output has the shape of the first input.
SAME_AS_FIRST = frozenset(
    (
        "Abs Acos Acosh Asin Asinh Atan Atanh BatchNormalization BitwiseNot Cast Ceil Celu Clip "
        "Cos Cosh CumSum DequantizeLinear Dropout Elu Erf Exp Floor Gelu HardSigmoid HardSwish "
        "Hardmax Identity InstanceNormalization IsInf IsNaN LayerNormalization LeakyRelu Log "
        "LogSoftmax Mish Neg Not QuantizeLinear Reciprocal Relu Round ScatterElements ScatterND "
        "Selu Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Tan Tanh ThresholdedRelu Trilu"
    ).split()
)

# The output has the shape that the inputs broadcast to.
BROADCAST = frozenset(
    (
        "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less "
        "LessOrEqual Max Min Mod Mul Or Pow Sub Where Xor"
    ).split()
)


Dimensions = list[int | ir.SymbolicDim]
Inputs = Sequence[ir.Value | None]
Rule = Callable[["Op", list[Any], Inputs, Mapping[str, Any]], Dimensions | None]

UNKNOWN = ir.SymbolicDim(None)


class Op(Protocol):
    """What a rule needs of the builder."""

    def literal(self, value: Any) -> torch.Tensor | None:
        """The contents of a constant, or None."""


def output_shape(
    op: Op, op_type: str, inputs: Inputs, attributes: Mapping[str, Any]
) -> ir.Shape | None:
    """The shape of an operator's first output, or None where it does not follow trivially."""
    if op_type in BROADCAST:
        return _broadcast([value.shape if value is not None else None for value in inputs])
    first = inputs[0] if inputs else None
    if first is None or first.shape is None:
        return None
    if op_type in SAME_AS_FIRST:
        return first.shape.copy()
    rule = RULES.get(op_type)
    if rule is None:
        return None
    dimensions = rule(op, list(first.shape), inputs, attributes)
    return None if dimensions is None else ir.Shape(dimensions)


def _broadcast(shapes: list[ir.Shape | None]) -> ir.Shape | None:
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return None
    dimensions: Dimensions = []
    for position in range(-max(map(len, known), default=0), 0):
        sizes = [shape[position] for shape in known if len(shape) >= -position]
        wide = [size for size in sizes if size != 1]
        same = all(size == wide[0] and size != UNKNOWN for size in wide)
        dimensions.append((wide[0] if wide else 1) if same else UNKNOWN)
    return ir.Shape(dimensions)


def _numbers(op: Op, inputs: Inputs, index: int) -> list[int] | None:
    literal = op.literal(inputs[index]) if index < len(inputs) else None
    return None if literal is None else literal.flatten().tolist()


def _unsqueeze(op: Op, shape: list[Any], inputs: Inputs, _: Any) -> Dimensions | None:
    axes = _numbers(op, inputs, 1)
    if axes is None:
        return None
    rank = len(shape) + len(axes)
    added = {axis % rank for axis in axes}
    rest = iter(shape)
    return [1 if axis in added else next(rest) for axis in range(rank)]


def _squeeze(op: Op, shape: list[Any], inputs: Inputs, _: Any) -> Dimensions | None:
    axes = _numbers(op, inputs, 1)
    if axes is None:
        return None
    dropped = {axis % len(shape) for axis in axes}
    return [size for axis, size in enumerate(shape) if axis not in dropped]


def _transpose(_: Op, shape: list[Any], __: Inputs, attributes: Any) -> Dimensions | None:
    order = attributes.get("perm") or range(len(shape) - 1, -1, -1)
    return [shape[axis] for axis in order]


def _reshape(op: Op, shape: list[Any], inputs: Inputs, attributes: Any) -> Dimensions | None:
    target = _numbers(op, inputs, 1)
    if target is None:
        length = inputs[1].shape if inputs[1] is not None else None
        count = length[0] if length is not None else None
        return [UNKNOWN] * count if isinstance(count, int) else None
    copies = not attributes.get("allowzero")
    sizes: Dimensions = [
        shape[axis] if size == 0 and copies else size for axis, size in enumerate(target)
    ]
    if -1 in target:
        rest = [size for size in sizes if size != -1]
        known = all(isinstance(size, int) for size in (*rest, *shape))
        count = math.prod(rest) if known else 0
        inferred = math.prod(shape) // count if count else UNKNOWN
        sizes[target.index(-1)] = inferred
    return sizes


def _reduce(op: Op, shape: list[Any], inputs: Inputs, attributes: Any) -> Dimensions | None:
    axes = attributes.get("axes", attributes.get("axis"))
    if axes is None and len(inputs) > 1:
        axes = _numbers(op, inputs, 1)
        if axes is None:
            return None
    if axes is None:
        axes = range(len(shape))
    reduced = {axis % len(shape) for axis in ([axes] if isinstance(axes, int) else axes)}
    if attributes.get("keepdims", 1):
        return [1 if axis in reduced else size for axis, size in enumerate(shape)]
    return [size for axis, size in enumerate(shape) if axis not in reduced]


def _gather(_: Op, shape: list[Any], inputs: Inputs, attributes: Any) -> Dimensions | None:
    indices = inputs[1]
    if indices is None or indices.shape is None:
        return None
    axis = (attributes.get("axis") or 0) % len(shape)
    return [*shape[:axis], *indices.shape, *shape[axis + 1 :]]


def _like_indices(_: Op, __: list[Any], inputs: Inputs, ___: Any) -> Dimensions | None:
    indices = inputs[1]
    return None if indices is None or indices.shape is None else list(indices.shape)


def _along_axes(op: Op, shape: list[Any], inputs: Inputs, _: Any) -> Dimensions | None:
    """Slice: the sliced axes have sizes that are not known here."""
    axes = _numbers(op, inputs, 3) if len(inputs) > 3 else list(range(len(shape)))
    if axes is None:
        return [UNKNOWN] * len(shape)
    touched = {axis % len(shape) for axis in axes}
    return [UNKNOWN if axis in touched else size for axis, size in enumerate(shape)]


def _concat(_: Op, shape: list[Any], inputs: Inputs, attributes: Any) -> Dimensions | None:
    axis = attributes["axis"] % len(shape)
    sizes = [None if v is None or v.shape is None else v.shape[axis] for v in inputs]
    numbers = [size for size in sizes if isinstance(size, int)]
    total = sum(numbers) if len(numbers) == len(sizes) else UNKNOWN
    return [total if position == axis else size for position, size in enumerate(shape)]


def _matmul(_: Op, shape: list[Any], inputs: Inputs, __: Any) -> Dimensions | None:
    right = inputs[1]
    if right is None or right.shape is None or len(shape) < 2 or len(right.shape) < 2:
        return None
    batch = _broadcast([ir.Shape(shape[:-2]), ir.Shape(right.shape[:-2])])
    return None if batch is None else [*batch, shape[-2], right.shape[-1]]


def _expand(op: Op, shape: list[Any], inputs: Inputs, _: Any) -> Dimensions | None:
    target = _numbers(op, inputs, 1)
    if target is None:
        sizes = inputs[1].shape if inputs[1] is not None else None
        count = sizes[0] if sizes is not None else None
        return [UNKNOWN] * max(count, len(shape)) if isinstance(count, int) else None
    widened = _broadcast([ir.Shape(shape), ir.Shape(target)])
    return None if widened is None else list(widened)


def _same_rank(_: Op, shape: list[Any], __: Inputs, ___: Any) -> Dimensions | None:
    return [UNKNOWN] * len(shape)


RULES: dict[str, Rule] = {
    "ArgMax": _reduce,
    "ArgMin": _reduce,
    "Concat": _concat,
    "Expand": _expand,
    "Gather": _gather,
    "GatherElements": _like_indices,
    "MatMul": _matmul,
    "NonZero": lambda _, shape, *__: [len(shape), UNKNOWN],
    "Pad": _same_rank,
    "Range": lambda *_: [UNKNOWN],
    "ReduceL1": _reduce,
    "ReduceL2": _reduce,
    "ReduceLogSumExp": _reduce,
    "ReduceMax": _reduce,
    "ReduceMean": _reduce,
    "ReduceMin": _reduce,
    "ReduceProd": _reduce,
    "ReduceSum": _reduce,
    "Reshape": _reshape,
    "Slice": _along_axes,
    "Squeeze": _squeeze,
    "Tile": _same_rank,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
