"""Refuses ``state="io"`` for models that assign a tensor of another shape to a buffer.

A model that gets its state as an input can be called again only if the new state has the shape of
the old one. With ``state="outputs"`` the new value is an output like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.export.graph_signature import InputKind, OutputKind

from onnx_aot.errors import CaptureError
from onnx_aot.torch_compat import is_data_symbol, known_number, symbolic_expression

__all__ = ["check_state_shapes"]


def check_state_shapes(program: torch.export.ExportedProgram) -> None:
    """Tests that the new value of each buffer of a functional graph has the buffer's shape.

    Raises:
        CaptureError: A new value has another shape, for some sizes of the inputs at least.
    """
    graph, signature = program.graph, program.graph_signature
    names = {
        str(spec.target): str(getattr(spec.arg, "name", ""))
        for spec in signature.input_specs
        if spec.kind == InputKind.BUFFER
    }
    placeholders = {node.name: node for node in graph.find_nodes(op="placeholder")}
    values = graph.output_node().args[0]
    for value, spec in zip(values, signature.output_specs, strict=True):
        if spec.kind == OutputKind.BUFFER_MUTATION:
            held = placeholders[names[str(spec.target)]].meta["val"].shape
            new = value.meta["val"].shape
            if not _are_equal(new, held):
                raise _changes_shape(str(spec.target), held, new)


def _are_equal(new: Sequence[Any], held: Sequence[Any]) -> bool:
    """False if the shapes differ for some inputs; sizes that depend on data may be equal."""
    return len(new) == len(held) and all(
        known_number(one) == known_number(other) or _depends_on_data(one)
        for one, other in zip(new, held, strict=True)
    )


def _depends_on_data(size: Any) -> bool:
    if not isinstance(size, torch.SymInt):
        return False
    return any(map(is_data_symbol, getattr(symbolic_expression(size), "free_symbols", ())))


def _changes_shape(name: str, held: Sequence[Any], new: Sequence[Any]) -> CaptureError:
    shapes = [f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})" for shape in (held, new)]
    cause = (
        f"forward assigns a tensor of shape {shapes[1]} to {name}, which has shape {shapes[0]}; "
        'with state="io" the state of an ONNX model keeps its shape'
    )
    fix = (
        "call the model once before the export, model(*args), so that it has its state; or "
        f"register {name} as a buffer with the shape that it has later; or leave state out: then "
        "the new value is an output only"
    )
    return CaptureError(
        f"the model could not be captured; {cause}\nfix: {fix}",
        cause=cause,
        fix=fix,
        code="OA106",
    )
