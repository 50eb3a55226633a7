"""Finds the values of a captured program that are random and so cannot be compared."""

from __future__ import annotations

import torch
import torch.fx

from onnx_aot.torch_compat import OpOverload, draws_random_numbers

__all__ = ["random_nodes", "random_outputs"]


def random_outputs(program: torch.export.ExportedProgram) -> list[bool]:
    """Returns a flag per output of the captured graph: True if it depends on a random operator."""
    drawn = random_nodes(program)
    (output,) = program.graph.find_nodes(op="output")
    return [result in drawn for result in output.args[0]]


def random_nodes(program: torch.export.ExportedProgram) -> set[torch.fx.Node]:
    """Nodes of the captured graph whose values depend on a random operator."""
    drawn: set[torch.fx.Node] = set()
    for node in program.graph.nodes:
        if node.op != "output" and (
            _is_random(node, program.graph_module)
            or any(source in drawn for source in node.all_input_nodes)
        ):
            drawn.add(node)
    return drawn


def _is_random(node: torch.fx.Node, owner: torch.nn.Module) -> bool:
    if isinstance(node.target, OpOverload):
        return draws_random_numbers(node)
    bodies = [
        getattr(owner, str(source.target), None)
        for source in node.all_input_nodes
        if source.op == "get_attr"
    ]
    return any(
        _is_random(inner, body)
        for body in bodies
        if isinstance(body, torch.fx.GraphModule)
        for inner in body.graph.nodes
    )
