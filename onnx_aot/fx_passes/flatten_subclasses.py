"""Replaces parameters and buffers of tensor subclasses by their inner tensors."""

from __future__ import annotations

import dataclasses

import torch
import torch.fx
from torch.export.graph_signature import ExportGraphSignature, TensorArgument

from onnx_aot import torch_compat
from onnx_aot.errors import ConversionError

__all__ = ["open_subclasses"]


def open_subclasses(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Turns the inner tensors that the graph takes from tensor subclasses into inputs.

    torchao's quantized weights are such subclasses: integers, scales and zero points. The inputs
    are named after the weight and the attribute.

    Before::

        %p_weight : placeholder                                 Int8Tensor of float32
        qdata = access_subclass_inner_tensor(%p_weight, "qdata")

    After::

        %p_weight_qdata : placeholder                           int8

    Raises:
        ConversionError: A node reads a subclass tensor as a whole.
    """
    found = _find_accesses(program.graph_module.graph)
    while found:  # an inner tensor may be of a subclass again
        for holder, nodes in found.items():
            _open(program, holder, nodes)
        found = _find_accesses(program.graph_module.graph)
    return program


def _find_accesses(graph: torch.fx.Graph) -> dict[torch.fx.Node, list[torch.fx.Node]]:
    """Nodes that take inner tensors out of a placeholder, by placeholder."""
    target = torch_compat.access_of_subclasses()
    found: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for node in graph.nodes:
        if target is None or node.target is not target:
            continue
        holder = node.args[0]
        if isinstance(holder, torch.fx.Node) and holder.op == "placeholder":
            found.setdefault(holder, []).append(node)
    return found


def _open(
    program: torch.export.ExportedProgram, holder: torch.fx.Node, nodes: list[torch.fx.Node]
) -> None:
    graph, signature = program.graph_module.graph, program.graph_signature
    specs = list(signature.input_specs)
    (place,) = [i for i, spec in enumerate(specs) if spec.arg.name == holder.name]
    spec, last = specs[place], holder
    made: dict[str, torch.fx.Node] = {}
    for node in nodes:
        name = str(node.args[1])
        if name not in made:
            with graph.inserting_after(last):
                made[name] = last = graph.placeholder(f"{holder.name}_{name}")
            last.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(made[name])
        graph.erase_node(node)
    targets = {name: f"{spec.target}.{name}" for name in made}
    specs[place + 1 : place + 1] = [
        dataclasses.replace(spec, arg=TensorArgument(made[name].name), target=target)
        for name, target in targets.items()
    ]
    if holder.users:
        reader = next(iter(holder.users))
        raise ConversionError(
            f"{spec.target} is a {type(holder.meta['val']).__name__}, which the captured node "
            f"{reader.name} ({reader.target}) reads as a whole; a tensor subclass can be "
            "exported only if the model computes with its inner tensors"
        )
    graph.erase_node(holder)
    del specs[place]
    torch_compat.open_weight(program, str(spec.target), targets)
    torch_compat.set_graph_signature(
        program, ExportGraphSignature(specs, list(signature.output_specs))
    )
