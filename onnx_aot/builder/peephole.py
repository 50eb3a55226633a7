"""Removes nodes without effect and folds constants while a graph is being built.

Each function sees the inputs and attributes of one operator before its node exists and returns the
value that stands for its output, or None to have the node emitted. All of them are exact: equal
bits for every input that the original accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.dtypes import INT64_MAX

__all__ = ["SIMPLIFICATIONS"]

FOLD_LIMIT = 1024
"""Largest constant, in elements, that is folded here; larger ones stay in the graph."""


class Op(Protocol):
    """The part of the builder that simplifications use."""

    def literal(self, value: Any) -> torch.Tensor | None: ...

    def constant(self, value: Any, dtype: ir.DataType | None = None) -> ir.Value: ...

    def call_op(self, op_type: str, args: Sequence[Any], kwargs: dict[str, Any], /) -> Any: ...


Inputs = Sequence[ir.Value | None]
Attributes = dict[str, Any]
Simplification = Callable[[Op, Inputs, Attributes], ir.Value | None]


def _read_literals(op: Op, inputs: Inputs) -> list[torch.Tensor] | None:
    tensors = [op.literal(value) for value in inputs]
    small = [t for t in tensors if t is not None and t.numel() <= FOLD_LIMIT]
    return small if len(small) == len(inputs) else None


def _read_integers(op: Op, value: ir.Value | None) -> list[int] | None:
    tensor = op.literal(value)
    return None if tensor is None else tensor.flatten().tolist()


def _find_producer(value: ir.Value | None, op_type: str) -> ir.Node | None:
    node = value.producer() if value is not None else None
    return node if node is not None and node.op_type == op_type and not node.domain else None


def _static_sizes(value: ir.Value | None) -> list[int] | None:
    if value is None or value.shape is None or not value.shape.is_static():
        return None
    return list(value.shape)  # type: ignore[arg-type]


def _read_axes(op: Op, node: ir.Node) -> list[int] | None:
    return _read_integers(op, node.inputs[1]) if len(node.inputs) > 1 else None


def identity(op: Op, inputs: Inputs, attributes: Attributes) -> ir.Value | None:
    """``Identity(x)`` -> ``x``. Graph outputs that need their own name are added elsewhere."""
    return inputs[0]


def cast(op: Op, inputs: Inputs, attributes: Attributes) -> ir.Value | None:
    """``Cast<T>(x: T)`` -> ``x``; ``Cast<T>(Cast<U>(x: bool))`` -> ``Cast<T>(x)``."""
    source, to = inputs[0], ir.DataType(attributes["to"])
    if source is None or source.dtype is None:
        return None
    if source.dtype == to:
        return source
    literal = op.literal(source)
    if literal is not None and literal.numel() <= FOLD_LIMIT:
        if to.is_floating_point() or to in _INTEGERS or to == ir.DataType.BOOL:
            return op.constant(literal, to)
        return None
    inner = _find_producer(source, "Cast")
    if inner is not None and inner.inputs[0] is not None:
        original = inner.inputs[0]
        if original.dtype == ir.DataType.BOOL and to != ir.DataType.BOOL:
            return op.call_op("Cast", [original], attributes)
    return None


_INTEGERS = frozenset({ir.DataType.INT32, ir.DataType.INT64})


def reshape(op: Op, inputs: Inputs, attributes: Attributes) -> ir.Value | None:
    """Same static shape -> ``x``; ``Reshape(Reshape(x, _), s)`` -> ``Reshape(x, s)``."""
    source, target = inputs[0], _read_integers(op, inputs[1])
    if source is None or target is None:
        return None
    static = _static_sizes(source)
    if static is not None and not attributes.get("allowzero"):
        if target == static and 0 not in target:
            return source
        if len(target) == len(static) == 1 and target == [-1]:
            return source
    inner = _find_producer(source, "Reshape")
    if inner is not None and 0 not in target and inner.inputs[0] is not None:
        return op.call_op("Reshape", [inner.inputs[0], inputs[1]], attributes)
    return None


def transpose(op: Op, inputs: Inputs, attributes: Attributes) -> ir.Value | None:
    """Identity permutation -> ``x``; two transposes -> their composition."""
    source, order = inputs[0], attributes.get("perm")
    if source is None or order is None:
        return None
    order = list(order)
    if order == sorted(order):
        return source
    inner = _find_producer(source, "Transpose")
    if inner is None or "perm" not in inner.attributes or inner.inputs[0] is None:
        return None
    first = inner.attributes["perm"].as_ints()
    return op.call_op("Transpose", [inner.inputs[0]], {"perm": [first[i] for i in order]})


def unsqueeze(op: Op, inputs: Inputs, attributes: Attributes) -> ir.Value | None:
    """``Unsqueeze(Squeeze(x, a), a)`` -> ``x``; a constant is reshaped."""
    return _cancel_reshape(op, inputs, _read_integers(op, inputs[1]), "Squeeze", torch.unsqueeze)


def squeeze(op: Op, inputs: Inputs, attributes: Attributes) -> ir.Value | None:
    """``Squeeze(Unsqueeze(x, a), a)`` -> ``x``; a constant is reshaped."""
    axes = _read_integers(op, inputs[1]) if len(inputs) > 1 else None
    return _cancel_reshape(op, inputs, axes, "Unsqueeze", torch.squeeze)


def _cancel_reshape(
    op: Op,
    inputs: Inputs,
    axes: Sequence[int] | None,
    inverse: str,
    reshape: Callable[[torch.Tensor, int], torch.Tensor],
) -> ir.Value | None:
    if axes is None:
        return None
    inner = _find_producer(inputs[0], inverse)
    if inner is not None and _read_axes(op, inner) == axes:
        return inner.inputs[0]
    literal = op.literal(inputs[0])
    return None if literal is None or len(axes) != 1 else op.constant(reshape(literal, axes[0]))


def concat(op: Op, inputs: Inputs, attributes: Attributes) -> ir.Value | None:
    """One input -> itself; constants are concatenated."""
    if len(inputs) == 1:
        return inputs[0]
    literals = _read_literals(op, inputs)
    return None if literals is None else op.constant(torch.cat(literals, attributes["axis"]))


def expand(op: Op, inputs: Inputs, attributes: Attributes) -> ir.Value | None:
    """Same static shape, or a target of ones without a higher rank -> ``x``.

    A constant is expanded if the result is small. An empty result is a constant: it has no
    elements of ``x``, and ONNX Runtime treats an Expand from 1 to 0 as a no-op.
    """
    target, source = _read_integers(op, inputs[1]), inputs[0]
    if target is None or source is None or source.shape is None:
        return None
    literal = op.literal(source)
    if literal is not None:
        wide = torch.Size(torch.broadcast_shapes(literal.shape, tuple(target)))  # type: ignore[no-untyped-call]
        if wide.numel() <= FOLD_LIMIT:
            return op.constant(literal.expand(wide))
    static = _static_sizes(source)
    if static is not None and 0 in target and source.dtype is not None:
        wide = torch.broadcast_shapes(tuple(static), tuple(target))  # type: ignore[no-untyped-call]
        return op.constant(torch.empty(wide, dtype=dtypes.to_torch(source.dtype)))
    if target == static or (len(target) <= len(source.shape) and all(size == 1 for size in target)):
        return source
    if len(target) <= len(source.shape):
        for axis, size in enumerate(reversed(target), start=1):
            if size == 0 and source.shape[-axis] == 1:
                return _expand_empty_axis(op, source, target, len(source.shape) - axis)
    return None


def _expand_empty_axis(op: Op, source: ir.Value, target: list[int], axis: int) -> ir.Value:
    """Slices a dimension from 1 to 0 before the others are expanded."""
    bounds = [op.constant(torch.tensor([bound])) for bound in (0, 0, axis)]
    nothing = op.call_op("Slice", [source, *bounds], {})
    target = [
        1 if i == axis - len(source.shape or ()) + len(target) else s for i, s in enumerate(target)
    ]
    expanded: ir.Value = op.call_op("Expand", [nothing, op.constant(torch.tensor(target))], {})
    return expanded


def slice_(op: Op, inputs: Inputs, attributes: Attributes) -> ir.Value | None:
    """From 0 to the largest int64 with step 1 -> ``x``; a constant vector is sliced."""
    bounds = [_read_integers(op, value) for value in inputs[1:]]
    if any(bound is None for bound in bounds) or len(bounds) < 2:
        return None
    starts, ends = bounds[0] or [], bounds[1] or []
    steps = bounds[3] if len(bounds) > 3 and bounds[3] is not None else [1] * len(starts)
    whole = all(s == 0 for s in starts) and all(e == INT64_MAX for e in ends)
    if whole and all(step == 1 for step in steps):
        return inputs[0]
    literal = op.literal(inputs[0])
    if literal is not None and literal.ndim == 1 and len(starts) == 1 and steps[0] > 0:
        return op.constant(literal[starts[0] : ends[0] : steps[0]])
    return None


def gather(op: Op, inputs: Inputs, attributes: Attributes) -> ir.Value | None:
    """One element of a short constant vector -> a constant."""
    literals = _read_literals(op, inputs)
    if literals is None or literals[0].ndim != 1 or literals[1].ndim > 0:
        return None
    return op.constant(literals[0][literals[1]])


def shape(op: Op, inputs: Inputs, attributes: Attributes) -> ir.Value | None:
    """Static dimensions -> a constant."""
    source = inputs[0]
    if source is None or source.shape is None:
        return None
    wanted = source.shape.dims[attributes.get("start") or 0 : attributes.get("end")]
    if not all(isinstance(size, int) for size in wanted):
        return None
    return op.constant(list(wanted), ir.DataType.INT64)


def range_(op: Op, inputs: Inputs, attributes: Attributes) -> ir.Value | None:
    """Three constants -> a short constant vector."""
    literals = _read_literals(op, inputs)
    if literals is None or literals[0].dtype not in (torch.int32, torch.int64):
        return None
    start, limit, delta = (int(literal) for literal in literals)
    if delta == 0 or len(range(start, limit, delta)) > FOLD_LIMIT:
        return None
    numbers = list(range(start, limit, delta))
    return op.constant(torch.tensor(numbers, dtype=literals[0].dtype))


def trilu(op: Op, inputs: Inputs, attributes: Attributes) -> ir.Value | None:
    """A triangle of a small constant matrix -> a constant."""
    literals = _read_literals(op, inputs)
    if literals is None:
        return None
    cut = torch.triu if attributes.get("upper", 1) else torch.tril
    return op.constant(cut(literals[0], int(literals[1]) if len(literals) > 1 else 0))


def _make_arithmetic_rule(
    compute: Callable[..., torch.Tensor], neutral: int | None = None, commutative: bool = True
) -> Simplification:
    """Folds integer constants and drops a neutral 0-d integer operand."""

    def simplify(op: Op, inputs: Inputs, attributes: Attributes) -> ir.Value | None:
        if len(inputs) != 2 or inputs[0] is None or inputs[0].dtype not in _INTEGERS:
            return None
        left, right = op.literal(inputs[0]), op.literal(inputs[1])
        if left is not None and right is not None:
            if max(left.numel(), right.numel()) > FOLD_LIMIT:
                return None
            if compute in (_divide, torch.fmod, torch.remainder) and bool((right == 0).any()):
                return None
            if compute is torch.remainder and attributes.get("fmod"):
                return None
            return op.constant(compute(left, right))
        if neutral is None:
            return None
        if right is not None and right.ndim == 0 and int(right) == neutral:
            return inputs[0]
        if commutative and left is not None and left.ndim == 0 and int(left) == neutral:
            return inputs[1]
        return None

    return simplify


def _divide(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Divides as ONNX Div does on integers, truncating toward zero."""
    return torch.div(left, right, rounding_mode="trunc")


SIMPLIFICATIONS: dict[str, Simplification] = {
    "Add": _make_arithmetic_rule(torch.add, neutral=0),
    "Cast": cast,
    "Concat": concat,
    "Div": _make_arithmetic_rule(_divide, neutral=1, commutative=False),
    "Expand": expand,
    "Gather": gather,
    "Identity": identity,
    "Max": _make_arithmetic_rule(torch.maximum),
    "Min": _make_arithmetic_rule(torch.minimum),
    "Mod": _make_arithmetic_rule(torch.remainder),
    "Mul": _make_arithmetic_rule(torch.mul, neutral=1),
    "Range": range_,
    "Reshape": reshape,
    "Shape": shape,
    "Slice": slice_,
    "Squeeze": squeeze,
    "Sub": _make_arithmetic_rule(torch.sub, neutral=0, commutative=False),
    "Transpose": transpose,
    "Trilu": trilu,
    "Unsqueeze": unsqueeze,
}
