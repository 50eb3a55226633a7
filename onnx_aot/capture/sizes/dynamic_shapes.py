"""Reads the user's dynamic dimensions from ``dynamic_shapes`` or ``dynamic_axes``.

All accepted forms are converted to one: ``{axis: dimension}`` per leaf of the inputs. The nested
specification for ``torch.export`` and the names in the ONNX model are derived from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import Dim

from onnx_aot.capture.inputs import Arguments
from onnx_aot.capture.sizes.ambiguous_names import refuse_ambiguous_names
from onnx_aot.capture.sizes.dimension_requests import (
    DynamicShapes,
    RequestedDim,
    refuse_contradictions,
)
from onnx_aot.errors import DynamicShapeError
from onnx_aot.pytrees.paths import Leaf, children_of, count_leaves, is_registered, leaves_of
from onnx_aot.torch_compat import example_size, pytree

__all__ = ["DynamicShapes", "RequestedDim", "axes_of_dynamic_axes", "resolve_dynamic_shapes"]

_HINTS = (type(Dim.DYNAMIC),)


def resolve_dynamic_shapes(
    arguments: Arguments,
    dynamic_shapes: Any,
    dynamic_axes: Mapping[str, Any] | None,
    input_names: Sequence[str],
    output_names: Sequence[str],
) -> DynamicShapes:
    """Reads ``dynamic_shapes`` or, if that is None, ``dynamic_axes``.

    Args:
        arguments: The example inputs by parameter.
        dynamic_shapes: A dict by parameter name, by name in ``input_names`` or by flattened input
            name; or a tuple or list in the order of the arguments; nested like the inputs. A
            dimension is a string, a ``Dim``, ``Dim.AUTO``, ``Dim.DYNAMIC``, an int or None. One
            string for a whole argument is the name of the first dimension of each of its tensors.
        dynamic_axes: ``{name: {axis: dimension name}}`` or ``{name: [axes]}``, with names from
            ``input_names`` or flattened input names; names of outputs are ignored.
        input_names: Names for the tensors among the inputs, in order.
        output_names: Names for the outputs.

    Raises:
        DynamicShapeError: The request does not fit the inputs.
    """
    leaves = list(leaves_of(arguments.values))
    numbers: set[int] = set()
    while True:  # numbers that become inputs also take names from input_names
        names = _input_names(leaves, input_names, numbers)
        if dynamic_shapes is not None:
            given = dict(_by_leaf(arguments, leaves, names, dynamic_shapes))
        else:
            given = dict(_by_axes(dynamic_axes or {}, names, output_names))
        dynamic = {i for i, wanted in given.items() if _is_dynamic_number(leaves[i], wanted)}
        if dynamic <= numbers:
            break
        numbers |= dynamic
    dimensions = [
        {} if i in numbers else _axes(leaf, given.get(i)) for i, leaf in enumerate(leaves)
    ]
    asked: list[tuple[int, int | None, Any]] = [
        (i, axis, dim) for i, axes in enumerate(dimensions) for axis, dim in axes.items()
    ]
    asked += [(i, None, given[i]) for i in sorted(numbers) if type(leaves[i].value) is int]
    requested = tuple(
        RequestedDim(
            leaf=index,
            path=leaves[index].path,
            axis=axis,
            name=_name(dim),
            derived=hasattr(dim, "root"),
            may_be_static=_may_be_static(dim),
            given=dim,
        )
        for index, axis, dim in sorted(asked, key=lambda entry: entry[0])
        if _is_dynamic(dim)
    )
    refuse_ambiguous_names(requested)
    refuse_contradictions(
        [(dim, example_size(_size_of(leaves[dim.leaf].value, dim.axis))) for dim in requested]
    )
    return DynamicShapes(
        arguments.values,
        tuple(_hints(leaf, dimensions[i], given.get(i)) for i, leaf in enumerate(leaves)),
        requested,
        tuple(i for i in sorted(numbers) if type(leaves[i].value) is float),
    )


def _hints(leaf: Leaf, axes: Mapping[int, Any], given: Any) -> Any:
    """Specification of a leaf for ``torch.export``, which takes no names, nor Dims for numbers."""
    if isinstance(leaf.value, torch.Tensor):
        return {a: Dim.DYNAMIC if isinstance(d, str) else d for a, d in axes.items()} or None
    if type(leaf.value) is not int or not _is_dynamic_number(leaf, given):
        return None
    if isinstance(given, Dim):
        return Dim.DYNAMIC(min=given.min, max=given.max)
    return Dim.DYNAMIC if isinstance(given, str) else given


def _is_dynamic_number(leaf: Leaf, given: Any) -> bool:
    """True if a leaf is a number that was requested as an input of the model.

    Raises:
        DynamicShapeError: The leaf is a bool.
    """
    value = leaf.value
    if given is None or isinstance(value, torch.Tensor) or not _is_dynamic(given):
        return False
    if not isinstance(given, (str, Dim, *_HINTS)):
        return False  # refused later, with the dimensions
    if type(value) in (int, float) and not hasattr(given, "root"):
        return True
    if type(value) is bool:
        raise DynamicShapeError(
            f"dynamic_shapes asks for {leaf.path} to be dynamic, which is the bool {value}: it "
            "decides what is captured. Pass torch.tensor(" + str(value) + ") and choose with "
            "torch.where or torch.cond, or export once for each value",
            code="OA202",
        )
    return False


def _size_of(value: Any, axis: int | None) -> Any:
    return value if axis is None else value.shape[axis]


def _by_name(
    order: Sequence[str], given: Sequence[Any], values: Mapping[str, Any]
) -> dict[str, Any]:
    only = values[order[0]] if len(order) == 1 else None
    per_value = isinstance(only, tuple) and len(only) == len(given)  # of *args
    if per_value and (len(given) > 1 or _gives_axes(given[0])):
        return {order[0]: given}
    if len(given) > len(order):
        raise DynamicShapeError(
            f"dynamic_shapes has {len(given)} entries, the model got {len(order)} arguments: "
            f"{', '.join(order)}",
            code="OA202",
        )
    return dict(zip(order, given, strict=False))


def _gives_axes(given: Any) -> bool:
    """True for ``{axis: dimension}``, and not for entries of the tuple of one value itself."""
    nested = (Mapping, list, tuple)
    return isinstance(given, Mapping) and not any(isinstance(d, nested) for d in given.values())


# --- leaves and their names ----------------------------------------------------------------------


def _input_names(
    leaves: Sequence[Leaf], input_names: Sequence[str], numbers: set[int]
) -> dict[str, int]:
    """Maps every name of a leaf to its index: torch's name, the path, and the name in the model."""
    names: dict[str, int] = {}
    for index, leaf in enumerate(leaves):
        if isinstance(leaf.value, (torch.Tensor, int, float)):
            names.setdefault(leaf.name, index)
            names.setdefault(leaf.path, index)
    inputs = [
        i for i, leaf in enumerate(leaves) if i in numbers or isinstance(leaf.value, torch.Tensor)
    ]
    return names | dict(zip(input_names, inputs, strict=False))


# --- reading the request -------------------------------------------------------------------------


def _by_leaf(
    arguments: Arguments, leaves: Sequence[Leaf], names: Mapping[str, int], given: Any
) -> Iterator[tuple[int, Any]]:
    """Yields leaf indices with their specifications."""
    bound = arguments.values
    if isinstance(given, (list, tuple)):
        given = _by_name(arguments.signature_order, given, bound)
    if isinstance(given, str):
        for index, leaf in enumerate(leaves):
            if _has_dimensions(leaf.value):
                yield index, given
        return
    if not isinstance(given, Mapping):
        raise DynamicShapeError(
            f"dynamic_shapes is {type(given).__name__}; expected a dict by argument name, or a "
            "tuple or list in the order of the arguments",
            code="OA202",
        )
    first: dict[str, int] = {}
    position = 0
    for name, value in bound.items():
        first[name] = position
        position += count_leaves(value)
    for name, specification in _named_collected(arguments, names, given):
        if name in bound:
            yield from _descend(bound[name], specification, first[name], name)
        elif name in names:
            yield names[name], specification
        else:
            accepted = dict.fromkeys((*bound, *names))
            several = next((each for each, value in bound.items() if type(value) is tuple), None)
            wrapped = (
                f". {several} is a tuple: if the model wraps another one, as torch.compile and "
                "DataParallel do, export that one, or give the dimensions in order"
            )
            raise DynamicShapeError(
                f"dynamic_shapes names {name!r}, which is not an input; the inputs are "
                f"{', '.join(accepted)}{wrapped if several else ''}",
                code="OA202",
            )


def _named_collected(
    arguments: Arguments, names: Mapping[str, int], given: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yields the entries; one for ``**kwargs`` as a whole, ``torch.export``'s form, is split up."""
    for name, specification in given.items():
        known = name in arguments.values or name in names
        if known or not isinstance(specification, Mapping) or not arguments.collected:
            yield name, specification
        elif all(key in arguments.collected for key in specification):
            yield from specification.items()
        else:
            yield name, specification


def _has_dimensions(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0


def _descend(value: Any, given: Any, position: int, path: str) -> Iterator[tuple[int, Any]]:
    """Pairs the leaves below a value with their part of the specification."""
    if given is None:
        return
    children = children_of(value)
    if children is None:
        yield position, given
        return
    leaves = pytree.tree_leaves(value)
    if isinstance(given, str):  # names the first dimension of every tensor below
        yield from (
            (position + order, given) for order, leaf in enumerate(leaves) if _has_dimensions(leaf)
        )
        return
    # First, because a cache of one layer has two leaves, as many as the two lists given here.
    by_layer = _by_layer(children, given, len(leaves))
    if by_layer is not None:
        yield from enumerate(by_layer, position)
        return
    registered = is_registered(value)
    per_leaf = isinstance(given, (list, tuple)) and len(given) == len(leaves) != len(children)
    if registered and per_leaf:
        yield from enumerate(given, position)
        return
    for order, (key, child) in enumerate(children):
        below = f".{key}" if registered and isinstance(key, str) else f"[{key!r}]"
        part = _child_of(given, key, order, children, path)
        yield from _descend(child, part, position, path + below)
        position += count_leaves(child)
    _refuse_unknown_keys(given, [key for key, _ in children], path)


def _by_layer(children: list[tuple[Any, Any]], given: Any, count: int) -> list[Any] | None:
    """Reorders entries given as the keys and the values of a key-value cache layer by layer.

    None if they are not. Transformers itself takes caches apart into keys and values for
    ``torch.export``, and other exporters follow it.
    """
    if [key for key, _ in children] != ["layers"]:
        return None
    if isinstance(given, Mapping) and given.keys() == {"key_cache", "value_cache"}:
        given = (given["key_cache"], given["value_cache"])
    if not isinstance(given, (list, tuple)) or len(given) != 2:
        return None
    if any(not isinstance(half, (list, tuple)) or 2 * len(half) != count for half in given):
        return None
    return [one for layer in zip(*given, strict=True) for one in layer]


def _child_of(given: Any, key: Any, order: int, children: list[tuple[Any, Any]], path: str) -> Any:
    if isinstance(given, Mapping):
        return given.get(key)
    if isinstance(given, (list, tuple)):
        if len(given) > len(children):
            held = ", ".join(str(child) for child, _ in children)
            raise DynamicShapeError(
                f"dynamic_shapes has {len(given)} entries for {path}, which holds "
                f"{len(children)}: {held}. A list has an entry for each of these, or one for each "
                f"of the tensors in them",
                code="OA202",
            )
        return given[order] if order < len(given) else None
    raise DynamicShapeError(
        f"dynamic_shapes gives {given!r} for {path}, which is a container; expected a dict or list "
        "with an entry per element",
        code="OA202",
    )


def _refuse_unknown_keys(given: Any, keys: list[Any], path: str) -> None:
    if isinstance(given, Mapping):
        unknown = [key for key in given if key not in keys]
        if unknown:
            raise DynamicShapeError(
                f"dynamic_shapes names {unknown[0]!r} in {path}, which has "
                f"{', '.join(map(repr, keys))}",
                code="OA202",
            )


def _axes(leaf: Leaf, given: Any) -> dict[int, Any]:
    """Returns ``{axis: dimension}`` of one leaf, without negative axes and None dimensions."""
    if given is None:
        return {}
    if not isinstance(leaf.value, torch.Tensor):
        raise DynamicShapeError(
            f"dynamic_shapes gives {given!r} for {leaf.path}, which is "
            f"{type(leaf.value).__name__} and has no dimensions",
            code="OA202",
        )
    rank = leaf.value.dim()
    if isinstance(given, str):
        if not rank:
            raise DynamicShapeError(
                f"dynamic_shapes gives {given!r} for {leaf.path}, a tensor without dimensions; "
                "leave it out: its value is an input of the model anyway",
                code="OA202",
            )
        given = {0: given}
    if isinstance(given, (list, tuple)):
        if len(given) != rank:
            raise DynamicShapeError(
                f"dynamic_shapes gives {len(given)} dimensions for {leaf.path}, which has {rank}",
                code="OA202",
            )
        given = dict(enumerate(given))
    if not isinstance(given, Mapping):
        raise DynamicShapeError(
            f"dynamic_shapes gives {given!r} for {leaf.path}; expected a dict "
            "{axis: dimension}, or a list with one dimension per axis",
            code="OA202",
        )
    axes: dict[int, Any] = {}
    for axis, dimension in given.items():
        if not isinstance(axis, int) or not -rank <= axis < rank:
            raise DynamicShapeError(
                f"dynamic_shapes names axis {axis!r} of {leaf.path}, whose shape is "
                f"{list(leaf.value.shape)}",
                code="OA202",
            )
        if dimension is None:
            continue
        known = isinstance(dimension, (str, int, Dim, *_HINTS)) or hasattr(dimension, "root")
        if not known or isinstance(dimension, bool):
            raise DynamicShapeError(
                f"dynamic_shapes gives {dimension!r} for {leaf.path}, axis {axis}; a dimension is "
                "a name, a torch.export.Dim, Dim.AUTO, Dim.DYNAMIC, Dim.STATIC or None",
                code="OA202",
            )
        size = example_size(leaf.value.shape[axis])
        if isinstance(dimension, int) and size is not None and size != dimension:
            raise DynamicShapeError(
                f"dynamic_shapes gives {dimension} for {leaf.path}, axis {axis}, which is {size} "
                "in the example inputs. An int is a fixed size, that of the example: give a name "
                "for a dimension that varies, or None",
                code="OA203",
            )
        axes[axis % rank] = dimension
    return axes


def _by_axes(
    dynamic_axes: Mapping[str, Any], names: Mapping[str, int], output_names: Sequence[str]
) -> Iterator[tuple[int, Any]]:
    """Yields the entries of inputs in ``dynamic_axes``; those of outputs are checked later."""
    if not isinstance(dynamic_axes, Mapping):
        raise DynamicShapeError(
            f"dynamic_axes is {dynamic_axes!r}; expected a dict by the names of inputs, such as "
            f'{{{next(iter(names), "x")!r}: {{0: "batch"}}}}',
            code="OA202",
        )
    for name, given in dynamic_axes.items():
        axes = axes_of_dynamic_axes(name, given)
        if name in names:
            yield names[name], axes
        elif name not in output_names:
            known = ", ".join(dict.fromkeys((*names, *output_names)))
            raise DynamicShapeError(
                f"dynamic_axes names {name!r}, which is neither an input nor an output in "
                f"output_names; known are {known}",
                code="OA202",
            )


def axes_of_dynamic_axes(name: str, given: Any) -> dict[Any, Any]:
    """Returns ``{axis: dimension}`` of one entry of ``dynamic_axes``.

    Raises:
        DynamicShapeError: The entry is neither a dict nor a list.
    """
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, (list, tuple)):
        return dict.fromkeys(given, Dim.DYNAMIC)
    raise DynamicShapeError(
        f"dynamic_axes gives {given!r} for {name!r}; expected a dict {{axis: name}} or a "
        "list of axes",
        code="OA202",
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
