"""Removes nodes whose result equals their operand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir
import torch

from onnx_aot.dtypes import INT64_MAX
from onnx_aot.ir_passes.rewriter import Rewriter, Rule
from onnx_aot.ir_passes.shapes import dims, rank, same_shape

__all__ = ["DROP_ZEROS", "REMOVE_NO_OPS", "RESIZE_TO_SAME_SIZE"]


def remove_no_ops(node: ir.Node, rewriter: Rewriter) -> bool:
    """Replaces the result by the operand.

    ``Identity``, ``Cast`` to the same type, ``Reshape``, ``Expand`` and ``Flatten`` to the same
    shape, ``Transpose`` that moves nothing, ``Slice`` of everything, ``Pad`` by nothing,
    ``Concat`` of one or with empty others, ``x * 1``, ``x / 1``, ``x - 0``, ``x ** 1``, integers
    ``x + 0``, ``x and True``, ``x or False`` -> ``x``.
    """
    kept = _KEPT[node.op_type](node, rewriter)
    if kept is None or kept.dtype != node.outputs[0].dtype:
        return False
    rewriter.replace(node.outputs[0], kept)
    return True


def _first_operand(node: ir.Node, rewriter: Rewriter) -> ir.Value | None:
    return node.inputs[0]


def _of_same_shape(node: ir.Node, rewriter: Rewriter) -> ir.Value | None:
    if not same_shape(node.inputs[0], node.outputs[0]):
        return None
    return node.inputs[0] if all(map(rewriter.of_shapes, node.inputs[1:])) else None


def _operand_of_transpose(node: ir.Node, rewriter: Rewriter) -> ir.Value | None:
    order = node.attributes.data.get("perm")
    return node.inputs[0] if order is not None and _is_sorted(order.as_ints()) else None


def _is_sorted(order: Sequence[int]) -> bool:
    return all(axis == place for place, axis in enumerate(order))


def _operand_of_slice(node: ir.Node, rewriter: Rewriter) -> ir.Value | None:
    starts, ends = (rewriter.constant(value) for value in node.inputs[1:3])
    steps = rewriter.constant(node.inputs[4]) if len(node.inputs) > 4 else None
    if starts is None or ends is None or (len(node.inputs) > 4 and steps is None):
        return None
    if steps is not None and steps.tolist() != [1] * steps.numel():
        return None
    if same_shape(node.inputs[0], node.outputs[0]):
        return node.inputs[0]
    whole = not any(starts.tolist()) and all(end >= INT64_MAX for end in ends.tolist())
    return node.inputs[0] if whole else None


def _operand_of_pad(node: ir.Node, rewriter: Rewriter) -> ir.Value | None:
    pads = rewriter.constant(node.inputs[1])
    return node.inputs[0] if pads is not None and not bool(pads.any()) else None


def _operand_of_concat(node: ir.Node, rewriter: Rewriter) -> ir.Value | None:
    axis = node.attributes.get_int("axis")
    sizes = [dims(value) for value in node.inputs]
    left = [
        value
        for value, known in zip(node.inputs, sizes, strict=True)
        if known is None or axis is None or known[axis] != 0
    ]
    return left[0] if len(left) == 1 else None


def _operand_beside_neutral(
    neutral: float, commutative: bool = False, integers: bool = False
) -> Callable[[ir.Node, Rewriter], ir.Value | None]:
    """Returns a function for the operand whose counterpart is neutral and does not widen it.

    Args:
        neutral: The neutral element.
        commutative: Whether it may be on either side.
        integers: Whether only integers qualify, because a floating-point -0.0 would change.
    """

    def find_operand(node: ir.Node, rewriter: Rewriter) -> ir.Value | None:
        for place in (0, 1) if commutative else (0,):
            operand, other = node.inputs[place], node.inputs[1 - place]
            if operand is None or (integers and (operand.dtype is None or _is_float(operand))):
                continue
            known = rewriter.constant(other)
            if known is None or not known.numel() or bool((known != neutral).any()):
                continue
            if known.numel() == 1:
                fits = known.ndim == 0 or known.ndim <= (rank(operand) or 0)
            else:
                fits = same_shape(operand, node.outputs[0])
            if fits:
                return operand
        return None

    return find_operand


def drop_zeros(node: ir.Node, rewriter: Rewriter) -> bool:
    """``y + (x + 0.0)`` -> ``y + x``, as Python's ``sum`` starts with 0.

    In floating point, ``x + 0.0`` turns -0.0 into 0.0. So only sums may read it, whose results
    can differ only in the sign of a zero, if all terms are zeros; or exponentials, such as the
    softmax of scores with a mask that excludes nothing, whose results are equal. ``Where`` may be
    between them.
    """
    result = node.outputs[0]
    kept = _WITHOUT_ZERO(node, rewriter)
    if kept is None or not _is_read_unsigned(result):
        return False
    rewriter.replace(result, kept)
    return True


def resize_to_same_size(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Resize(x, scales=[1, 1, 1, 1])`` -> ``x``; so where ``sizes`` are those of ``x``.

    The weights of other elements are 0, whose products with infinite elements would be NaN.
    """
    x, result = node.inputs[0], node.outputs[0]
    if node.attributes.get_string("coordinate_transformation_mode", "") == "tf_crop_and_resize":
        return False
    if x is None or not same_shape(x, result):
        return False
    scales = rewriter.constant(node.inputs[2]) if len(node.inputs) > 2 else None
    sizes = node.inputs[3] if len(node.inputs) > 3 else None
    if sizes is None and (scales is None or bool((scales != 1).any())):
        return False
    if sizes is not None and not rewriter.of_shapes(sizes):
        return False
    rewriter.replace(result, x)
    return True


def _is_read_unsigned(value: ir.Value, through: bool = True) -> bool:
    """True if both zeros are the same to all that read a value, perhaps through one ``Where``."""
    if value.is_graph_output():
        return False
    return all(
        not reader.domain
        and (
            reader.op_type in UNSIGNED
            or (
                through
                and reader.op_type == "Where"
                and _is_read_unsigned(reader.outputs[0], False)
            )
        )
        for reader in value.consumers()
    )


_SUMS = "Add Conv Gemm MatMul ReduceMean ReduceSum Sub"
_EXPONENTIALS = "Exp LogSoftmax Sigmoid Softmax"
UNSIGNED = frozenset(f"{_SUMS} {_EXPONENTIALS}".split())
"""Operators to which both zeros are the same."""


def _is_float(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


def _operand_beside_bool(neutral: bool) -> Callable[[ir.Node, Rewriter], ir.Value | None]:
    def find_operand(node: ir.Node, rewriter: Rewriter) -> ir.Value | None:
        for place in (0, 1):
            operand, known = node.inputs[place], rewriter.constant(node.inputs[1 - place])
            if known is None or known.dtype != torch.bool or bool((known != neutral).any()):
                continue
            if known.ndim == 0 or same_shape(operand, node.outputs[0]):
                return operand
        return None

    return find_operand


_WITHOUT_ZERO = _operand_beside_neutral(0, commutative=True)

_KEPT: dict[str, Callable[[ir.Node, Rewriter], ir.Value | None]] = {
    "Add": _operand_beside_neutral(0, commutative=True, integers=True),
    "And": _operand_beside_bool(True),
    "Cast": _first_operand,  # to the same type
    "Concat": _operand_of_concat,
    "Div": _operand_beside_neutral(1),
    "Expand": _of_same_shape,
    "Flatten": _of_same_shape,
    "Identity": _first_operand,
    "Mul": _operand_beside_neutral(1, commutative=True),
    "Or": _operand_beside_bool(False),
    "Pad": _operand_of_pad,
    "Pow": _operand_beside_neutral(1),
    "Reshape": _of_same_shape,
    "Slice": _operand_of_slice,
    "Sub": _operand_beside_neutral(0),
    "Transpose": _operand_of_transpose,
}

REMOVE_NO_OPS = Rule("remove_no_ops", tuple(_KEPT), remove_no_ops, exact=True, since=13)
DROP_ZEROS = Rule("drop_zeros", ("Add",), drop_zeros, exact=False)
RESIZE_TO_SAME_SIZE = Rule(
    "resize_to_same_size", ("Resize",), resize_to_same_size, exact=False, since=11
)
