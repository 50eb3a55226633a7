"""Weights of a model by the names that they have in the PyTorch module."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import onnx_ir as ir
import torch
from torch.export.graph_signature import InputKind

from onnx_aot import dtypes
from onnx_aot.errors import InvalidOptionError
from onnx_aot.ir_passes.folded import set_sources
from onnx_aot.metadata_keys import ORIGINAL_NAME
from onnx_aot.torch_compat import FakeTensor

__all__ = ["fitting_weights", "real_parts", "weights_by_target"]


def weights_by_target(
    graph: ir.Graph, program: torch.export.ExportedProgram | None, held: Collection[str]
) -> dict[str, ir.Value]:
    """Initializers and inputs by the names that their weights, also tied ones, have in the module.

    Weights that were folded into others are among them, though the graph has them no more.

    Args:
        graph: The main graph.
        program: What was captured; None takes the graph's own names.
        held: Names of the inputs that are weights or state.
    """
    values = set_sources(graph.initializers)
    values.update({str(v.name): v for v in graph.inputs if str(v.name) in held})
    if program is None:
        return values
    targets = {
        spec.arg.name: str(spec.target)
        for spec in program.graph_signature.input_specs
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER)
    }
    found: dict[str, ir.Value] = {}
    for name, value in values.items():
        target = targets.get(value.metadata_props.get(ORIGINAL_NAME, name))
        if target is not None:
            found[target] = value
    tensors = program.state_dict
    owners = {_memory(tensors[target]): found[target] for target in found if target in tensors}
    for target, tensor in tensors.items():
        if _memory(tensor) in owners:
            found.setdefault(target, owners[_memory(tensor)])
    return found


def fitting_weights(
    values: Mapping[str, ir.Value], state_dict: Mapping[str, torch.Tensor]
) -> list[tuple[ir.Value, torch.Tensor]]:
    """The model's weights that a state dict has tensors for, with these.

    Args:
        values: Weights by their names in the module.
        state_dict: Tensors by such names.

    Raises:
        InvalidOptionError: Shapes or types differ, or tied weights get different values.
    """
    wrong: list[str] = []
    replaced: dict[str, tuple[ir.Value, str, torch.Tensor]] = {}
    for given, tensor in state_dict.items():
        value = values.get(given)
        if value is None:
            continue
        name = str(value.name)
        parts = real_parts(tensor)
        dtype, shape = dtypes.to_onnx(parts.dtype), ir.Shape(parts.shape)
        if (value.dtype, value.shape) != (dtype, shape):
            wrong.append(
                f"{given} is {_type_of(value)} in the model, {dtype.name}{shape} was given"
            )
        elif name in replaced and not _equal(replaced[name][2], tensor):
            wrong.append(
                f"{given} and {replaced[name][1]} are one weight in the model, two different "
                "ones were given"
            )
        replaced.setdefault(name, (value, given, tensor.detach()))
    if wrong:
        raise InvalidOptionError("weights do not fit the model: " + "; ".join(wrong))
    return [(value, tensor) for value, _, tensor in replaced.values()]


def real_parts(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, of complex numbers the parts, which is what the model holds."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _type_of(value: ir.Value) -> str:
    return f"{value.dtype.name if value.dtype is not None else '?'}{value.shape}"


def _memory(tensor: torch.Tensor) -> tuple[Any, ...]:
    empty = tensor.is_meta or isinstance(tensor, FakeTensor)  # these share a storage, if anything
    place = tensor.untyped_storage()._cdata if empty else tensor.data_ptr()
    return (place, tensor.shape, tensor.stride())


def _equal(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left is right or (not left.is_meta and not right.is_meta and torch.equal(left, right))
