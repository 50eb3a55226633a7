"""Fuses or simplifies the rotary embedding ``x * cos + rotate_half(x) * sin``."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.ir_passes.fusions.matching import (
    both_orders,
    dimensions,
    emit_extent,
    scalar_constant,
    single_use,
)
from onnx_aot.ir_passes.rewriter import Rewriter, Rule

__all__ = [
    "ROTARY_EMBEDDING",
    "ROTARY_EMBEDDING_OF_HALVES",
    "ROTATED_HALVES",
    "Rotation",
    "halve_cache",
    "match_rotation",
]

ROWS = 2


@dataclasses.dataclass(frozen=True)
class Rotation:
    """A rotation of ``x [..., 2 * half]``."""

    x: ir.Value
    cos: ir.Value
    sin: ir.Value
    half: int
    first: ir.Node


def match_rotation(rewriter: Rewriter, node: ir.Node) -> Rotation | None:
    """The rotation whose last node is the given sum, or None."""
    for straight, turned in both_orders(node):
        product = single_use(rewriter, straight, "Mul")
        for rotated, sin in both_orders(single_use(rewriter, turned, "Mul")):
            concat = single_use(rewriter, rotated, "Concat")
            found = _match_rotated_halves(rewriter, concat)
            if found is None:
                continue
            for x, cos in both_orders(product):
                if x is found[0]:
                    assert product is not None
                    return Rotation(x, cos, sin, found[1], product)
    return None


def _match_rotated_halves(
    rewriter: Rewriter, concat: ir.Node | None
) -> tuple[ir.Value, int] | None:
    """Returns ``x`` and ``half`` of ``Concat(Neg(x[half:]), x[:half])`` on the last axis."""
    if concat is None or len(concat.inputs) != 2:
        return None
    low = concat.inputs[1]
    neg = single_use(rewriter, concat.inputs[0], "Neg")
    high = None if neg is None else neg.inputs[0]
    if high is None or low is None:
        return None
    high_part, low_part = _match_part(rewriter, high), _match_part(rewriter, low)
    if high_part is None or low_part is None or high_part[0] is not low_part[0]:
        return None
    x, sizes = low_part[0], dimensions(low_part[0])
    if sizes is None or not isinstance(sizes[-1], int) or sizes[-1] % 2:
        return None
    if concat.attributes["axis"].as_int() not in (-1, len(sizes) - 1):
        return None
    half = sizes[-1] // 2
    fits = low_part[1:] == (0, half) and high_part[1:] == (half, 2 * half)
    return (x, half) if fits else None


def _match_part(rewriter: Rewriter, value: ir.Value) -> tuple[ir.Value, int, int] | None:
    """Returns ``x``, ``first`` and ``end`` of a value that is ``x[..., first:end]``."""
    node = value.producer()
    x = None if node is None else node.inputs[0]
    sizes = dimensions(x)
    if node is None or node.domain or x is None or sizes is None:
        return None
    width, last = sizes[-1], len(sizes) - 1
    if not isinstance(width, int):
        return None
    if node.op_type == "Split" and node.attributes.get_int("axis", 0) in (-1, last):
        lengths = [(dimensions(output) or [0])[-1] for output in node.outputs]
        if width and lengths == [width // 2] * 2:
            index = node.outputs.index(value)
            return x, index * width // 2, (index + 1) * width // 2
    if node.op_type != "Slice":
        return None
    rest = [rewriter.constant(v) for v in node.inputs[1:]]
    if any(tensor is None or tensor.numel() != 1 for tensor in rest):
        return None
    start, end, axis, step = ([int(t.item()) for t in rest if t is not None] + [1])[:4]
    if axis not in (-1, last) or step != 1:
        return None
    return x, min(start % width if start < width else start, width), min(end, width)


def rotated_halves(node: ir.Node, rewriter: Rewriter) -> bool:
    """Saves two nodes per rotation, and the change of sign at every position.

    Before::

        y = Add(Mul(x, cos), Mul(Concat(Neg(Slice(x, half:)), Slice(x, :half)), sin))

    After::

        signed = Mul(sin, [-1, ..., 1, ...])      # shared by all rotations with this sine
        low, high = Split(x)
        y = Add(Mul(x, cos), Mul(Concat(high, low), signed))
    """
    found = match_rotation(rewriter, node)
    if found is None or rewriter.opset < 18:
        return False
    x, half, like = found.x, found.half, found.first
    sizes = dimensions(found.sin)
    if sizes is None or sizes[-1] != 2 * half or found.sin.dtype != x.dtype:
        return False
    dtype = dtypes.to_torch(found.sin.dtype)
    signs = torch.cat([-torch.ones(half, dtype=dtype), torch.ones(half, dtype=dtype)])
    signed = rewriter.emit(
        "Mul", [found.sin, rewriter.initializer(signs)], like=like, shape=found.sin.shape
    )
    parts = rewriter.emit_many(
        "Split", [x], {"axis": -1, "num_outputs": 2}, like=like, dtypes=[None, None]
    )
    assert x.shape is not None
    for part in parts:
        part.shape = ir.Shape([*x.shape[:-1], half])
    swapped = rewriter.emit("Concat", parts[::-1], {"axis": -1}, like=like, shape=x.shape)
    turned = rewriter.emit("Mul", [swapped, signed], like=like, shape=x.shape)
    straight = rewriter.emit("Mul", [x, found.cos], like=like, shape=x.shape)
    rewriter.replace(node.outputs[0], rewriter.emit("Add", [straight, turned], like=like))
    return True


def rotary_embedding(node: ir.Node, rewriter: Rewriter) -> bool:
    """Fuses a rotation into one node, whose caches have half the width.

    The caches are emitted once per pair of cosine and sine.

    Before::

        angles = Concat(a, a)
        cos, sin = Unsqueeze(Cos(angles), [1]), Unsqueeze(Sin(angles), [1])
        y = Add(Mul(x, cos), Mul(Concat(Neg(Slice(x, half:)), Slice(x, :half)), sin))

    After::

        y = RotaryEmbedding(x, Expand(Cos(a), [batch, 1, 1]), Expand(Sin(a), [batch, 1, 1]))

    ``x`` is ``[batch, heads, rows, 2 * half]``. Both halves of the caches must be the same value.
    """
    found = match_rotation(rewriter, node)
    if found is None:
        return False
    caches = []
    for value in (found.cos, found.sin):
        cache = _emit_cache(rewriter, value, found)
        if cache is None:
            return False
        caches.append(cache)
    emitted = rewriter.emit("RotaryEmbedding", [found.x, *caches], like=found.first)
    rewriter.replace(node.outputs[0], emitted)
    return True


def rotary_embedding_of_halves(node: ir.Node, rewriter: Rewriter) -> bool:
    """Fuses a rotation that is written in halves into one node.

    Before::

        cos, sin = Unsqueeze(Cos(a), [1]), Unsqueeze(Sin(a), [1])
        low, high = Split(x)
        y = Concat(Sub(Mul(low, cos), Mul(high, sin)), Add(Mul(high, cos), Mul(low, sin)))

    After::

        y = RotaryEmbedding(x, Cos(a), Sin(a))

    ``x`` is ``[batch, heads, rows, 2 * half]``.
    """
    found = _match_halves(rewriter, node)
    if found is None:
        return False
    caches = []
    for value in (found.cos, found.sin):
        inner = _without_heads(rewriter, value, found.x)
        if inner is None or (dimensions(inner) or [0])[-1] != found.half:
            return False
        caches.append(_expand_cache(rewriter, inner, found))
    emitted = rewriter.emit("RotaryEmbedding", [found.x, *caches], like=found.first)
    rewriter.replace(node.outputs[0], emitted)
    return True


def _match_halves(rewriter: Rewriter, node: ir.Node) -> Rotation | None:
    """The rotation whose last node joins the two halves of its result, or None."""
    if len(node.inputs) != 2 or node.attributes["axis"].as_int() not in (-1, 3):
        return None
    difference = single_use(rewriter, node.inputs[0], "Sub")
    total = single_use(rewriter, node.inputs[1], "Add")
    if difference is None or total is None:
        return None
    minuend, subtrahend = (single_use(rewriter, v, "Mul") for v in difference.inputs)
    for low, cos in both_orders(minuend):
        for high, sin in both_orders(subtrahend):
            parts = _match_part(rewriter, low), _match_part(rewriter, high)
            if parts[0] is None or parts[1] is None or parts[0][0] is not parts[1][0]:
                continue
            half = parts[0][2]
            bounds = parts[0][1:], parts[1][1:]
            sizes = dimensions(parts[0][0])
            if bounds != ((0, half), (half, 2 * half)) or sizes is None or sizes[-1] != 2 * half:
                continue
            wanted = {frozenset((high, cos)), frozenset((low, sin))}
            products = [single_use(rewriter, v, "Mul") for v in total.inputs]
            if {frozenset(p.inputs) for p in products if p is not None} == wanted:
                assert minuend is not None
                return Rotation(parts[0][0], cos, sin, half, minuend)
    return None


def halve_cache(rewriter: Rewriter, value: ir.Value, found: Rotation) -> ir.Value | None:
    """Half of a cosine or sine ``[batch or 1, 1, rows, 2 * half]``: ``[batch or 1, rows, half]``.

    None if its two halves are not the same value.
    """
    inner = _without_heads(rewriter, value, found.x)
    if inner is None or (dimensions(inner) or [0])[-1] != 2 * found.half:
        return None
    half = _first_half(rewriter, inner, found.half)
    return half if half is not None and half.shape is not None else None


def _without_heads(rewriter: Rewriter, value: ir.Value, x: ir.Value) -> ir.Value | None:
    """The ``[batch or 1, rows, width]`` that is unsqueezed for all heads of ``x``, or None."""
    given, sizes = dimensions(value), dimensions(x)
    unsqueeze = rewriter.producer(value, "Unsqueeze")
    axes = None if unsqueeze is None else rewriter.constant(unsqueeze.inputs[1])
    if given is None or unsqueeze is None or axes is None or axes.tolist() not in ([1], [-3]):
        return None
    if len(given) != 4 or sizes is None or len(sizes) != 4:
        return None
    fits = given[ROWS] == sizes[ROWS] and given[0] in (1, sizes[0])
    return unsqueeze.inputs[0] if fits else None


def _emit_cache(rewriter: Rewriter, value: ir.Value, found: Rotation) -> ir.Value | None:
    """The cache ``[batch, rows, half]`` in the form that the operator requires, or None."""
    half = halve_cache(rewriter, value, found)
    return None if half is None else _expand_cache(rewriter, half, found)


def _expand_cache(rewriter: Rewriter, half: ir.Value, found: Rotation) -> ir.Value:
    """A cache ``[batch or 1, rows, half]`` for every element of the batch."""
    given, sizes = dimensions(half), dimensions(found.x)
    assert half.shape is not None
    if given is None or sizes is None or given[0] == sizes[0]:
        return half
    batch = emit_extent(rewriter, found.x, 0, found.first)
    ones = rewriter.initializer(torch.ones(2, dtype=torch.int64))
    target = rewriter.emit("Concat", [batch, ones], {"axis": 0}, like=found.first, shape=[3])
    assert found.x.shape is not None
    wanted = ir.Shape([found.x.shape[0], *half.shape[1:]])
    return rewriter.emit("Expand", [half, target], like=found.first, shape=wanted)


def _first_half(rewriter: Rewriter, value: ir.Value, half: int) -> ir.Value | None:
    """The first half of a value whose last axis consists of two equal halves by construction."""
    node = value.producer()
    if node is None or node.domain or value.shape is None:
        return None
    shape = ir.Shape([*value.shape[:-1], half])
    if node.op_type == "Concat":
        last = len(shape) - 1
        same = len(node.inputs) == 2 and node.inputs[0] is node.inputs[1]
        fits = node.attributes["axis"].as_int() in (-1, last)
        return node.inputs[0] if same and fits else None
    if node.op_type in ("Cos", "Sin", "Cast"):
        source, others = node.inputs[0], []
    elif node.op_type == "Mul":
        pairs = [(a, b) for a, b in both_orders(node) if scalar_constant(rewriter, b) is not None]
        if not pairs or pairs[0][0].shape is None or len(pairs[0][0].shape) != len(shape):
            return None
        source, others = pairs[0][0], [pairs[0][1]]
    else:
        return None
    inner = None if source is None else _first_half(rewriter, source, half)
    if inner is None:
        return None
    return rewriter.emit(
        node.op_type, [inner, *others], node.attributes, like=node, dtype=value.dtype, shape=shape
    )


ROTARY_EMBEDDING = Rule("rotary_embedding", ("Add",), rotary_embedding, exact=False, since=23)
ROTARY_EMBEDDING_OF_HALVES = Rule(
    "rotary_embedding_of_halves", ("Concat",), rotary_embedding_of_halves, exact=False, since=23
)
ROTATED_HALVES = Rule("rotated_halves", ("Add",), rotated_halves, exact=True, since=18)
