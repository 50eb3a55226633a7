"""Refuses models that assign a tensor of another shape to a buffer, such as one that was empty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.export.graph_signature import InputKind

from onnx_aot.capture.error_hints import page
from onnx_aot.errors import CaptureError
from onnx_aot.torch_compat import aten, known_number

__all__ = ["check_state_shapes"]


def check_state_shapes(program: torch.export.ExportedProgram) -> None:
    """Tests that each buffer keeps its shape when the captured model assigns to it.

    Raises:
        CaptureError: The captured model assigns a tensor that does not fit the buffer's shape.
    """
    specs = program.graph_signature.input_specs
    buffers = {
        str(getattr(spec.arg, "name", "")): str(spec.target)
        for spec in specs
        if spec.kind == InputKind.BUFFER
    }
    for node in program.graph.nodes:
        if node.op == "call_function" and node.target is aten.copy_.default:
            held, new = node.args[0], node.args[1]
            name = buffers.get(held.name)
            if name is not None and not _fits(new.meta["val"].shape, held.meta["val"].shape):
                raise _changes_shape(name, held.meta["val"].shape, new.meta["val"].shape)


def _fits(shape: Sequence[Any], held: Sequence[Any]) -> bool:
    """False if a tensor cannot be copied into one of another shape, as far as is known."""
    if len(shape) > len(held):
        return False
    pairs = zip(reversed(shape), reversed(held), strict=False)
    sizes = [(known_number(new), known_number(old)) for new, old in pairs]
    return all(new in (None, 1, old) or old is None for new, old in sizes)


def _changes_shape(name: str, held: Sequence[Any], new: Sequence[Any]) -> CaptureError:
    shapes = [f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})" for shape in (held, new)]
    cause = (
        f"forward assigns a tensor of shape {shapes[1]} to {name}, which has shape {shapes[0]}; "
        "the state of an ONNX model keeps its shape"
    )
    fix = (
        "call the model once before the export, model(*args), so that it has its state; or "
        f"register {name} as a buffer with the shape that it has later"
    )
    return CaptureError(
        f"the model could not be captured; {cause}\nfix: {fix}\n{page('state')}",
        cause=cause,
        fix=f"{fix}. {page('state')}",
    )
