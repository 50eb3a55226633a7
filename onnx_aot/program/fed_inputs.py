"""Values that a program feeds by itself: state and weights that are inputs of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.errors import InferenceError
from onnx_aot.metadata.keys import STATE
from onnx_aot.serialization.weights import is_absent

__all__ = ["fed_values", "new_state"]


def fed_values(
    inputs: Sequence[ir.Value], held: Mapping[str, torch.Tensor], given: Mapping[str, Any]
) -> list[Any]:
    """Returns values for the inputs that a program holds values for.

    Args:
        inputs: These inputs.
        held: The program's values, by input name.
        given: Values that the caller gives instead, by input name.

    Raises:
        InferenceError: A value to be fed has no elements (a fake or meta tensor).
    """
    values = []
    for value in inputs:
        name = str(value.name)
        tensor = given.get(name, held[name])
        if is_absent(tensor):
            raise InferenceError(
                f"input {name} has no values yet: the model was exported from a module without "
                f"them. Call apply_weights(state_dict), or give {name} in the call",
                code="OA502",
            )
        values.append(tensor)
    return values


def new_state(
    outputs: Sequence[ir.Value], tensors: Sequence[torch.Tensor], names: set[str]
) -> dict[str, torch.Tensor]:
    """Returns the new state from the outputs of a call, by the names of the inputs it is for.

    Args:
        outputs: The graph's outputs.
        tensors: Their values, which are copied.
        names: Inputs to return state for.
    """
    sources = [value.metadata_props.get(STATE) for value in outputs]
    return {
        source: tensor.clone()
        for source, tensor in zip(sources, tensors, strict=True)
        if source in names
    }
