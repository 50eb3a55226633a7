"""Binds the arguments of a call to the inputs of the graph, flattened as in the capture."""

from __future__ import annotations

import collections
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind, SymIntArgument

from onnx_aot.errors import InferenceError, InvalidOptionError
from onnx_aot.pytrees.containers import (
    Constant,
    Rest,
    register_containers,
    same_constant,
    unwrap_constants,
)
from onnx_aot.pytrees.structures import input_structure
from onnx_aot.torch_compat import has_elements, pytree

__all__ = ["argument_names", "example_arguments", "graph_inputs"]

NUMBERS = (int, float, bool, torch.SymInt)


def graph_inputs(
    program: torch.export.ExportedProgram | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    forward: inspect.Signature | None = None,
) -> list[Any]:
    """Returns the tensors and numbers among the arguments, in the order of the graph's inputs.

    Arguments may be positional or named regardless of how the example inputs were passed; entries
    of dicts are matched by key.

    Args:
        program: The captured program; None takes the leaves in their own order.
        args: Positional arguments.
        kwargs: Keyword arguments.
        forward: The signature of the model, which supplies defaults for omitted arguments; None if
            it is not known.

    Raises:
        InferenceError: An argument is missing or unknown, has another structure than the captured
            one, or is a Python constant with another value.
    """
    if program is None or input_structure(program) is None:
        register_containers((tuple(args), dict(kwargs)), "", "arguments")
        leaves = pytree.tree_leaves((tuple(args), dict(kwargs)))
        return [leaf for leaf in leaves if isinstance(leaf, (torch.Tensor, *NUMBERS))]
    found: list[tuple[str, Any]] = []
    for name, value, spec in _bind_arguments(program, args, kwargs, forward):
        found += _walk_leaves(value, spec, name)
    specs = [s for s in program.graph_signature.input_specs if s.kind == InputKind.USER_INPUT]
    inputs = []
    for (path, leaf), spec in zip(found, specs, strict=True):
        if isinstance(spec.arg, ConstantArgument):
            _check_constant(path, leaf, spec.arg.value)
        else:
            _check_variable(path, leaf, spec.arg)
            inputs.append(leaf)
    return inputs


def argument_names(program: torch.export.ExportedProgram) -> tuple[list[str], list[str]]:
    """Returns the names of the arguments captured by position, and of those captured by keyword."""
    if input_structure(program) is None:
        return [], []
    args_spec, kwargs_spec = input_structure(program).children()
    count = args_spec.num_children
    signature = program.module_call_graph[0].signature
    names = list(getattr(signature, "forward_arg_names", None) or ())[:count]
    names += [f"args[{i}]" for i in range(len(names), count)]
    return names, list(kwargs_spec.context or ())


def example_arguments(program: torch.export.ExportedProgram) -> tuple[Any, Any]:
    """Returns the example inputs of a captured program, as args and kwargs.

    Raises:
        InvalidOptionError: The program has none, or their values are not known.
    """
    args, kwargs = program.example_inputs or (None, None)
    leaves = pytree.tree_leaves((args, kwargs))
    if args is None or any(
        isinstance(leaf, torch.Tensor) and not has_elements(leaf) for leaf in leaves
    ):
        raise InvalidOptionError(
            "the exported program has no example inputs with values; give inputs: args, kwargs",
            code="OA607",
        )
    return unwrap_constants((args, kwargs or {}))  # type: ignore[no-any-return]


# --- which argument is which ---------------------------------------------------------------------


def _bind_arguments(
    program: torch.export.ExportedProgram,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    forward: inspect.Signature | None,
) -> list[tuple[str, Any, Any]]:
    """Name, value and structure of every captured argument, in the captured order."""
    names, keywords = argument_names(program)
    values = _values_by_signature(forward, args, kwargs, names, keywords)
    if values is None:
        values = _values_by_name(args, kwargs, names, keywords)
    if values is None:
        given = [*(["..."] * len(args)), *(f"{name}=..." for name in kwargs)]
        taken = [*names, *(f"{name}=..." for name in keywords)]
        raise InferenceError(
            f"the model was captured with ({', '.join(taken)}); it was called with "
            f"({', '.join(given)})",
            code="OA602",
        )
    args_spec, kwargs_spec = input_structure(program).children()
    specs = [*args_spec.children(), *kwargs_spec.children()]
    return list(zip([*names, *keywords], values, specs, strict=True))


def _values_by_signature(
    forward: inspect.Signature | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    names: Sequence[str],
    keywords: Sequence[str],
) -> list[Any] | None:
    """Binds arguments as Python does, in the captured order; None if they do not fit.

    Raises:
        InferenceError: An argument that the capture left at its default has another value.
    """
    if forward is None:
        return None
    try:
        bound = forward.bind(*args, **kwargs)
    except TypeError:
        return None
    given = list(bound.arguments)
    bound.apply_defaults()
    by_name, collected = _split_arguments(forward, bound.arguments)
    in_order = [name for name in by_name if name in _positional_names(forward)]
    labels = [*in_order[: len(names)], *range(len(names) - len(in_order)), *keywords]
    values = by_name | dict(enumerate(collected))
    if any(label not in values for label in labels):
        return None
    for name in [name for name in values if name not in labels]:
        if name not in by_name or name not in forward.parameters:
            return None  # more than the capture had in *args or **kwargs
        default = forward.parameters[name].default
        if name in given and not same_constant(values[name], default):
            raise InferenceError(
                f"{name} was left at its default {default!r} when the model was captured, which "
                f"is now part of it; {_describe_given(values[name])} was given. "
                f"Export the model anew with {name} among the example inputs",
                code="OA602",
            )
    return [values[label] for label in labels]


def _split_arguments(
    forward: inspect.Signature, arguments: Mapping[str, Any]
) -> tuple[dict[Any, Any], tuple[Any, ...]]:
    """Splits arguments into those with names, including ``**kwargs``, and those of ``*args``."""
    by_name: dict[Any, Any] = {}
    collected: tuple[Any, ...] = ()
    for name, value in arguments.items():
        kind = forward.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            collected = value
        elif kind is inspect.Parameter.VAR_KEYWORD:
            by_name |= value
        else:
            by_name[name] = value
    return by_name, collected


def _positional_names(forward: inspect.Signature) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, parameter in forward.parameters.items() if parameter.kind in kinds]


def _values_by_name(
    args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str], keywords: Sequence[str]
) -> list[Any] | None:
    """Binds arguments by the names that the capture recorded; None if they do not fit."""
    values = dict(zip(names, args, strict=False))
    surplus = list(args[len(names) :])
    if len(surplus) == 1 and len(keywords) == 1 and keywords[0] not in kwargs:
        values[keywords[0]] = surplus.pop()  # only one argument can be meant
    if surplus or any(name in values for name in kwargs):
        return None
    values.update(kwargs)
    order = [*names, *keywords]
    return [values[name] for name in order] if values.keys() == set(order) else None


# --- from arguments to leaves --------------------------------------------------------------------


def _check_constant(path: str, leaf: Any, captured: Any) -> None:
    if not same_constant(leaf, captured):
        raise InferenceError(
            f"{path} was {captured!r} when the model was captured, which is now part of it; "
            f"{_describe_given(leaf)} was given. Export the model anew with "
            f"{_describe_given(leaf)}",
            code="OA602",
        )


def _check_variable(path: str, leaf: Any, captured: Any) -> None:
    if isinstance(captured, SymIntArgument):
        integral = isinstance(leaf, (int, torch.SymInt)) and not isinstance(leaf, bool)
        scalar = isinstance(leaf, torch.Tensor) and leaf.dim() == 0
        if not integral and not (scalar and not leaf.is_floating_point()):
            raise InferenceError(
                f"{path} is a whole number; {_describe_given(leaf)} was given", code="OA602"
            )
    elif not isinstance(leaf, (torch.Tensor, *NUMBERS)):
        raise InferenceError(
            f"{path} was a tensor when the model was captured; {_describe_given(leaf)} was given",
            code="OA602",
        )


def _describe_given(value: Any) -> str:
    """Text of a value for a message: for a tensor its shape, for a long repr the class."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {list(value.shape)}"
    shown = repr(value)
    return shown if len(shown) <= 80 else f"an object of {type(value).__name__}"


def _walk_leaves(value: Any, spec: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yields path and value of each leaf of a value that has the structure of ``spec``.

    Entries of dicts come in the key order of ``spec``.
    """
    if spec.is_leaf():
        yield path, value
        return
    if spec.type is Constant:
        _check_constant(path, value, spec.context)
        return
    keys = _dict_keys(spec)
    children = _match_children(value, spec, keys, path)
    if children is None or len(children) != spec.num_children:
        raise InferenceError(
            f"{path} is structured differently from when the model was captured: "
            f"{_describe_structure(value)} was given, it was {_name_of_type(spec)} of "
            f"{keys or spec.num_children}",
            code="OA602",
        )
    if isinstance(spec.context, Rest) and keys is None:
        accessors = [f".{n}" if isinstance(n, str) else f"[{n}]" for n in spec.context.names]
    else:
        accessors = [f"[{key!r}]" for key in (keys or range(len(children)))]
    for child, below, accessor in zip(children, spec.children(), accessors, strict=True):
        yield from _walk_leaves(child, below, path + accessor)


def _match_children(value: Any, spec: Any, keys: list[Any] | None, path: str) -> list[Any] | None:
    """Children of a container in the order of ``spec``; None if its type or keys differ."""
    if keys is not None and isinstance(value, Mapping):
        return [value[key] for key in keys] if set(keys) == set(value) else None
    if isinstance(value, tuple) and spec.type is collections.namedtuple:
        same = getattr(value, "_fields", None) == spec.context._fields
        return list(value) if same else None
    if isinstance(value, (list, tuple)) and spec.type in (list, tuple):
        return list(value)
    node = pytree.SUPPORTED_NODES.get(spec.type)
    if node is None or not isinstance(spec.type, type) or not isinstance(value, spec.type):
        return None
    children, context = node.flatten_fn(value)
    if isinstance(spec.context, Rest) and isinstance(context, Rest):
        _check_rest(path, value, context, spec.context)
    elif not same_constant(context, spec.context):
        return None
    return list(children)


def _check_rest(path: str, value: Any, given: Rest, captured: Rest) -> None:
    if given.names != captured.names:
        raise InferenceError(
            f"{path} is structured differently from when the model was captured: a "
            f"{type(value).__name__} with {', '.join(map(str, given.names)) or 'nothing'} was "
            f"given, it had {', '.join(map(str, captured.names)) or 'nothing'}",
            code="OA602",
        )
    for name in {**captured.constants, **given.constants}:
        _check_constant(f"{path}.{name}", given.constants.get(name), captured.constants.get(name))


def _dict_keys(spec: Any) -> list[Any] | None:
    """Keys of a captured dict, or None if the spec is not a dict."""
    if not isinstance(spec.type, type) or not issubclass(spec.type, (dict, collections.UserDict)):
        return None
    context = spec.context
    if isinstance(context, Rest):
        return list(context.names)
    if len(context) == 2 and isinstance(context[1], list):  # a defaultdict: factory, keys
        context = context[1]
    return list(context)


def _name_of_type(spec: Any) -> str:
    return str(getattr(spec.type, "__name__", spec.type))


def _describe_structure(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{type(value).__name__} of {list(value)}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__
