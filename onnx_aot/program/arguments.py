"""From the arguments of a call to the inputs of the graph, as the capture flattened them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind

from onnx_aot.errors import InferenceError
from onnx_aot.torch_compat import pytree

__all__ = ["graph_inputs"]


def graph_inputs(
    program: torch.export.ExportedProgram | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[Any]:
    """The tensors and numbers among the arguments, in the order of the graph's inputs.

    Arguments may be positional or named regardless of how the example inputs were passed; the
    entries of dicts are found by their keys.

    Args:
        program: What was captured; None takes the leaves as they come.
        args: Positional arguments.
        kwargs: Keyword arguments.

    Raises:
        InferenceError: An argument is missing or unknown, is built otherwise than the captured
            one, or is a Python constant with another value.
    """
    if program is None or program.call_spec.in_spec is None:
        leaves = pytree.tree_leaves((tuple(args), dict(kwargs)))
        return [leaf for leaf in leaves if isinstance(leaf, (torch.Tensor, int, float, bool))]
    leaves = []
    for name, value, spec in _bound(program, args, kwargs):
        leaves += _leaves(value, spec, name)
    inputs = []
    specs = [s for s in program.graph_signature.input_specs if s.kind == InputKind.USER_INPUT]
    for leaf, spec in zip(leaves, specs, strict=True):
        if not isinstance(spec.arg, ConstantArgument):
            inputs.append(leaf)
        elif isinstance(leaf, torch.Tensor) or leaf != spec.arg.value:
            raise InferenceError(
                f"{spec.arg.name} was {spec.arg.value!r} when the model was captured, which is "
                f"now part of it; {leaf!r} was given. Export the model anew with {leaf!r}"
            )
    return inputs


def _bound(
    program: torch.export.ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[tuple[str, Any, Any]]:
    """Name, value and structure of every captured argument, in the captured order."""
    args_spec, kwargs_spec = program.call_spec.in_spec.children()
    by_position, by_name = args_spec.children(), kwargs_spec.children()
    keywords = list(kwargs_spec.context or ())
    signature = program.module_call_graph[0].signature
    names = list(getattr(signature, "forward_arg_names", None) or ())[: len(by_position)]
    names += [f"args[{i}]" for i in range(len(names), len(by_position))]
    order = [*names, *keywords]
    values = dict(zip(names, args, strict=False))
    surplus = list(args[len(names) :])
    if len(surplus) == 1 and len(keywords) == 1 and keywords[0] not in kwargs:
        values[keywords[0]] = surplus.pop()  # only one argument can be meant
    repeated = [name for name in kwargs if name in values]
    values.update(kwargs)
    missing = [name for name in order if name not in values]
    unknown = [name for name in kwargs if name not in order]
    if surplus or repeated or missing or unknown:
        given = [*(["..."] * len(args)), *(f"{name}=..." for name in kwargs)]
        taken = [*names, *(f"{name}=..." for name in keywords)]
        raise InferenceError(
            f"the model was captured with ({', '.join(taken)}); it was called with "
            f"({', '.join(given)})"
        )
    return [
        (name, values[name], spec)
        for name, spec in zip(order, [*by_position, *by_name], strict=True)
    ]


def _leaves(value: Any, spec: Any, path: str) -> list[Any]:
    """The leaves of a value that has the structure of ``spec``, dicts in its order of keys."""
    if spec.is_leaf():
        return [value]
    node = pytree.SUPPORTED_NODES.get(spec.type)
    keys = _keys(spec)
    if keys is not None and isinstance(value, Mapping):
        same = set(keys) == set(value)
        children = [value[key] for key in keys] if same else []
    elif isinstance(value, (list, tuple)) and (spec.type in (list, tuple) or _fields(value)):
        children = list(value)
        same = len(children) == spec.num_children
    else:
        same = node is not None and isinstance(spec.type, type) and isinstance(value, spec.type)
        children = list(node.flatten_fn(value)[0]) if node is not None and same else []
        same = same and len(children) == spec.num_children
    if not same:
        raise InferenceError(
            f"{path} is built otherwise than when the model was captured: "
            f"{_outline(value)} was given, it was {_name(spec)} of {keys or spec.num_children}"
        )
    found = []
    for index, (child, below) in enumerate(zip(children, spec.children(), strict=True)):
        found += _leaves(child, below, f"{path}[{keys[index] if keys else index!r}]")
    return found


def _keys(spec: Any) -> list[Any] | None:
    """The keys of a captured dict, None for what is none."""
    if not isinstance(spec.type, type) or not issubclass(spec.type, dict):
        return None
    context = spec.context
    if len(context) == 2 and isinstance(context[1], list):  # a defaultdict, after its factory
        context = context[1]
    return list(context)


def _fields(value: Any) -> bool:
    return hasattr(value, "_fields")


def _name(spec: Any) -> str:
    return str(getattr(spec.type, "__name__", spec.type))


def _outline(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{type(value).__name__} of {list(value)}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__
