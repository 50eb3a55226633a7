"""Finds the weights in which an ONNX model and a PyTorch model differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import TorchTensor

from onnx_aot import dtypes
from onnx_aot.inspection.verification import OtherWeights
from onnx_aot.serialization.weights import is_absent, real_parts

__all__ = ["find_other_weights"]


def find_other_weights(
    values: Mapping[str, ir.Value], fed: Mapping[str, torch.Tensor], model: Any
) -> OtherWeights | None:
    """Compares the weights of an ONNX model with those of a PyTorch model, bit by bit.

    Weights that only one of them has, or that have another type or shape in the other, are not
    compared: the ONNX model may store them in another form.

    Args:
        values: Weights of the ONNX model by their names in the module.
        fed: Values of those that are inputs, by input name.
        model: A module, an ``ExportedProgram``, or a function, which has no weights.

    Returns:
        The names of weights that differ; None if all agree.
    """
    tensors = _list_tensors(model)
    names = [name for name in tensors if name in values]
    pairs = [(name, _read(values[name], fed), real_parts(tensors[name])) for name in names]
    compared = [(name, held, given) for name, held, given in pairs if _are_alike(held, given)]
    differing = tuple(
        name for name, held, given in compared if _read_bytes(given) != held.tobytes()
    )
    return OtherWeights(differing, len(compared)) if differing else None


def _list_tensors(model: Any) -> dict[str, torch.Tensor]:
    if isinstance(model, torch.export.ExportedProgram):
        return dict(model.state_dict)
    if not isinstance(model, torch.nn.Module):
        return {}
    parameters = model.named_parameters(remove_duplicate=False)
    return {**dict(parameters), **dict(model.named_buffers(remove_duplicate=False))}


def _read(value: ir.Value, fed: Mapping[str, torch.Tensor]) -> Any:
    """The stored tensor; None if it has no values."""
    given = fed.get(str(value.name))
    tensor = value.const_value if given is None else TorchTensor(real_parts(given))
    return None if is_absent(tensor) else tensor


def _are_alike(held: Any, given: torch.Tensor) -> bool:
    """True if both have values, of the same type and shape."""
    if held is None or is_absent(given) or given.layout != torch.strided:
        return False
    return bool(held.dtype == dtypes.to_onnx(given.dtype)) and held.shape == ir.Shape(given.shape)


def _read_bytes(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()
