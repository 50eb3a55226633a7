"""Rejects programs in which ``torch.vmap`` or ``torch.func`` left a transform."""

from __future__ import annotations

import torch
import torch.fx

from onnx_aot.errors import FunctionalizationError
from onnx_aot.metadata.provenance import location
from onnx_aot.torch_compat import is_transform

__all__ = ["refuse_transforms"]


def refuse_transforms(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Returns a program unchanged; torch's ``run_decompositions`` applies most transforms.

    Before::

        y = _add_batch_dim(x, 0, 1)
        z = sum(y)

    Raises:
        FunctionalizationError: A transform is in the graph.
    """
    for node in program.graph.nodes:
        if node.op == "call_function" and is_transform(node.target):
            line = location(node)
            where = "" if line is None else f" at {line}"
            raise FunctionalizationError(
                f"the model uses a function transform{where}, torch.vmap or one of torch.func; "
                "the captured graph contains only its parts",
                code="OA120",
            )
    return program
