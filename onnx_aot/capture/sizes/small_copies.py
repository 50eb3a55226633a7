"""Finds copies that share memory at size 1, and whose memory a graph writes to.

``x.transpose(0, 1).contiguous()`` copies, but for size 1, for which the order of the axes says
nothing; then a write to the one is one to the other. An ONNX model has copies at every size.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from onnx_aot.capture.sizes.captured_dimensions import sizes_of
from onnx_aot.capture.sizes.dimension_requests import DynamicShapes
from onnx_aot.capture.sizes.graph_runs import is_recorded_copy, written_arguments
from onnx_aot.capture.sizes.guards import Location
from onnx_aot.capture.sizes.size_branches import SmallBranch
from onnx_aot.metadata.provenance import location
from onnx_aot.torch_compat import storage_key, symbolic_expression

__all__ = ["find_small_copies"]


def find_small_copies(
    program: torch.export.ExportedProgram, requested: DynamicShapes
) -> Iterator[SmallBranch]:
    """Yields the dimensions on which the size of a copy depends, each with the line of the copy.

    Only copies are yielded of which the graph writes to one side. Whether it matters is for others
    to tell, by running the graph and the model at that size.

    Args:
        program: A capture.
        requested: The user's request.
    """
    copies = [node for node in program.graph.nodes if is_recorded_copy(node)]
    if not copies:
        return
    written = {_key(one) for node in program.graph.nodes for one in written_arguments(node)}
    copies = [node for node in copies if written & {_key(node), _key(node.args[0])}]
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


def _key(node: torch.fx.Node) -> int | None:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    return storage_key(value)
