"""Writes operators on lists of tensors, such as ``torch._foreach_mul``, as one call per tensor."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx

from onnx_aot.fx_passes.nested_graphs import every_body
from onnx_aot.torch_compat import OpOverload, schema_of

__all__ = ["split_foreach"]

PREFIX = "foreach_"

OF_NUMBERS = {
    "maximum": "clamp_min",
    "minimum": "clamp_max",
    "maximum_": "clamp_min_",
    "minimum_": "clamp_max_",
}
"""Operators that take a number where the one of the same name takes tensors only."""

OTHERS = {"norm": "linalg_vector_norm"}


@dataclasses.dataclass(frozen=True)
class _Call:
    """A call of an operator on single tensors.

    Attributes:
        operator: The operator.
        args: Positional arguments.
        kwargs: Keyword arguments.
        written_to: The tensor that gets the result, if there is no operator that writes it.
    """

    operator: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    written_to: torch.fx.Node | None = None

    def record(self, graph: torch.fx.Graph, meta: dict[str, Any]) -> torch.fx.Node:
        """Adds the call to a graph, with metadata for its nodes."""
        node = graph.call_function(self.operator, self.args, self.kwargs)
        node.meta.update(meta)
        if self.written_to is not None:
            node = graph.call_function(torch.ops.aten.copy_.default, (self.written_to, node))
            node.meta.update(meta)
        return node


def split_foreach(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Replaces each ``aten._foreach_*`` by calls of the operator on single tensors.

    Those without such an operator stay as they are.

    Before::

        %products = _foreach_mul([%a, %b], 2)
        %product = getitem(%products, 1)

    After::

        %mul = mul(%a, 2)
        %product = mul(%b, 2)
    """
    for module in (program.graph_module, *every_body(program.graph_module)):
        for node in list(module.graph.nodes):
            name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "").lstrip("_")
            if isinstance(node.target, OpOverload) and name.startswith(PREFIX):
                calls = list(_find_calls(node, name.removeprefix(PREFIX)))
                found = [call for call in calls if call is not None]
                if len(found) == len(calls):
                    _replace(module.graph, node, found)
    return program


def _find_calls(node: torch.fx.Node, name: str) -> Iterator[_Call | None]:
    """The call for each tensor; None where there is no such operator."""
    assert isinstance(node.target, OpOverload)
    parameters = [argument.name for argument in schema_of(node.target).arguments]
    unordered = {**dict(zip(parameters, node.args, strict=False)), **node.kwargs}
    named: dict[str, Any] = {key: unordered[key] for key in parameters if key in unordered}
    lists = {key: value for key, value in named.items() if isinstance(value, (list, tuple))}
    for index in range(min(map(len, lists.values()))):
        given = named | {key: value[index] for key, value in lists.items()}
        call = _find_call(name, given)
        if call is None and name.endswith("_"):
            call = _find_call(name.removesuffix("_"), given)
            call = call and dataclasses.replace(call, written_to=given["self"])
        yield call


def _find_call(name: str, given: dict[str, Any]) -> _Call | None:
    """The call of the overload that takes certain arguments."""
    is_of_number = not all(map(_is_tensor, given.values()))
    packet = getattr(torch.ops.aten, OF_NUMBERS.get(name, name) if is_of_number else name, None)
    packet = getattr(torch.ops.aten, OTHERS[name]) if name in OTHERS else packet
    if packet is None:
        return None
    for overload in packet.overloads():
        found = getattr(packet, overload)
        bound = _bind(schema_of(found).arguments, given)
        if bound is not None:
            return _Call(found, *bound)
    return None


def _bind(arguments: Any, given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Gives the values to the parameters of an overload; None if they do not fit.

    Values with the name of a parameter that is taken by name go there, the others in order. The
    last of them, a factor, may be one that is taken by name: ``value`` of ``addcmul``.
    """
    if any(argument.is_out for argument in arguments):
        return None
    by_name = {argument.name: argument for argument in arguments if argument.kwarg_only}
    named = {key: value for key, value in given.items() if key in by_name}
    rest = [value for key, value in given.items() if key not in by_name]
    in_order = [argument for argument in arguments if not argument.kwarg_only]
    if len(rest) == len(in_order) + 1 and "value" in by_name:
        named["value"] = rest.pop()
    if len(rest) > len(in_order) or any(
        not argument.has_default_value() for argument in in_order[len(rest) :]
    ):
        return None
    pairs = [*zip(in_order, rest, strict=False), *((by_name[key], named[key]) for key in named)]
    return (
        (tuple(rest), named) if all(_fits(argument, value) for argument, value in pairs) else None
    )


def _fits(argument: Any, value: Any) -> bool:
    kind = str(argument.type).removeprefix("Optional[").removesuffix("]")
    return (kind == "Tensor") == _is_tensor(value) and kind != "str"


def _is_tensor(value: Any) -> bool:
    held = value.meta.get("val") if isinstance(value, torch.fx.Node) else value
    return isinstance(held, torch.Tensor)


def _replace(graph: torch.fx.Graph, node: torch.fx.Node, calls: list[_Call]) -> None:
    meta = {key: value for key, value in node.meta.items() if key != "val"}
    with graph.inserting_before(node):
        results = [call.record(graph, meta) for call in calls]
    for user in list(node.users):
        assert user.target is operator.getitem
        index: Any = user.args[1]
        user.replace_all_uses_with(results[index])
        graph.erase_node(user)
    graph.erase_node(node)
