"""Rejects input sizes that a model was not captured for, before it runs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import onnx_ir as ir
import torch

from onnx_aot.dimensions import conditions
from onnx_aot.errors import InferenceError
from onnx_aot.metadata.keys import DIMENSIONS

__all__ = ["refuse_crashes", "refuse_other_sizes"]

# Every broadcast makes the capture guard on a size being 0 or 1. ONNX operators test that again
# when they run, so a minimum of 2 is not enforced here; runtime_checks=True enforces it.
HARMLESS_MINIMUM = 2

_CRASHING = {"LSTM": {1: "batch"}, "GRU": {0: "sequence", 1: "batch"}}
"""Axes of the first input that must not be empty, by operator."""


def refuse_other_sizes(graph: ir.Graph, inputs: Mapping[str, torch.Tensor]) -> None:
    """Checks the sizes of inputs against the ranges and relations in the graph's metadata.

    The metadata also has the conditions of the capture. They are not enforced here: many do not
    affect the ONNX model, which is correct even where they do not hold.

    Args:
        graph: The main graph.
        inputs: A tensor for each of its inputs, by name.

    Raises:
        InferenceError: A dimension is outside its range, or sizes violate a relation that was
            asked for.
    """
    written = graph.metadata_props.get(DIMENSIONS)
    if written is None:
        return
    known = json.loads(written)
    sizes: dict[str, int] = {}
    for value in graph.inputs:
        name, tensor = str(value.name), inputs[str(value.name)]
        if tensor.dim() == 0 and tensor.dtype == torch.int64:
            sizes[name] = int(tensor)
        for axis, dimension in enumerate(value.shape or ()):
            size = sizes[f"{name}.shape[{axis}]"] = tensor.shape[axis]
            limits = known["dimensions"].get(str(dimension))
            if limits is not None:
                _refuse_outside(size, limits, f"dimension {dimension} (input {name}, axis {axis})")
    for relation in known["relations"]:
        if conditions.holds(relation, sizes) is False:
            found = ", ".join(f"{t} is {size}" for t, size in sizes.items() if _is_in(t, relation))
            raise InferenceError(f"the model was exported with {relation}; {found}", code="OA603")


def refuse_crashes(graph: ir.Graph, inputs: Mapping[str, torch.Tensor]) -> None:
    """Refuses empty inputs of layers for which ONNX Runtime would end the process.

    Inputs whose sizes are those of the model's inputs are found, computed ones are not.

    Args:
        graph: The main graph.
        inputs: A tensor for each of its inputs, by name.

    Raises:
        InferenceError: A batch of an LSTM or a GRU, or a sequence of a GRU, is empty.
    """
    if all(tensor.numel() for tensor in inputs.values()):
        return
    empty = {
        str(dimension): f"input {value.name}, axis {axis}"
        for value in graph.inputs
        for axis, dimension in enumerate(value.shape or ())
        if inputs[str(value.name)].shape[axis] == 0
    }
    for node in graph.all_nodes():
        axes = _CRASHING.get(node.op_type)
        sequence = node.inputs[0] if axes else None
        if axes is None or sequence is None or sequence.shape is None:
            continue
        for axis, what in axes.items():
            size = str(sequence.shape[axis])
            if size in empty:
                raise InferenceError(
                    f"dimension {size} ({empty[size]}) is 0; ONNX Runtime's kernel of "
                    f"{node.op_type}, node {node.name}, ends the process if the {what} is empty. "
                    f"Leave out the call for an empty {what}",
                    code="OA603",
                )


def _is_in(term: str, relation: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(term)}(?![\w\[])", relation) is not None


def _refuse_outside(size: int, limits: Mapping[str, int], what: str) -> None:
    least, most = limits.get("min", 0), limits.get("max")
    if HARMLESS_MINIMUM < least > size or (most is not None and size > most):
        accepted = f"{least} or more" if most is None else f"{least} to {most}"
        raise InferenceError(
            f"{what} is {size}; the model was captured for {accepted}. Export it with another "
            "range of the dimension, or an example that does not narrow it",
            code="OA603",
        )
