"""Keeps the arguments of autograd functions alive as long as the program that calls them."""

from __future__ import annotations

import torch

from onnx_aot.torch_compat import OpOverload
from onnx_aot.torch_ops.function_calls import CALLS, NAMESPACE

__all__ = ["keep_calls"]

KEPT_CALL = "onnx_aot_call"
"""Key of a node's metadata, which copies of the node share."""


def keep_calls(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Lets each node of an operator that stands for an autograd function hold its call."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                if isinstance(node.target, OpOverload) and node.target.namespace == NAMESPACE:
                    node.meta[KEPT_CALL] = CALLS.get((node.target, node.args[-1]))
    return program
