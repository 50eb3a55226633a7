"""Replaces the operator that stands for a scripted model by the model's recorded graph."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

from onnx_aot.metadata.provenance import target_name

__all__ = ["inline_scripted"]

# By name: defining the operator takes longer than this pass, and most models have none.
SCRIPTED = "onnx_aot.scripted.default"


def inline_scripted(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Inlines the recorded graphs of scripted models.

    Before::

        scripted = scripted([weight, x], [], 0)
        y = getitem(scripted, 0)

    After::

        y = linear(x, weight)
    """
    graph = program.graph_module.graph
    for node in list(graph.nodes):
        if node.op == "call_function" and target_name(node.target) == SCRIPTED:
            _inline(program.graph_module, node)
    return program


def _inline(owner: torch.fx.GraphModule, node: torch.fx.Node) -> None:
    from onnx_aot.torch_ops.scripted_model import RECORDED

    tensors, sizes, number = node.args
    module = RECORDED.pop(number)  # type: ignore[arg-type]
    given = iter([*tensors, *sizes])  # type: ignore[misc]
    copies: dict[torch.fx.Node, Any] = {}
    results: Any = None
    with owner.graph.inserting_before(node):
        for inner in module.graph.nodes:
            if inner.op == "placeholder":
                copies[inner] = next(given)
            elif inner.op == "output":
                results = torch.fx.map_arg(inner.args[0], lambda n: copies[n])
            elif inner.op == "get_attr":
                name = f"scripted_{number}_{inner.target}"
                body = module.get_submodule(inner.target)
                owner.add_submodule(name, body)
                copies[inner] = owner.graph.create_node("get_attr", name)
            else:
                copies[inner] = owner.graph.node_copy(inner, lambda n: copies[n])
                copies[inner].meta.update({"nn_module_stack": node.meta.get("nn_module_stack", {})})
    for user in list(node.users):
        assert user.target is operator.getitem
        user.replace_all_uses_with(results[user.args[1]])
        owner.graph.erase_node(user)
    owner.graph.erase_node(node)
