"""Finds the values of a captured program that are random and so cannot be compared."""

from __future__ import annotations

import torch
import torch.fx

from onnx_aot.torch_compat import OpOverload, schema_of

__all__ = ["random_nodes", "random_outputs"]

FLAGS = ("train", "training")
PROBABILITIES = ("p", "dropout", "dropout_p")


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
        return _draws_random_numbers(node, node.target)
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


def _draws_random_numbers(node: torch.fx.Node, target: OpOverload) -> bool:
    """True if an operator draws random numbers in this call.

    Not every operator with dropout is tagged as random, and in those that are tagged dropout may be
    off.
    """
    given = {}
    for position, argument in enumerate(schema_of(target).arguments):
        default = argument.default_value if argument.has_default_value() else None
        value = node.args[position] if position < len(node.args) else default
        given[argument.name] = node.kwargs.get(argument.name, value)
    name = schema_of(target).name
    may = torch.Tag.nondeterministic_seeded in target.tags or (
        "dropout" in name or "rrelu" in name or "dropout_p" in given
    )
    if not may or any(given.get(flag) is False for flag in FLAGS):
        return False
    probabilities = [given[name] for name in PROBABILITIES if name in given]
    return not any(isinstance(p, (int, float)) and p == 0 for p in probabilities)
