"""Simplifies shape arithmetic that recorded sizes or shorter formulas make unnecessary."""

from __future__ import annotations

import onnx_ir as ir
import torch

from onnx_aot.ir_passes.rewriter import Rewriter, Rule
from onnx_aot.ir_passes.shapes import broadcasts_to, dims, rank, same_shape

__all__ = [
    "DROP_EXPAND",
    "FOLD_SHAPES",
    "JOIN_FLOOR_DIVISION",
    "JOIN_SHAPES",
    "SHORTEN_FLOOR_DIVISION",
    "UNSQUEEZED_SIZES",
]


def fold_shapes(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Shape``, or Gather or Slice of one, with known sizes -> a constant.

    ``Shape(x: [b, 3, h], start=1, end=2)`` -> ``[3]``; ``Gather(Shape(x), 1)`` -> ``3``;
    ``Gather(Shape(x), [2])`` and ``Slice`` of one size -> ``Shape(x, start=2, end=3)``.
    """
    if node.op_type == "Shape":
        sizes = _slice_of(node)
        if sizes is None or not all(isinstance(size, int) for size in sizes):
            return False
        constant = rewriter.initializer(torch.tensor(sizes, dtype=torch.int64))
        rewriter.replace(node.outputs[0], constant)
        return True
    shape = rewriter.producer(node.inputs[0], "Shape")
    taken = None if shape is None else _resolve_indices(node, shape, rewriter)
    sizes = None if shape is None else _slice_of(shape)
    if shape is None or sizes is None or taken is None or not taken.numel():
        return False
    known = [sizes[int(place)] for place in taken.reshape(-1)]
    if all(isinstance(size, int) for size in known):
        tensor = torch.tensor(known, dtype=torch.int64).reshape(taken.shape)
        rewriter.replace(node.outputs[0], rewriter.initializer(tensor))
        return True
    if taken.shape != (1,) or not rewriter.only_use(shape.outputs[0]):
        return False
    start = _start(shape) + int(taken[0])
    bounds = {"start": start, "end": start + 1}
    rewriter.replace(
        node.outputs[0],
        rewriter.emit("Shape", shape.inputs, bounds, like=shape, dtype=ir.DataType.INT64),
    )
    return True


def _start(shape: ir.Node) -> int:
    known = rank(shape.inputs[0]) or 0
    return range(known)[slice(shape.attributes.get_int("start", 0), None)].start


def _slice_of(shape: ir.Node) -> list[int | str | None] | None:
    sizes = dims(shape.inputs[0])
    if sizes is None:
        return None
    return sizes[shape.attributes.get_int("start", 0) : shape.attributes.get_int("end")]


def _resolve_indices(node: ir.Node, shape: ir.Node, rewriter: Rewriter) -> torch.Tensor | None:
    """Indices of the shape's entries that a Gather, or a Slice with step 1, takes."""
    sizes = _slice_of(shape)
    given = [rewriter.constant(value) for value in node.inputs[1:]]
    if sizes is None or any(tensor is None for tensor in given):
        return None
    places = torch.arange(len(sizes))
    first = given[0]
    if first is None:
        return None
    if node.op_type == "Gather":
        inside = bool(((first >= -len(sizes)) & (first < len(sizes))).all())
        return torch.where(first < 0, first + len(sizes), first) if inside else None
    last = given[1]
    steps = given[3] if len(given) > 3 else None
    if last is None or (steps is not None and int(steps[0]) != 1):
        return None
    return places[int(first[0]) : int(last[0])]


def join_shapes(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Concat(Shape(x)[0:1], Shape(x)[1:2])`` -> ``Shape(x, start=0, end=2)``."""
    parts = [rewriter.producer(value, "Shape") for value in node.inputs]
    first = parts[0]
    if first is None or len(parts) < 2:
        return False
    end = start = _start(first)
    for part in parts:
        if part is None or part.inputs[0] is not first.inputs[0] or _start(part) != end:
            return False
        length = _slice_of(part)
        if length is None:
            return False
        end += len(length)
    bounds = {"start": start, "end": end}
    new = rewriter.emit("Shape", first.inputs, bounds, like=first, dtype=ir.DataType.INT64)
    rewriter.replace(node.outputs[0], new)
    return True


def drop_expand(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Add(Expand(x, s), y)`` -> ``Add(x, y)`` if ``y`` has the shape of the result.

    For every operator that broadcasts, except Div and Mod of integers: a divisor 0 may be expanded
    to an empty tensor, and ONNX Runtime refuses to divide by the 0 itself.
    """
    inputs = list(node.inputs)
    result = node.outputs[0]
    if node.op_type in ("Div", "Mod") and (result.dtype is None or result.dtype.is_integer()):
        return False
    changed: ir.Node | None = None
    for place, value in enumerate(inputs):
        expand = rewriter.producer(value, "Expand")
        if expand is None or not rewriter.of_shapes(expand.inputs[1]):
            continue
        others = [other for i, other in enumerate(inputs) if i != place]
        if not any(same_shape(other, result) for other in others) or not broadcasts_to(
            value, result
        ):
            continue
        if not broadcasts_to(expand.inputs[0], result):
            continue
        inputs[place], changed = expand.inputs[0], changed or expand
    if changed is None:
        return False
    new = rewriter.emit(node.op_type, inputs, node.attributes, like=node, dtype=result.dtype)
    rewriter.replace(result, new)
    return True


def shorten_floor_division(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Div(Sub(x, Mod(x, n)), n)`` -> ``Div(x, n)`` for sizes, which are not negative."""
    whole = _match_floor_division(node, rewriter)
    divisor = rewriter.constant(node.inputs[1])
    if divisor is None or divisor.dtype != torch.int64 or bool((divisor <= 0).any()):
        return False
    if whole is None or not _is_not_negative(whole, rewriter):
        return False
    new = rewriter.emit("Div", [whole, node.inputs[1]], like=node)
    rewriter.replace(node.outputs[0], new)
    return True


def join_floor_division(node: ir.Node, rewriter: Rewriter) -> bool:
    """``(x + k) // n + c`` -> ``Div(x + k + c * n, n)`` for a size ``x``, with ``k + c * n >= 0``.

    Covers the number of windows, ``(height - 1) // 2 + 1``, where the dividend may be -1.
    """
    for place in (0, 1):
        quotient = rewriter.producer(node.inputs[place], "Div")
        added = _read_number(node.inputs[1 - place], rewriter)
        if quotient is not None and added is not None:
            break
    else:
        return False
    whole = _match_floor_division(quotient, rewriter)
    divisor = _read_number(quotient.inputs[1], rewriter)
    total = rewriter.producer(whole, "Add")
    if total is None or divisor is None or not rewriter.only_use(quotient.outputs[0]):
        return False
    for place in (0, 1):
        size, first = total.inputs[place], _read_number(total.inputs[1 - place], rewriter)
        if first is not None and _is_not_negative(size, rewriter):
            break
    else:
        return False
    term = first + added * divisor
    if divisor <= 0 or term < 0 or size is None:
        return False
    if term:
        constant = rewriter.initializer(torch.tensor(term))
        size = rewriter.emit("Add", [size, constant], like=total, shape=node.outputs[0].shape)
    rewriter.replace(
        node.outputs[0], rewriter.emit("Div", [size, quotient.inputs[1]], like=quotient)
    )
    return True


def _read_number(value: ir.Value | None, rewriter: Rewriter) -> int | None:
    """The number in a 0-d INT64 constant; None for other values."""
    constant = rewriter.constant(value, limit=1)
    if constant is None or constant.ndim or constant.dtype != torch.int64:
        return None
    return int(constant)


def _match_floor_division(quotient: ir.Node, rewriter: Rewriter) -> ir.Value | None:
    """Returns ``x`` of ``Div(Sub(x, Mod(x, n)), n)``; None for other quotients."""
    difference = rewriter.producer(quotient.inputs[0], "Sub")
    rest = None if difference is None else rewriter.producer(difference.inputs[1], "Mod")
    if difference is None or rest is None or rest.inputs[0] is not difference.inputs[0]:
        return None
    if rest.inputs[1] is not quotient.inputs[1] or rest.attributes.get_int("fmod"):
        return None
    return rest.inputs[0]


def unsqueezed_sizes(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Unsqueeze(Add(Squeeze(s), 1))`` -> ``Add(s, 1)``, arithmetic on sizes with one element.

    Applies if nothing else reads the values in between.
    """
    value = node.inputs[0]
    axes = rewriter.constant(node.inputs[1]) if len(node.inputs) > 1 else None
    if value is None or rank(value) != 0 or value.dtype != ir.DataType.INT64:
        return False
    if axes is None or axes.numel() != 1:
        return False
    new = _with_one_axis(value, rewriter, DEPTH)
    if new is None:
        return False
    rewriter.replace(node.outputs[0], new)
    return True


def _with_one_axis(value: ir.Value | None, rewriter: Rewriter, depth: int) -> ir.Value | None:
    """Emits the number as a vector of one element, from such vectors and 0-d constants."""
    if value is None or depth == 0:
        return None
    node = value.producer()
    if node is None or node.domain:
        return None
    if node.op_type == "Squeeze":
        return node.inputs[0] if dims(node.inputs[0]) == [1] else None
    if node.op_type not in ARITHMETIC or not rewriter.only_use(value):
        return None
    inputs = []
    for operand in node.inputs:
        is_number = _read_number(operand, rewriter) is not None
        inputs.append(operand if is_number else _with_one_axis(operand, rewriter, depth - 1))
    if any(operand is None for operand in inputs) or all(
        o is i for o, i in zip(inputs, node.inputs, strict=True)
    ):
        return None
    return rewriter.emit(
        node.op_type, inputs, node.attributes, like=node, dtype=value.dtype, shape=[1]
    )


ARITHMETIC = frozenset({"Add", "Div", "Max", "Min", "Mod", "Mul", "Sub"})

DEPTH = 24
"""Largest number of nodes that are examined for one value."""


def _is_not_negative(value: ir.Value | None, rewriter: Rewriter) -> bool:
    """True if a value is a sum, product, quotient or remainder of sizes and numbers >= 0."""
    pending = [value]
    for _ in range(DEPTH):
        if not pending:
            return True
        found = pending.pop()
        constant = rewriter.constant(found)
        if constant is not None:
            if bool((constant < 0).any()):
                return False
            continue
        node = None if found is None else found.producer()
        if node is None or node.domain:
            return False
        if node.op_type == "Mod" and not node.attributes.get_int("fmod", 0):
            pending.append(node.inputs[1])  # has the sign of the divisor
        elif node.op_type in ("Add", "Mul", "Div"):
            pending.extend(node.inputs)
        elif node.op_type in ("Squeeze", "Unsqueeze"):
            pending.append(node.inputs[0])
        elif node.op_type not in ("Shape", "Size"):
            return False
    return False


_BROADCASTING = (
    "Add And BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Mod "
    "Mul Or Pow Sub Where Xor"
)
BROADCASTING = tuple(_BROADCASTING.split())

FOLD_SHAPES = Rule("fold_shapes", ("Shape", "Gather", "Slice"), fold_shapes, exact=True, since=15)
JOIN_SHAPES = Rule(
    "join_shapes",
    ("Concat",),
    join_shapes,
    exact=True,
    since=15,
    behind=frozenset({"Shape"}),
)
DROP_EXPAND = Rule(
    "drop_expand",
    BROADCASTING,
    drop_expand,
    exact=True,
    behind=frozenset({"Expand"}),
)
SHORTEN_FLOOR_DIVISION = Rule(
    "shorten_floor_division",
    ("Div",),
    shorten_floor_division,
    exact=True,
    behind=frozenset({"Sub"}),
)
JOIN_FLOOR_DIVISION = Rule(
    "join_floor_division",
    ("Add",),
    join_floor_division,
    exact=True,
    behind=frozenset({"Div"}),
)
UNSQUEEZED_SIZES = Rule(
    "unsqueezed_sizes",
    ("Unsqueeze",),
    unsqueezed_sizes,
    exact=True,
    since=13,
    behind=ARITHMETIC | {"Squeeze"},
)
