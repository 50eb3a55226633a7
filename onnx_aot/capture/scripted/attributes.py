"""Attributes that a scripted module writes to while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

__all__ = ["all_nodes", "save_attributes"]


def all_nodes(block: Any) -> Iterator[Any]:
    """Yields the nodes of a graph of TorchScript, with those of branches and loops."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from all_nodes(inner)


def save_attributes(script: Any) -> Callable[[], None]:
    """Returns a function that restores the attributes that a call of a scripted module sets.

    Args:
        script: The module. Tensors that it writes in place are not restored.
    """
    graph = script.inlined_graph
    owners = {next(graph.inputs()).debugName(): script}
    saved: list[tuple[Any, str, Any]] = []
    for node in all_nodes(graph):
        if node.kind() not in ("prim::GetAttr", "prim::SetAttr"):
            continue
        owner, name = owners.get(node.inputsAt(0).debugName()), node.s("name")
        if owner is None:
            continue
        value = getattr(owner, name)
        if node.kind() == "prim::SetAttr":
            saved.append((owner, name, value))
        elif isinstance(value, (torch.nn.Module, torch.ScriptObject)):
            owners[node.output().debugName()] = value

    def restore() -> None:
        for owner, name, value in saved:
            setattr(owner, name, value)

    return restore
