"""Detects captures whose sizes are wrong for empty tensors or for the example.

Such a model is captured again with other settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.fx

from onnx_aot.capture.sizes.dimension_requests import DynamicShapes
from onnx_aot.torch_compat import holds_for_example, holds_when_empty

__all__ = ["contradicts_example", "is_derived_from_zero", "may_be_wrong"]


def is_derived_from_zero(requested: DynamicShapes) -> bool:
    """True if a dimension such as ``n + 1`` was requested, with an ``n`` that may be zero.

    Torch substitutes it in earlier results, and a fact about ``m`` need not hold for ``n + 1``.
    """
    roots = (getattr(dim.given, "root", None) for dim in requested.requested if dim.derived)
    return any(getattr(root, "min", 0) < 1 for root in roots)


def may_be_wrong(program: torch.export.ExportedProgram, folded: bool) -> bool:
    """True if sizes are computed, and the size of some result is wrong for an empty operand.

    An example is ``x[1:]``, whose size is ``n - 1``.

    Args:
        program: The capture.
        folded: Whether an operator asked for the maximum of a size and 0 and got the size.
    """
    nodes = program.graph.nodes
    if not any(isinstance(node.meta.get("val"), torch.SymInt) and node.users for node in nodes):
        return False
    return folded or not all(holds_when_empty(*_sizes(node)) for node in _slices(program))


def contradicts_example(program: torch.export.ExportedProgram) -> bool:
    """True if the recorded size of a slice differs from its size in the example."""
    bounded = (
        node
        for node in _slices(program)
        if any(isinstance(bound, torch.fx.Node) for bound in node.args[2:4])
    )
    return not all(holds_for_example(*_sizes(node)) for node in bounded)


def _slices(program: torch.export.ExportedProgram) -> Iterator[torch.fx.Node]:
    return (node for node in program.graph.nodes if node.target is torch.ops.aten.slice.Tensor)


def _sizes(node: torch.fx.Node) -> tuple[Any, Any, Any, Any, int]:
    """Sizes of the operand and the result along the sliced axis; then start, end and step."""
    defaults = (None, 0, None, None, 1)
    arguments: list[Any] = [*node.args, *defaults[len(node.args) :]]
    operand, axis, start, end, step = (
        argument.meta["val"] if isinstance(argument, torch.fx.Node) else argument
        for argument in arguments
    )
    return operand.shape[axis], node.meta["val"].shape[axis], start, end, step
