"""Merges consecutive nodes that only rearrange or select elements."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from onnx_aot.ir_passes.rewriter import Rewriter, Rule
from onnx_aot.ir_passes.shapes import Dim, dims, rank

__all__ = [
    "CONSTANT_RESHAPE",
    "GATHER_UNSQUEEZED",
    "MERGE_RESHAPES",
    "MERGE_SLICES",
    "MERGE_SQUEEZES",
    "MERGE_TRANSPOSES",
    "MOVED_ONES",
]

VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten"})


def merge_reshapes(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Reshape(Reshape(x, _), s)`` -> ``Reshape(x, s)``, also of Squeeze, Unsqueeze and Flatten.

    A Transpose counts too, if it moves only axes of size 1. Sizes that ``s`` copies from what is
    removed are copied from ``x`` or computed, if the recorded shapes prove them.
    """
    inner = _find_view(node.inputs[0], rewriter) or _find_moved_ones(node.inputs[0], rewriter)
    if inner is None or not all(map(rewriter.of_shapes, inner.inputs[1:])):
        return False
    if _copies_nothing(node, rewriter):
        inputs = [inner.inputs[0], node.inputs[1]]
        new = rewriter.emit("Reshape", inputs, node.attributes, like=inner)
    else:
        sizes = _find_reshape_sizes(dims(inner.inputs[0]), dims(node.outputs[0]))
        if sizes is None or not rewriter.of_shapes(node.inputs[1]):
            return False
        shape = rewriter.initializer(torch.tensor(sizes, dtype=torch.int64))
        new = rewriter.emit("Reshape", [inner.inputs[0], shape], like=inner)
    rewriter.replace(node.outputs[0], new)
    return True


def _find_view(value: ir.Value | None, rewriter: Rewriter) -> ir.Node | None:
    node = None if value is None else value.producer()
    return node if node is not None and node.op_type in VIEWS and not node.domain else None


def _find_moved_ones(value: ir.Value | None, rewriter: Rewriter) -> ir.Node | None:
    """The Transpose that computes a value, if it moves only axes of size 1.

    That of a matrix product stays: attention is recognized by it, also with one head.
    """
    node = rewriter.producer(value, "Transpose")
    if node is None or rewriter.producer(node.inputs[0], "MatMul") is not None:
        return None
    return node if _moves_only_ones(node) else None


def _moves_only_ones(transpose: ir.Node) -> bool:
    order, sizes = transpose.attributes.get_ints("perm"), dims(transpose.inputs[0])
    if order is None or sizes is None:
        return False
    others = [axis for axis in order if sizes[axis] != 1]
    return others == sorted(others)


def _copies_nothing(node: ir.Node, rewriter: Rewriter) -> bool:
    if node.attributes.get_int("allowzero", 0):
        return True
    sizes = rewriter.constant(node.inputs[1])
    return sizes is not None and not bool((sizes == 0).any())


def moved_ones(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Transpose(x: [b, 1, 8], perm=[0, 2, 1])`` -> ``Reshape(x, [0, 8, 1])``.

    Applies if only axes of size 1 move. A Reshape or the like before the Transpose goes with it.
    """
    if not _moves_only_ones(node):
        return False
    inner = _find_view(node.inputs[0], rewriter)
    if inner is not None and rewriter.only_use(inner.outputs[0]):
        given = all(map(rewriter.of_shapes, inner.inputs[1:]))
        if given and _replace_by_reshape(node, inner.inputs[0], inner, rewriter):
            return True
    return _replace_by_reshape(node, node.inputs[0], node, rewriter)


def _replace_by_reshape(
    node: ir.Node, source: ir.Value | None, like: ir.Node, rewriter: Rewriter
) -> bool:
    sizes = _find_reshape_sizes(dims(source), dims(node.outputs[0]))
    if sizes is None:
        return False
    shape = rewriter.initializer(torch.tensor(sizes, dtype=torch.int64))
    new = rewriter.emit("Reshape", [source, shape], like=like)
    rewriter.replace(node.outputs[0], new)
    return True


def constant_reshape(node: ir.Node, rewriter: Rewriter) -> bool:
    """A computed shape -> a constant, if the recorded shapes prove it.

    ``Reshape(x: [b, 6], Concat(Shape(x)[0:1], [2, 3]))`` -> ``Reshape(x, [0, 2, 3])``. A size that
    is not a copy of the operand's size in its place becomes -1 if all others are known and not 0.
    """
    if rewriter.constant(node.inputs[1]) is not None:
        return False
    sizes = _find_reshape_sizes(dims(node.inputs[0]), dims(node.outputs[0]))
    if sizes is None or not rewriter.of_shapes(node.inputs[1]):
        return False
    shape = rewriter.initializer(torch.tensor(sizes, dtype=torch.int64))
    new = rewriter.emit("Reshape", [node.inputs[0], shape], like=node)
    rewriter.replace(node.outputs[0], new)
    return True


def _find_reshape_sizes(
    before: Sequence[Dim] | None, after: Sequence[Dim] | None
) -> list[int] | None:
    """The constant that reshapes ``before`` to ``after`` at every size; None if there is none."""
    if before is None or after is None:
        return None
    sizes = []
    for place, size in enumerate(after):
        if isinstance(size, int) and size > 0:
            sizes.append(size)
        elif isinstance(size, str) and place < len(before) and before[place] == size:
            sizes.append(0)
        elif isinstance(size, str):
            sizes.append(-1)
        else:
            return None
    if sizes.count(-1) > 1 or (-1 in sizes and 0 in sizes):
        return None  # for a value without elements, -1 cannot be inferred
    return sizes


def merge_squeezes(node: ir.Node, rewriter: Rewriter) -> bool:
    """Merges the axes of consecutive Unsqueeze or Squeeze nodes, or merges them into a Reshape.

    ``Unsqueeze(Unsqueeze(x, a), b)`` -> ``Unsqueeze(x, both)``, also for Squeeze;
    ``Squeeze(Reshape(x, s), a)`` -> ``Reshape(x, s without a)``, also for Unsqueeze.
    """
    inner = _find_view(node.inputs[0], rewriter)
    axes = rewriter.constant(node.inputs[1]) if len(node.inputs) > 1 else None
    known = rank(node.inputs[0])
    if inner is None or axes is None or known is None or not inner.inputs[1:]:
        return False
    adds = node.op_type == "Unsqueeze"
    total = known + len(axes) if adds else known
    wanted = sorted(int(axis) % total for axis in axes)
    if inner.op_type == node.op_type:
        return _merge_axes(node, inner, wanted, rewriter)
    if inner.op_type == "Reshape" and rewriter.only_use(inner.outputs[0]):
        return _merge_into_reshape(node, inner, wanted, rewriter)
    return False


def _merge_axes(node: ir.Node, inner: ir.Node, outer: Sequence[int], rewriter: Rewriter) -> bool:
    first, before = rewriter.constant(inner.inputs[1]), rank(inner.inputs[0])
    between = rank(node.inputs[0])
    if first is None or before is None or between is None:
        return False
    if node.op_type == "Unsqueeze":
        # axes of the result; those of the inner node are counted without the outer's
        left = [place for place in range(between + len(outer)) if place not in outer]
        axes = sorted([*outer, *(left[int(axis) % between] for axis in first)])
    else:
        left = [p for p in range(before) if p not in {int(axis) % before for axis in first}]
        axes = sorted([*(int(axis) % before for axis in first), *(left[a] for a in outer)])
    joined = rewriter.initializer(torch.tensor(axes, dtype=torch.int64))
    new = rewriter.emit(node.op_type, [inner.inputs[0], joined], like=inner)
    rewriter.replace(node.outputs[0], new)
    return True


def _merge_into_reshape(
    node: ir.Node, inner: ir.Node, axes: Sequence[int], rewriter: Rewriter
) -> bool:
    constant = rewriter.constant(inner.inputs[1])
    if constant is None or inner.attributes.get_int("allowzero"):
        return False
    sizes = [int(size) for size in constant]
    if 0 in sizes[min(axes) :]:  # a 0 would copy the size of another axis
        return False
    if node.op_type == "Unsqueeze":
        for axis in axes:
            sizes.insert(axis, 1)
    elif all(sizes[axis] == 1 for axis in axes):
        sizes = [size for place, size in enumerate(sizes) if place not in axes]
    else:
        return False
    shape = rewriter.initializer(torch.tensor(sizes, dtype=torch.int64))
    new = rewriter.emit("Reshape", [inner.inputs[0], shape], like=inner)
    rewriter.replace(node.outputs[0], new)
    return True


def merge_transposes(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Transpose(Transpose(x, p), q)`` -> ``Transpose(x, p[q])``."""
    inner = rewriter.producer(node.inputs[0], "Transpose")
    outer = node.attributes.get_ints("perm")
    first = None if inner is None else inner.attributes.get_ints("perm")
    if inner is None or outer is None or first is None:
        return False
    order = [first[axis] for axis in outer]
    new = rewriter.emit("Transpose", inner.inputs, {"perm": order}, like=inner)
    rewriter.replace(node.outputs[0], new)
    return True


def gather_unsqueezed(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Unsqueeze(Gather(x, i, axis=a), a)`` -> ``Gather(x, [i], axis=a)``, for a number ``i``."""
    inner = rewriter.producer(node.inputs[0], "Gather")
    axes, known = rewriter.constant(node.inputs[1]), rank(node.outputs[0])
    if inner is None or axes is None or known is None or not rewriter.only_use(inner.outputs[0]):
        return False
    index = rewriter.constant(inner.inputs[1])
    axis = inner.attributes.get_int("axis", 0) % known
    if index is None or index.ndim != 0 or [int(a) % known for a in axes] != [axis]:
        return False
    inputs = [inner.inputs[0], rewriter.initializer(index.reshape(1))]
    new = rewriter.emit("Gather", inputs, {"axis": axis}, like=inner)
    rewriter.replace(node.outputs[0], new)
    return True


def merge_slices(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Slice(Slice(x, ..., axes=[a]), ..., axes=[b])`` -> ``Slice(x, ..., axes=[a, b])``.

    Applies if bounds are constants, the axes differ, and only such nodes read the inner result.
    """
    inner = rewriter.producer(node.inputs[0], "Slice")
    if inner is None or inner.outputs[0].is_graph_output():
        return False
    readers = inner.outputs[0].consumers()
    axes = _find_slice_axes(inner, rewriter)
    if axes is None or not all(
        reader.graph is node.graph
        and (found := _find_slice_axes(reader, rewriter)) is not None
        and found.isdisjoint(axes)
        for reader in readers
    ):
        return False
    known = rank(node.inputs[0])
    bounds = []
    for cut in (inner, node):
        given = [rewriter.constant(value) for value in cut.inputs[1:]]
        if len(given) < 3 or known is None or any(part is None for part in given):
            return False
        starts, ends, along, *steps = (part.to(torch.int64) for part in given if part is not None)
        bounds.append((starts, ends, along % known, *(steps or [torch.ones_like(starts)])))
    joined = [rewriter.initializer(torch.cat(parts)) for parts in zip(*bounds, strict=True)]
    new = rewriter.emit("Slice", [inner.inputs[0], *joined], like=inner)
    rewriter.replace(node.outputs[0], new)
    return True


def _find_slice_axes(node: ir.Node, rewriter: Rewriter) -> set[int] | None:
    """The axes of a Slice with constant bounds; None for other nodes."""
    known = rank(node.inputs[0]) if node.inputs else None
    if node.op_type != "Slice" or node.domain or known is None or len(node.inputs) < 4:
        return None
    given = [rewriter.constant(value) for value in node.inputs[1:]]
    axes = given[2]
    if axes is None or any(part is None for part in given):
        return None
    return {int(axis) % known for axis in axes}


MERGE_RESHAPES = Rule(
    "merge_reshapes",
    ("Reshape",),
    merge_reshapes,
    exact=True,
    behind=VIEWS | {"Transpose"},
)
CONSTANT_RESHAPE = Rule("constant_reshape", ("Reshape",), constant_reshape, exact=True, since=14)
MERGE_SQUEEZES = Rule(
    "merge_squeezes",
    ("Squeeze", "Unsqueeze"),
    merge_squeezes,
    exact=True,
    since=13,
    behind=VIEWS,
)
MERGE_TRANSPOSES = Rule(
    "merge_transposes",
    ("Transpose",),
    merge_transposes,
    exact=True,
    behind=frozenset({"Transpose"}),
)
GATHER_UNSQUEEZED = Rule(
    "gather_unsqueezed",
    ("Unsqueeze",),
    gather_unsqueezed,
    exact=True,
    since=13,
    behind=frozenset({"Gather"}),
)
MERGE_SLICES = Rule(
    "merge_slices",
    ("Slice",),
    merge_slices,
    exact=True,
    since=10,
    behind=frozenset({"Slice"}),
)
MOVED_ONES = Rule("moved_ones", ("Transpose",), moved_ones, exact=True, since=5)
