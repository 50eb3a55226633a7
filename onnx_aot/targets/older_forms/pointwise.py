"""Older forms of comparisons, bounds and activations."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_aot.dtypes import is_floating
from onnx_aot.targets.emitter import Emitter
from onnx_aot.targets.older_forms.rows import Form, Row

__all__ = ["ROWS"]


def _is_floating(value: ir.Value | None) -> bool:
    return value is not None and value.dtype is not None and is_floating(value.dtype)


def _choose(e: Emitter, op_type: str, one: ir.Value, two: ir.Value) -> ir.Value:
    """The larger or the smaller of two integers."""
    compare = e.Less if op_type == "Max" else e.Greater
    chosen: ir.Value = e.Where(compare(one, two), two, one)
    return chosen


def _extreme(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    """``Max(i, j)`` of integers -> ``Where(i < j, j, i)``."""
    if _is_floating(node.inputs[0]):
        return None
    values = [value for value in node.inputs if value is not None]
    found = values[0]
    for value in values[1:]:
        found = _choose(e, node.op_type, found, value)
    return [found if len(values) > 1 else e.Identity(found)]


def _clip(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    """``Clip(x, low, high)`` -> ``Min(Max(x, low), high)``, except in float32."""
    found = node.inputs[0]
    if found is None or found.dtype == ir.DataType.FLOAT:  # ONNX Runtime's only kernel
        return None
    for bound, op_type in zip(node.inputs[1:], ("Max", "Min"), strict=False):
        if bound is not None:
            found = e.op(op_type, [found, bound], shape=node.outputs[0].shape)
    return [e.Identity(found) if found is node.inputs[0] else found]


def _or_equal(strict: str, opposite: str) -> Form:
    def write(e: Emitter, node: ir.Node) -> Sequence[ir.Value]:
        """``a >= b`` -> ``not a < b`` of integers, ``a > b or a == b`` of numbers with NaN."""
        one, two = node.inputs
        if _is_floating(one):
            return [e.Or(_compare(e, strict, one, two), e.Equal(one, two))]
        return [e.Not(_compare(e, opposite, one, two))]

    return write


def _compare(e: Emitter, op_type: str, one: ir.Value | None, two: ir.Value | None) -> ir.Value:
    compared: ir.Value = e.op(op_type, [one, two], dtype=ir.DataType.BOOL)
    return compared


def _pow(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    """Casts the exponent to the type of the base, and both to double if the base is an integer."""
    base, exponent = node.inputs
    assert base is not None
    assert exponent is not None
    if _is_floating(base):
        if exponent.dtype == base.dtype:
            return None
        return [e.Pow(base, e.Cast(exponent, to=base.dtype))]
    wide = [e.Cast(value, to=ir.DataType.DOUBLE) for value in (base, exponent)]
    return [e.Cast(e.Pow(*wide), to=base.dtype)]


def _hard_swish(e: Emitter, node: ir.Node) -> Sequence[ir.Value]:
    """``HardSwish(x)`` -> ``x * HardSigmoid(x)``."""
    x = node.inputs[0]
    return [e.Mul(x, e.HardSigmoid(x, alpha=1 / 6, beta=0.5))]


def _celu(e: Emitter, node: ir.Node) -> Sequence[ir.Value]:
    """``Celu(x)`` -> ``alpha * Elu(x / alpha)`` where x is negative, else x."""
    x = node.inputs[0]
    alpha = node.attributes.get_float("alpha", 1.0)
    below = e.Mul(e.Elu(e.Div(x, alpha), alpha=1.0), alpha)
    return [e.Where(e.Less(x, 0.0), below, x)]


ROWS = (
    Row("Max", 12, _extreme),
    Row("Min", 12, _extreme),
    Row("Clip", 12, _clip),
    Row("GreaterOrEqual", 12, _or_equal("Greater", "Less")),
    Row("LessOrEqual", 12, _or_equal("Less", "Greater")),
    Row("Pow", 12, _pow),
    Row("HardSwish", 14, _hard_swish),
    Row("Celu", 12, _celu),
)
