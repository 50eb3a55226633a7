"""Applies a write through a view to the tensor that it is a view of."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from onnx_aot.errors import FunctionalizationError
from onnx_aot.torch_compat import OpOverload, aten, schema_of

__all__ = ["OF_A_LIST", "is_identity", "write_back"]

Call = Callable[..., torch.fx.Node]

# Views with the elements in the same order: the written value takes the parent's shape.
RESHAPES = frozenset(
    {
        aten._reshape_alias.default,
        aten._unsafe_view.default,
        aten.atleast_1d.default,
        aten.atleast_2d.default,
        aten.atleast_3d.default,
        aten.flatten.using_ints,
        aten.ravel.default,
        aten.reshape.default,
        aten.reshape_as.default,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.squeeze_.default,
        aten.squeeze_.dim,
        aten.squeeze_.dims,
        aten.unflatten.int,
        aten.unsqueeze.default,
        aten.unsqueeze_.default,
        aten.view.default,
        aten.view_as.default,
    }
)

# The same, if they do not repeat elements.
EXPANDS = frozenset({aten.expand.default, aten.expand_as.default})

# Views of a list of tensors; each result shows the tensor at its place, expanded or reshaped.
OF_A_LIST = frozenset(
    {
        aten.atleast_1d.Sequence,
        aten.atleast_2d.Sequence,
        aten.atleast_3d.Sequence,
        aten.broadcast_tensors.default,
        aten.meshgrid.default,
        aten.meshgrid.indexing,
    }
)

# Views that are their own inverse, and the operator that inverts them.
SWAPS = {
    aten.transpose.int: aten.transpose.int,
    aten.transpose_.default: aten.transpose.int,
    aten.swapaxes.default: aten.transpose.int,
    aten.swapaxes_.default: aten.transpose.int,
    aten.swapdims.default: aten.transpose.int,
    aten.swapdims_.default: aten.transpose.int,
    aten.t.default: aten.t.default,
    aten.t_.default: aten.t.default,
    aten.numpy_T.default: aten.numpy_T.default,
    aten.mT.default: aten.mT.default,
}

# Operators that write into a part; they take the view's own arguments after the value.
SCATTERS = {
    aten.as_strided.default: aten.as_strided_scatter.default,
    aten.diagonal.default: aten.diagonal_scatter.default,
    aten.select.int: aten.select_scatter.default,
    aten.slice.Tensor: aten.slice_scatter.default,
}

# Views that are pieces along an axis, with the position of the axis among the arguments.
SPLITS = {
    aten.chunk.default: 2,
    aten.split.Tensor: 2,
    aten.split.sizes: 2,
    aten.split_with_sizes.default: 2,
    aten.tensor_split.sections: 2,
    aten.tensor_split.indices: 2,
}


def is_identity(node: torch.fx.Node, parent: torch.fx.Node) -> bool:
    """True if a view shows exactly its parent: same dtype, sizes, strides and offset."""
    view, base = node.meta["val"], parent.meta["val"]
    return (
        view.dtype == base.dtype
        and view.dim() == base.dim()
        and all(map(_is_same_size, view.shape, base.shape))
        and all(map(_is_same_size, view.stride(), base.stride()))
        and _is_same_size(view.storage_offset(), base.storage_offset())
    )


def _is_same_size(left: Any, right: Any) -> bool:
    """True if sizes are equal as text; comparing symbols would add guards to the capture."""
    return (
        left == right
        if isinstance(left, int) and isinstance(right, int)
        else (str(left) == str(right))
    )


def write_back(
    call: Call,
    via: torch.fx.Node,
    index: Any,
    parent: torch.fx.Node,
    parent_now: torch.fx.Node,
    value: torch.fx.Node,
    read: Callable[[torch.fx.Node], torch.fx.Node],
) -> torch.fx.Node:
    """Returns the parent's elements after ``value`` was written to a view of it.

    Args:
        call: ``call(target, args, kwargs, like)`` adds a node shaped like a captured node.
        via: The captured call that made the view.
        index: Index of the view among the call's results, or None if there is only one.
        parent: The captured node that the view looks into.
        parent_now: The parent's elements before the write.
        value: What was written.
        read: Returns the current elements of any other captured node among the call's arguments.

    Raises:
        FunctionalizationError: The view has no inverse here.
    """
    rest = torch.fx.map_arg(via.args[1:], read)
    options = torch.fx.map_arg(via.kwargs, read)
    target = via.target
    if target in EXPANDS or target in OF_A_LIST:
        _refuse_repeated(via, index, parent)
    if target in RESHAPES or target in EXPANDS or target in OF_A_LIST:
        return call(aten.reshape_as.default, (value, parent_now), {}, parent)
    if target in SWAPS:
        return call(SWAPS[target], (value, *rest), {}, parent)
    if target == aten.permute.default:
        order = [int(d) % len(via.args[1]) for d in via.args[1]]  # type: ignore[arg-type, union-attr]
        inverse = [order.index(axis) for axis in range(len(order))]
        return call(aten.permute.default, (value, inverse), {}, parent)
    if target in (aten.movedim.int, aten.movedim.intlist):
        return call(target, (value, via.args[2], via.args[1]), {}, parent)
    if target in SCATTERS:
        return call(SCATTERS[target], (parent_now, value, *rest), options, parent)
    if target == aten.narrow.default:
        return _narrow(call, rest, parent, parent_now, value)
    if target == aten.unfold.default:
        return _scatter_windows(call, via, parent, parent_now, value)
    if target == aten.unbind.int:
        axis = via.args[1] if len(via.args) > 1 else 0
        return call(aten.select_scatter.default, (parent_now, value, axis, index), {}, parent)
    if target in SPLITS:
        again = call(target, (parent_now, *rest), options, via)
        pieces = [
            value if i == index else call(operator.getitem, (again, i), {}, None)
            for i in range(len(via.meta["val"]))
        ]
        for piece, recorded in zip(pieces, via.meta["val"], strict=True):
            piece.meta.setdefault("val", recorded)
        position = SPLITS[target]
        axis = via.args[position] if len(via.args) > position else via.kwargs.get("dim", 0)
        return call(aten.cat.default, (pieces, axis), {}, parent)
    schema = schema_of(target) if isinstance(target, OpOverload) else None
    if schema is None or any(result.alias_info is not None for result in schema.returns):
        raise FunctionalizationError(f"a write through a view made by {target} cannot be expressed")
    raise FunctionalizationError(
        f"a write through a view made by {target} cannot be expressed: its schema does not say "
        "that its result shares memory. Write to a clone() of it, or to the viewed tensor",
        torch_has_one=False,
    )


def _refuse_repeated(via: torch.fx.Node, index: int | None, parent: torch.fx.Node) -> None:
    """Checks that a view repeats no element; a write could not be attributed to one of them.

    Raises:
        FunctionalizationError: The view has, or may have at other sizes, more elements.
    """
    recorded = via.meta["val"] if index is None else via.meta["val"][index]
    shapes = (recorded.shape, parent.meta["val"].shape)
    shown, base = ([str(size) for size in shape if str(size) != "1"] for shape in shapes)
    if shown == base:
        return
    raise FunctionalizationError(
        f"a write through a view made by {via.target} cannot be expressed, because the view may "
        "repeat elements. Write to the tensor before it is expanded, or to a clone() of the view",
        torch_has_one=False,
    )


def _scatter_windows(
    call: Call, via: torch.fx.Node, parent: torch.fx.Node, parent_now: torch.fx.Node, value: Any
) -> torch.fx.Node:
    """Writes windows back, one place of all windows after the other: they are slices with a step.

    Raises:
        FunctionalizationError: The windows overlap.
    """
    axis, size, step = via.args[1:4]
    if not all(isinstance(number, int) for number in (axis, size, step)) or size > step:  # type: ignore[operator]
        raise FunctionalizationError(
            "a write through unfold cannot be expressed, because its windows share elements. Write "
            "to the tensor itself, or to a clone() of the windows",
            torch_has_one=False,
        )
    recorded = via.meta["val"]
    axis = axis % parent.meta["val"].dim() if parent.meta["val"].dim() else 0
    count: Any = recorded.shape[axis]
    if not isinstance(count, int):
        count = call(aten.sym_size.int, (value, axis), {}, None)
        count.meta["val"] = recorded.shape[axis]
    result = parent_now
    for place in range(size):  # type: ignore[arg-type]
        slices = call(aten.select.int, (value, -1, place), {}, None)
        slices.meta["val"] = recorded.select(-1, place)
        end = _compute(call, operator.add, _compute(call, operator.mul, count, step), place + 1)
        end = _compute(call, operator.sub, end, step)
        given = (result, slices, axis, place, end, step)
        result = call(aten.slice_scatter.default, given, {}, parent)
    return result


def _compute(call: Call, operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Computes a size, in the graph if it is dynamic."""
    if not isinstance(left, torch.fx.Node):
        return operation(left, right)
    node = call(operation, (left, right), {}, None)
    node.meta["val"] = operation(left.meta["val"], right)
    return node


def _narrow(
    call: Call, rest: Any, parent: torch.fx.Node, parent_now: torch.fx.Node, value: Any
) -> torch.fx.Node:
    axis, start, length = rest[:3]
    if isinstance(start, torch.fx.Node) or isinstance(length, torch.fx.Node):
        end: Any = call(operator.add, (start, length), {}, None)
        end.meta["val"] = _number(start) + _number(length)
    else:
        end = start + length
        if start < 0 and end == 0:
            end = None
    return call(aten.slice_scatter.default, (parent_now, value, axis, start, end), {}, parent)


def _number(size: Any) -> Any:
    return size.meta["val"] if isinstance(size, torch.fx.Node) else size
