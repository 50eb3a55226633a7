"""An FX node as FX prints it, in a third of the time.

``torch.fx.Node.format_node`` works out the name of what is called, and looks at every argument for
a method that prints it, anew at each call. Most nodes call what others call, with nodes and plain
numbers.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from onnx_aot.torch_compat import printed_in_graphs

__all__ = ["FxText"]

_PRINTED = frozenset(
    {int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout}
)  # as str does


class FxText:
    """Prints nodes; what is called is found in the text that FX itself prints of a first one."""

    def __init__(self) -> None:
        self._called: dict[Any, str | None] = {}

    def of(self, node: torch.fx.Node) -> str:
        """What ``node.format_node()`` gives."""
        if node.op != "call_function" or node.type is not None:
            return str(node.format_node())
        called = self._called.get(node.target)
        if called is not None:
            return _text(node, called)
        text = str(node.format_node())
        if node.target not in self._called:
            start, end = text.find("[target=") + len("[target="), text.find("](args = ")
            called = text[start:end]
            # None where FX prints in another way than is written down here
            self._called[node.target] = called if _text(node, called) == text else None
        return text


def _text(node: torch.fx.Node, called: str) -> str:
    return (
        f"%{node.name} : [num_users={len(node.users)}] = call_function[target={called}]("
        f"args = {_argument(node.args)}, kwargs = {_argument(node.kwargs)})"
    )


def _argument(argument: Any) -> str:
    kind = type(argument)
    if kind is torch.fx.Node:
        return f"%{argument}"
    if kind in _PRINTED:
        return str(argument)
    if isinstance(argument, tuple):
        items = ", ".join(map(_argument, argument))
        return f"({items},)" if len(argument) == 1 else f"({items})"
    if isinstance(argument, list):
        return f"[{', '.join(map(_argument, argument))}]"
    if isinstance(argument, dict):
        return f"{{{', '.join(f'{key}: {_argument(value)}' for key, value in argument.items())}}}"
    return printed_in_graphs(argument)
