"""Computes fake values for nodes that were added to a captured graph by hand."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

from onnx_aot.errors import ConversionError
from onnx_aot.fx_passes.nested_graphs import every_body
from onnx_aot.torch_compat import FakeTensorMode, OpOverload, fake_mode_of, schema_of

__all__ = ["record_values"]


def record_values(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Computes the fake value of every ATen call and size that has none in ``node.meta["val"]``.

    A capture records one on every node. Libraries that edit the graph of an ExportedProgram before
    they hand it to an exporter often leave it out.

    Before::

        %arange = arange(%size)         no value

    After::

        %arange = arange(%size)         int64[s0]

    Raises:
        ConversionError: A node without a value cannot be computed from its arguments.
    """
    modules = [program.graph_module, *every_body(program.graph_module)]
    mode = fake_mode_of([node.meta.get("val") for node in program.graph_module.graph.nodes])
    for module in modules:
        for node in module.graph.nodes:
            if _lacks_value(node):
                node.meta["val"] = _compute_fake_value(node, mode)
    return program


def _lacks_value(node: torch.fx.Node) -> bool:
    """True if a node should have a recorded value; assertions return nothing and have none."""
    if "val" in node.meta or node.op != "call_function":
        return False
    if isinstance(node.target, OpOverload):
        return bool(schema_of(node.target).returns)
    return getattr(node.target, "__module__", None) == operator.add.__module__ and all(
        "val" in given.meta for given in node.all_input_nodes
    )


def _compute_fake_value(node: torch.fx.Node, mode: Any) -> Any:
    target: Any = node.target
    try:
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda given: given.meta["val"])
        mode = fake_mode_of((args, kwargs)) or mode or FakeTensorMode()
        with mode, torch.no_grad():
            return target(*args, **kwargs)
    except Exception as error:
        raise ConversionError(
            f"the node {node.format_node()} has no recorded value, and it cannot be computed: "
            f"{type(error).__name__}: {error}. It was added to the graph after the capture: set "
            'node.meta["val"] to its result for the FakeTensors of its arguments'
        ) from error
