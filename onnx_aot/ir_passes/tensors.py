"""Reads the tensors of a model as torch tensors, if they are in memory."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.metadata.keys import INPUT_KIND
from onnx_aot.torch_compat import has_elements

__all__ = ["SMALL", "content_key", "in_memory", "is_weight"]

SMALL = 4096
"""Number of elements. Larger tensors are treated as weights and not compared by content."""


def in_memory(tensor: Any, limit: int | None = None) -> torch.Tensor | None:
    """Returns the tensor as a torch tensor on the CPU.

    It shares memory if torch holds the data there.

    Args:
        tensor: Any tensor of ``onnx_ir``.
        limit: Largest number of elements; larger tensors give None.

    Returns:
        None if the data is not in memory (files, lazy tensors, fake and meta tensors), or if torch
        has no such type.
    """
    raw = getattr(tensor, "raw", None)
    if isinstance(raw, torch.Tensor):
        if limit is not None and raw.numel() > limit:
            return None
        is_there = has_elements(raw) and raw.layout == torch.strided
        return raw.detach().cpu() if is_there else None
    if not isinstance(tensor, (ir.Tensor, ir.TensorProtoTensor)):
        return None
    dtype = tensor.dtype
    if limit is not None and tensor.size > limit:
        return None
    if dtype == ir.DataType.STRING or dtype.bitwidth < 8:
        return None
    try:
        wanted = dtypes.to_torch(dtype)
    except TypeError:
        return None
    shape = [int(size) for size in tensor.shape.numpy()]
    if tensor.size == 0:
        return torch.empty(shape, dtype=wanted)
    return torch.frombuffer(bytearray(tensor.tobytes()), dtype=wanted).reshape(shape)


def is_weight(value: ir.Value) -> bool:
    """Returns True if a value holds a parameter or buffer, which may be replaced later."""
    return value.metadata_props.get(INPUT_KIND) in ("PARAMETER", "BUFFER")


def content_key(tensor: torch.Tensor) -> Any:
    """Returns a key that is equal for tensors of the same type, shape and content."""
    return (tensor.dtype, tuple(tensor.shape), _read_bytes(tensor))


def _read_bytes(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().cpu().reshape(-1)
    if flat.stride(0) != 1:  # contiguous() keeps the stride 0 of an expanded single element
        flat = flat.clone(memory_format=torch.contiguous_format)
    return bytes(flat.view(torch.uint8).numpy()) if flat.numel() else b""
