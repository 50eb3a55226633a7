"""Finds copies that share memory at size 1, in graphs that write to tensors.

``x.transpose(0, 1).contiguous()`` copies, but for size 1, for which the order of the axes says
nothing; then a write to the one is one to the other. An ONNX model has copies at every size.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from onnx_aot.capture.sizes.captured_dimensions import sizes_of
from onnx_aot.capture.sizes.dimension_requests import DynamicShapes
from onnx_aot.capture.sizes.graph_runs import is_recorded_copy
from onnx_aot.capture.sizes.guards import Location
from onnx_aot.capture.sizes.size_branches import SmallBranch
from onnx_aot.metadata.provenance import location
from onnx_aot.torch_compat import OpOverload, schema_of, symbolic_expression

__all__ = ["find_small_copies"]


def find_small_copies(
    program: torch.export.ExportedProgram, requested: DynamicShapes
) -> Iterator[SmallBranch]:
    """Yields the dimensions on which the size of a copy depends, each with the line of the copy.

    Nothing is yielded for a graph that writes to no tensor. Whether it matters is for others to
    tell, by running the graph and the model at that size.

    Args:
        program: A capture.
        requested: The user's request.
    """
    copies = [node for node in program.graph.nodes if is_recorded_copy(node)]
    if not copies or not any(map(_writes, program.graph.nodes)):
        return
    for dim, size in sizes_of(program, requested):
        if not isinstance(size, torch.SymInt) or not dim.limits[0] <= 1 <= dim.limits[1]:
            continue
        symbols = symbolic_expression(size).free_symbols
        for node in copies:
            line = location(node)
            sizes = node.args[0].meta["val"].shape
            used = (symbolic_expression(s) for s in sizes if isinstance(s, torch.SymInt))
            if line is not None and any(symbols & expression.free_symbols for expression in used):
                cited = Location(line.file, line.line, line.function).cited
                yield SmallBranch(dim, 1, cited, False)
                break


def _writes(node: torch.fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and schema_of(node.target).is_mutable
