"""Merges two transposes that have only pointwise operators between them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_aot.ir_passes.rewriter import Rewriter, Rule
from onnx_aot.ir_passes.shapes import dims, rank

__all__ = ["JOIN_TRANSPOSES"]

_POINTWISE = (
    "Abs Add Cast Ceil Clip Cos Div Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log "
    "Mish Mul Neg Not Pow Reciprocal Relu Round Selu Sigmoid Sign Sin Softplus Softsign Sqrt Sub "
    "Tanh"
)
POINTWISE = frozenset(_POINTWISE.split())
LONGEST = 8
"""Largest number of pointwise nodes between two transposes."""


def join_transposes(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Transpose(Relu(Transpose(x, p)), q)`` -> ``Transpose(Relu(x), p[q])``.

    Works through a chain of pointwise operators whose other operands are single numbers and whose
    results nothing else reads. Removes one transpose, or both.
    """
    outer = node.attributes.get_ints("perm")
    chain: list[ir.Node] = []
    value = node.inputs[0]
    while value is not None and len(chain) <= LONGEST:
        producer = value.producer()
        if producer is None or producer.domain or not rewriter.only_use(value):
            return False
        if producer.op_type == "Transpose":
            break
        if producer.op_type not in POINTWISE or not _of_one(producer):
            return False
        chain.append(producer)
        value = producer.inputs[_tensor_operand_index(producer)]
    else:
        return False
    first = producer.attributes.get_ints("perm")
    if not chain or outer is None or first is None:
        return False
    _emit(node, producer, chain, [first[axis] for axis in outer], rewriter)
    return True


def _emit(
    node: ir.Node,
    inner: ir.Node,
    chain: Sequence[ir.Node],
    order: Sequence[int],
    rewriter: Rewriter,
) -> None:
    source = inner.inputs[0]
    assert source is not None
    for step in reversed(chain):
        inputs = list(step.inputs)
        inputs[_tensor_operand_index(step)] = source
        dtype = step.outputs[0].dtype
        source = rewriter.emit(
            step.op_type,
            inputs,
            step.attributes,
            like=step,
            dtype=dtype,
            shape=inner.inputs[0].shape if inner.inputs[0] else None,
        )
    if list(order) != sorted(order):
        source = rewriter.emit("Transpose", [source], {"perm": list(order)}, like=inner)
    rewriter.replace(node.outputs[0], source)


def _tensor_operand_index(node: ir.Node) -> int:
    """Index of the operand that is not a single number."""
    sizes = [dims(value) for value in node.inputs]
    return next((i for i, size in enumerate(sizes) if size is None or set(size) - {1}), 0)


def _of_one(node: ir.Node) -> bool:
    """Returns True if all operands but one are single numbers of rank 0 or 1."""
    place = _tensor_operand_index(node)
    known = rank(node.inputs[place])
    if known is None or len(node.outputs) != 1:
        return False
    for index, value in enumerate(node.inputs):
        if index == place or value is None:
            continue
        sizes = dims(value)
        if sizes is None or len(sizes) > 1 or set(sizes) - {1}:
            return False
    return True


JOIN_TRANSPOSES = Rule(
    "join_transposes",
    ("Transpose",),
    join_transposes,
    exact=True,
    behind=POINTWISE,
)
