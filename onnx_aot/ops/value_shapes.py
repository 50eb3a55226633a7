"""Shapes of values inside one translation, where they follow without computing anything.

What a translation returns gets the shape that the capture recorded. Values between its nodes are
shaped here when the rule is trivial, so that translations can ask for their rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

__all__ = ["output_shape"]

# The output has the shape of the first input.
SAME_AS_FIRST = frozenset(
    (
        "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Cast Ceil Celu Clip Cos Cosh CumSum "
        "DequantizeLinear Dropout Elu Erf Exp Floor Gelu HardSigmoid HardSwish Hardmax Identity "
        "IsInf IsNaN LayerNormalization LeakyRelu Log LogSoftmax Mish Neg Not QuantizeLinear "
        "Reciprocal Relu Round ScatterElements ScatterND Selu Sigmoid Sign Sin Sinh Softmax "
        "Softplus Softsign Sqrt Tan Tanh ThresholdedRelu Trilu"
    ).split()
)

# The output has the shape that the inputs broadcast to.
BROADCAST = frozenset(
    (
        "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less "
        "LessOrEqual Max Min Mod Mul Or Pow Sub Where Xor"
    ).split()
)


def output_shape(op_type: str, inputs: Sequence[ir.Value | None]) -> ir.Shape | None:
    """The shape of an operator's first output, or None where it does not follow trivially."""
    if op_type in SAME_AS_FIRST:
        first = inputs[0]
        return None if first is None or first.shape is None else first.shape.copy()
    if op_type in BROADCAST:
        return _broadcast([value.shape if value is not None else None for value in inputs])
    return None


def _broadcast(shapes: list[ir.Shape | None]) -> ir.Shape | None:
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return None
    dimensions: list[int | ir.SymbolicDim] = []
    for position in range(-max(map(len, known), default=0), 0):
        sizes = [shape[position] for shape in known if len(shape) >= -position]
        wide = [size for size in sizes if size != 1]
        if any(size != wide[0] for size in wide):
            return None  # symbolic sizes that are not known to be equal
        dimensions.append(wide[0] if wide else 1)
    return ir.Shape(dimensions)
