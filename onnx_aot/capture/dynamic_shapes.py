"""Which dimensions the user wants dynamic, in every form that users write it.

All forms become one: per leaf of the inputs, ``{axis: dimension}``. From it come the nested
specification that ``torch.export`` takes and the names that the ONNX model gets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import Dim

from onnx_aot.capture.inputs import Arguments
from onnx_aot.errors import DynamicShapeError
from onnx_aot.torch_compat import example_size, pytree

__all__ = ["DynamicShapes", "RequestedDim", "resolve_dynamic_shapes"]

_HINTS = (type(Dim.DYNAMIC),)


@dataclasses.dataclass(frozen=True)
class RequestedDim:
    """One dimension that was asked to be dynamic.

    Attributes:
        leaf: Which leaf of the flattened inputs.
        path: The leaf as the user would write it, such as ``inputs[0]['x']``.
        axis: Which of its dimensions, not negative.
        name: The user's name for it, or None. A derived ``Dim`` such as ``2*n`` has its root's.
        derived: Whether it is such a ``Dim``.
        may_be_static: Whether the user left the decision to the capture (``Dim.AUTO``).
    """

    leaf: int
    path: str
    axis: int
    name: str | None
    derived: bool
    may_be_static: bool


@dataclasses.dataclass(frozen=True)
class DynamicShapes:
    """The request in the form that ``torch.export`` takes, and dimension by dimension."""

    spec: dict[str, Any] | None
    requested: tuple[RequestedDim, ...]


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One leaf of the inputs: its path, the name torch gives it, and its value."""

    path: str
    name: str
    value: Any


def resolve_dynamic_shapes(
    arguments: Arguments,
    dynamic_shapes: Any,
    dynamic_axes: Mapping[str, Any] | None,
    input_names: Sequence[str],
    output_names: Sequence[str],
) -> DynamicShapes:
    """Reads ``dynamic_shapes`` or, where that is None, ``dynamic_axes``.

    Args:
        arguments: The example inputs by parameter.
        dynamic_shapes: A dict by parameter name, by name in ``input_names`` or by flattened input
            name; or a tuple or list in the order of the arguments; nested as the inputs are. A
            dimension is a string, a ``Dim``, ``Dim.AUTO``, ``Dim.DYNAMIC``, an int or None. One
            string for a whole argument is the name of the first dimension of each of its tensors.
        dynamic_axes: ``{name: {axis: dimension name}}`` or ``{name: [axes]}``, names being those of
            ``input_names`` or flattened input names; names of outputs are ignored.
        input_names: Names that the tensors among the inputs get, in order.
        output_names: Names that the outputs get.

    Raises:
        DynamicShapeError: The request does not fit the inputs.
    """
    bound = arguments.values
    leaves = list(_leaves(bound))
    names = _tensor_names(leaves, input_names)
    dimensions: list[dict[int, Any]] = [{} for _ in leaves]
    scalars: dict[int, Any] = {}
    if dynamic_shapes is not None:
        if isinstance(dynamic_shapes, (list, tuple)):
            dynamic_shapes = _by_name(arguments.signature_order, dynamic_shapes)
        for index, given in _by_leaf(bound, leaves, names, dynamic_shapes):
            if type(leaves[index].value) is int and isinstance(given, _HINTS):
                scalars[index] = given
            else:
                dimensions[index] = _axes(leaves[index], given)
    elif dynamic_axes is not None:
        for name, given in dynamic_axes.items():
            if name in names:
                index = names[name]
                dimensions[index] = _axes(leaves[index], _axes_of_dynamic_axes(name, given))
            elif name not in output_names:
                raise DynamicShapeError(
                    f"dynamic_axes names {name!r}, which is neither an input nor an output; "
                    f"inputs are {', '.join(names)}"
                )
    requested = tuple(
        RequestedDim(
            leaf=index,
            path=leaves[index].path,
            axis=axis,
            name=_name(dim),
            derived=hasattr(dim, "root"),
            may_be_static=_may_be_static(dim),
        )
        for index, axes in enumerate(dimensions)
        for axis, dim in axes.items()
        if _is_dynamic(dim)
    )
    if not requested and not scalars:
        return DynamicShapes(None, ())
    _refuse_unequal(requested, leaves)
    remaining = iter(
        scalars.get(index)
        or {axis: Dim.DYNAMIC if isinstance(dim, str) else dim for axis, dim in axes.items()}
        or None
        for index, axes in enumerate(dimensions)
    )
    spec = {name: _mirror(value, remaining) for name, value in bound.items()}
    return DynamicShapes(spec, requested)


def _by_name(order: Sequence[str], given: Sequence[Any]) -> dict[str, Any]:
    if len(given) > len(order):
        raise DynamicShapeError(
            f"dynamic_shapes has {len(given)} entries, the model got {len(order)} arguments: "
            f"{', '.join(order)}"
        )
    return dict(zip(order, given, strict=False))


def _refuse_unequal(requested: Sequence[RequestedDim], leaves: Sequence[Leaf]) -> None:
    """A name stands for one size, so the example must not contradict it."""
    first: dict[str, tuple[str, int]] = {}
    for dim in requested:
        size = example_size(leaves[dim.leaf].value.shape[dim.axis])
        if dim.name is None or dim.derived or size is None:
            continue
        where, other = first.setdefault(dim.name, (f"{dim.path}, axis {dim.axis}", size))
        if other != size:
            raise DynamicShapeError(
                f"dynamic_shapes gives the name {dim.name!r} to dimensions of different sizes: "
                f"{where} is {other}, {dim.path}, axis {dim.axis} is {size}. A name stands for one "
                "size; give them two names"
            )


# --- leaves and their names ----------------------------------------------------------------------


def _leaves(bound: Mapping[str, Any]) -> Iterator[Leaf]:
    found, _ = pytree.tree_flatten_with_path(dict(bound))
    for path, value in found:
        parts = [_key(entry) for entry in path]
        yield Leaf(parts[0] + pytree.keystr(path[1:]), "_".join(parts), value)


def _key(entry: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)


def _tensor_names(leaves: Sequence[Leaf], input_names: Sequence[str]) -> dict[str, int]:
    """Every name by which a user may mean a tensor: torch's, the path, and the one in the model."""
    names: dict[str, int] = {}
    tensors = [i for i, leaf in enumerate(leaves) if isinstance(leaf.value, torch.Tensor)]
    for index in tensors:
        names.setdefault(leaves[index].name, index)
        names.setdefault(leaves[index].path, index)
    return names | dict(zip(input_names, tensors, strict=False))


def _mirror(value: Any, remaining: Iterator[Any]) -> Any:
    """The leaves' specifications in containers of the inputs' structure."""
    children = _children(value)
    if children is None:
        return next(remaining)
    mirrored = [_mirror(child, remaining) for _, child in children]
    if _is_named_tuple(value):
        return type(value)(*mirrored)
    if type(value) not in pytree.BUILTIN_TYPES:
        return mirrored  # what a registered class flattens to
    node = pytree.SUPPORTED_NODES[type(value)]
    return node.unflatten_fn(mirrored, node.flatten_fn(value)[1])


def _children(value: Any) -> list[tuple[Any, Any]] | None:
    """Keys and children of a container, one level deep; None for a leaf."""
    if _is_named_tuple(value):
        return list(enumerate(value))
    node = pytree.SUPPORTED_NODES.get(type(value))
    if node is None:
        return None
    children = node.flatten_fn(value)[0]
    return list(
        zip(value if isinstance(value, dict) else range(len(children)), children, strict=True)
    )


def _is_named_tuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


# --- reading the request -------------------------------------------------------------------------


def _by_leaf(
    bound: Mapping[str, Any], leaves: Sequence[Leaf], names: Mapping[str, int], given: Any
) -> Iterator[tuple[int, Any]]:
    """Which leaves get which specification."""
    if isinstance(given, str):
        given = dict.fromkeys(bound, given)
    if not isinstance(given, Mapping):
        raise DynamicShapeError(
            f"dynamic_shapes is {type(given).__name__}; it is a dict by argument name, or a tuple "
            "or list in the order of the arguments"
        )
    first: dict[str, int] = {}
    position = 0
    for name, value in bound.items():
        first[name] = position
        position += _count(value)
    for name, specification in given.items():
        if name in bound:
            yield from _descend(bound[name], specification, first[name], name)
        elif name in names:
            yield names[name], specification
        else:
            accepted = dict.fromkeys((*bound, *names))
            raise DynamicShapeError(
                f"dynamic_shapes names {name!r}, which is no input; inputs are "
                f"{', '.join(accepted)}"
            )


def _count(value: Any) -> int:
    children = _children(value)
    return 1 if children is None else sum(_count(child) for _, child in children)


def _descend(value: Any, given: Any, position: int, path: str) -> Iterator[tuple[int, Any]]:
    """Pairs the leaves below a value with their part of the specification."""
    if given is None:
        return
    children = _children(value)
    if children is None:
        if not (isinstance(given, str) and not isinstance(value, torch.Tensor)):
            yield position, given
        return
    for order, (key, child) in enumerate(children):
        yield from _descend(
            child, _child_of(given, key, order, len(children), path), position, f"{path}[{key!r}]"
        )
        position += _count(child)
    _refuse_unknown_keys(given, [key for key, _ in children], path)


def _child_of(given: Any, key: Any, order: int, count: int, path: str) -> Any:
    if isinstance(given, str):
        return given
    if isinstance(given, Mapping):
        return given.get(key)
    if isinstance(given, (list, tuple)):
        if len(given) > count:
            raise DynamicShapeError(
                f"dynamic_shapes has {len(given)} entries for {path}, which holds {count}"
            )
        return given[order] if order < len(given) else None
    raise DynamicShapeError(
        f"dynamic_shapes gives {given!r} for {path}, which is a container; it is a dict or list "
        "with an entry per element"
    )


def _refuse_unknown_keys(given: Any, keys: list[Any], path: str) -> None:
    if isinstance(given, Mapping):
        unknown = [key for key in given if key not in keys]
        if unknown:
            raise DynamicShapeError(
                f"dynamic_shapes names {unknown[0]!r} in {path}, which has "
                f"{', '.join(map(repr, keys))}"
            )


def _axes(leaf: Leaf, given: Any) -> dict[int, Any]:
    """``{axis: dimension}`` of one leaf, with axes that are not negative and without None."""
    if given is None:
        return {}
    if not isinstance(leaf.value, torch.Tensor):
        raise DynamicShapeError(
            f"dynamic_shapes gives {given!r} for {leaf.path}, which is "
            f"{type(leaf.value).__name__} and has no dimensions"
        )
    rank = leaf.value.dim()
    if isinstance(given, str):
        given = {0: given} if rank else {}
    if isinstance(given, (list, tuple)):
        if len(given) != rank:
            raise DynamicShapeError(
                f"dynamic_shapes gives {len(given)} dimensions for {leaf.path}, which has {rank}"
            )
        given = dict(enumerate(given))
    if not isinstance(given, Mapping):
        raise DynamicShapeError(
            f"dynamic_shapes gives {given!r} for {leaf.path}; it is a dict "
            "{axis: dimension}, or a list with one dimension per axis"
        )
    axes: dict[int, Any] = {}
    for axis, dimension in given.items():
        if not isinstance(axis, int) or not -rank <= axis < rank:
            raise DynamicShapeError(
                f"dynamic_shapes names axis {axis!r} of {leaf.path}, whose shape is "
                f"{list(leaf.value.shape)}"
            )
        if dimension is None:
            continue
        known = isinstance(dimension, (str, int, Dim, *_HINTS)) or hasattr(dimension, "root")
        if not known or isinstance(dimension, bool):
            raise DynamicShapeError(
                f"dynamic_shapes gives {dimension!r} for {leaf.path}, axis {axis}; a dimension is "
                "a name, a torch.export.Dim, Dim.AUTO, Dim.DYNAMIC, Dim.STATIC or None"
            )
        axes[axis % rank] = dimension
    return axes


def _axes_of_dynamic_axes(name: str, given: Any) -> dict[int, Any]:
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, (list, tuple)):
        return dict.fromkeys(given, Dim.DYNAMIC)
    raise DynamicShapeError(
        f"dynamic_axes gives {given!r} for {name!r}; it is a dict {{axis: name}} or a list of axes"
    )


def _is_dynamic(dimension: Any) -> bool:
    return dimension is not Dim.STATIC and not isinstance(dimension, int)


def _may_be_static(dimension: Any) -> bool:
    return isinstance(dimension, _HINTS) and getattr(dimension, "type", None) == Dim.AUTO.type


def _name(dimension: Any) -> str | None:
    if isinstance(dimension, str):
        return dimension
    named = getattr(dimension, "root", dimension)
    return None if isinstance(dimension, _HINTS) else getattr(named, "__name__", None)
