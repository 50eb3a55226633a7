"""Recognizes the mask of causal attention on a cache: what follows, a window, and padding."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from onnx_aot.ir_passes.fusions.bounds import counts_up
from onnx_aot.ir_passes.fusions.contrib import mask_of_bias, split_conjunction
from onnx_aot.ir_passes.fusions.matching import both_orders, dimensions, scalar_constant
from onnx_aot.ir_passes.rewriter import Rewriter

__all__ = ["CacheMask", "match_cache_mask"]

VIEWS = ("Unsqueeze", "Squeeze", "Reshape", "Expand", "Identity")
COMPARISONS = ("LessOrEqual", "Less", "GreaterOrEqual", "Greater")


@dataclasses.dataclass(frozen=True)
class CacheMask:
    """The tokens so far that a causal mask leaves.

    Attributes:
        mask: A graph input ``[batch, total]``, INT64 with zeros at padding.
        window: The number of tokens up to the query's own that it attends to; None: all.
    """

    mask: ir.Value
    window: int | None


def match_cache_mask(
    rewriter: Rewriter, bias: ir.Value | None, rows: int | str
) -> CacheMask | None:
    """The parts of a bias on scores ``[batch, heads, rows, total]``; None if it has others.

    Args:
        rewriter: Looks at the graph.
        bias: Zero where a token is attended to, and else a low number.
        rows: Size of the dimension of new tokens.
    """
    found, sizes = mask_of_bias(rewriter, bias), dimensions(bias)
    if found is None or sizes is None:
        return None
    padding, is_causal, windows = [], False, []
    for part in split_conjunction(rewriter, found):
        distance = _compared_distance(rewriter, part, rows, sizes[-1])
        if distance is None:
            padding.append(_padding_input(rewriter, part, sizes[-1]))
        elif distance == (False, 0):
            is_causal = True
        elif distance[0] and distance[1] < 1:
            windows.append(1 - distance[1])
        else:
            return None
    if not is_causal or len(padding) != 1 or padding[0] is None or len(windows) > 1:
        return None
    return CacheMask(padding[0], windows[0] if windows else None)


def _padding_input(rewriter: Rewriter, part: ir.Value, total: int | str) -> ir.Value | None:
    """The graph input whose elements, as a mask, a part of a mask repeats for every row."""
    sizes = dimensions(part)
    if sizes is None or len(sizes) != 4 or sizes[1:] != [1, 1, total]:
        return None
    cast = rewriter.producer(_strip_views(rewriter, part), "Cast")
    given = None if cast is None else cast.inputs[0]
    if given is None or not given.is_graph_input() or given.dtype != ir.DataType.INT64:
        return None
    if cast is None or cast.outputs[0].dtype != ir.DataType.BOOL:
        return None
    return given if dimensions(given) == [sizes[0], total] else None


def _compared_distance(
    rewriter: Rewriter, part: ir.Value, rows: int | str, total: int | str
) -> tuple[bool, int] | None:
    """Reads a comparison of indices of keys and queries as a bound of ``key - query``.

    Returns:
        True and the least, or False and the greatest; None if it is no such comparison.
    """
    node = part.producer()
    if node is None or node.domain or node.op_type not in COMPARISONS:
        return None
    strict = 0 if node.op_type.endswith("OrEqual") else 1
    for (left, right), is_first in zip(both_orders(node), (True, False), strict=True):
        key = _offset_of(rewriter, left, -1, total, None)
        query = _offset_of(rewriter, right, -2, rows, total)
        if key is None or query is None:
            continue
        # key + a <= query + b, or >=, of which both are whole numbers
        is_least = node.op_type.startswith("Greater") is is_first
        distance = query - key
        return is_least, distance + strict if is_least else distance - strict
    return None


def _offset_of(
    rewriter: Rewriter, value: ir.Value | None, axis: int, size: int | str, total: int | str | None
) -> int | None:
    """The number that is added to indices of tokens, which vary along one axis alone.

    Args:
        rewriter: Looks at the graph.
        value: The sum.
        axis: The axis along which it varies.
        size: The size of that axis.
        total: None if indices count from 0; else they are the last ``size`` ones of so many.
    """
    sizes = dimensions(value)
    if sizes is None or len(sizes) < -axis or sizes[axis] != size:
        return None
    if any(n != 1 for i, n in enumerate(sizes) if i != len(sizes) + axis):
        return None
    offset, is_shifted = 0, total is None
    for _ in range(8):
        value = _strip_views(rewriter, value)
        if value is None or counts_up(rewriter, value):
            break
        inner = None
        for op_type, sign in (("Add", 1), ("Sub", -1)):
            for first, second in both_orders(rewriter.producer(value, op_type)):
                number = scalar_constant(rewriter, second)
                if number is not None and number.is_integer():
                    offset, inner = offset + sign * int(number), first
                elif not is_shifted and sign > 0 and _is_past(rewriter, second, size, total):
                    is_shifted, inner = True, first
                if inner is not None or op_type == "Sub":
                    break
        if inner is None:
            return None
        value = inner
    if not is_shifted or dimensions(value) != [size] or not counts_up(rewriter, value):
        return None
    return offset


def _is_past(
    rewriter: Rewriter, value: ir.Value | None, rows: int | str, total: int | str | None
) -> bool:
    """Returns True if a value is the number of tokens before the new ones."""
    shape = rewriter.producer(_strip_views(rewriter, value), "Shape")
    sizes = None if shape is None else dimensions(shape.inputs[0])
    if shape is None or sizes is None:
        return False
    start, end = shape.attributes.get_int("start", 0), shape.attributes.get_int("end", len(sizes))
    axes = range(len(sizes))[start:end]
    return len(axes) == 1 and total == f"{sizes[axes[0]]} + {rows}"


def _strip_views(rewriter: Rewriter, value: ir.Value | None) -> ir.Value | None:
    """The value that others only move or repeat."""
    while value is not None:
        node = value.producer()
        if node is None or node.domain or node.op_type not in VIEWS:
            return value
        value = node.inputs[0]
    return None
