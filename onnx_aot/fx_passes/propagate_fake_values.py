"""Computes fake values that nodes of a program given by the user lack, and views that it lost."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

from onnx_aot.errors import ConversionError
from onnx_aot.fx_passes.functional_twins import written_nodes
from onnx_aot.fx_passes.nested_graphs import every_body
from onnx_aot.torch_compat import (
    FakeTensorMode,
    OpOverload,
    aten,
    fake_mode_of,
    schema_of,
    storage_key,
)

__all__ = ["record_values"]

ALWAYS_VIEWS = frozenset(
    {
        aten.detach.default,
        aten.diagonal.default,
        aten.expand.default,
        aten.permute.default,
        aten.select.int,
        aten.slice.Tensor,
        aten.split.Tensor,
        aten.split_with_sizes.default,
        aten.squeeze.dim,
        aten.t.default,
        aten.transpose.int,
        aten.unbind.int,
        aten.unsqueeze.default,
        aten.view.default,
    }
)
"""Operators whose results share memory with their argument, whatever it is."""


def record_values(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Computes the fake value of every ATen call and size that has none in ``node.meta["val"]``.

    A capture records one on every node. Libraries that edit the graph of an ExportedProgram before
    they hand it to an exporter often leave it out.

    ``torch.export.save`` keeps no storages, so that no value of a loaded program is a view of
    another. If such a program writes, the values of its views are computed again.

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
        if any(map(_is_lost_view, module.graph.nodes)) and any(
            map(written_nodes, module.graph.nodes)
        ):
            _record_views(module.graph, mode)
    return program


def _is_lost_view(node: torch.fx.Node) -> bool:
    """True if the recorded value of a view shares no memory with that of its argument."""
    if node.target not in ALWAYS_VIEWS:
        return False
    viewed = node.all_input_nodes[0].meta.get("val")
    value = node.meta.get("val")
    if isinstance(value, (list, tuple)) and value:
        value = value[0]
    if not isinstance(viewed, torch.Tensor) or not isinstance(value, torch.Tensor):
        return False
    dense = viewed.layout == value.layout == torch.strided
    return dense and storage_key(viewed) != storage_key(value)


def _record_views(graph: torch.fx.Graph, mode: Any) -> None:
    """Computes the values of all results that may be views, which then share memory."""
    again: set[torch.fx.Node] = set()
    for node in graph.nodes:
        if node.target is operator.getitem and node.args[0] in again:
            node.meta["val"] = node.args[0].meta["val"][node.args[1]]
        elif isinstance(node.target, OpOverload) and _may_be_view(node.target):
            node.meta["val"] = _compute_fake_value(node, mode)
            again.add(node)


def _may_be_view(target: OpOverload) -> bool:
    """True if results may share memory with an argument that the operator does not write."""
    aliases = [result.alias_info for result in schema_of(target).returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


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
