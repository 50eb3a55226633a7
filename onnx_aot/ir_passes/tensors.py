"""Tensors of a model as torch's, where they are in memory."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.torch_compat import FakeTensor

__all__ = ["SMALL", "content_key", "in_memory"]

SMALL = 4096
"""Elements. Larger tensors are weights: they are not compared by content."""


def in_memory(tensor: Any) -> torch.Tensor | None:
    """The tensor as torch's, sharing memory where torch holds it.

    Args:
        tensor: Any tensor of ``onnx_ir``.

    Returns:
        None where it is not in memory (files, lazy tensors, torch's fake and meta tensors), or
        torch has no such type.
    """
    raw = getattr(tensor, "raw", None)
    if isinstance(raw, torch.Tensor):
        empty = raw.is_meta or isinstance(raw, FakeTensor) or raw.layout != torch.strided
        return None if empty else raw.detach()
    if isinstance(tensor, (ir.ExternalTensor, ir.LazyTensor)):
        return None
    dtype = tensor.dtype
    if dtype == ir.DataType.STRING or dtype.bitwidth < 8:
        return None
    try:
        wanted = dtypes.to_torch(dtype)
    except TypeError:
        return None
    if tensor.size == 0:
        return torch.empty(tuple(tensor.shape), dtype=wanted)
    data = torch.frombuffer(bytearray(tensor.tobytes()), dtype=wanted)
    return data.reshape(tuple(tensor.shape))


def content_key(tensor: torch.Tensor) -> Any:
    """Equal for tensors of one type, shape and content."""
    return (tensor.dtype, tuple(tensor.shape), _bytes(tensor))


def _bytes(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy()) if flat.numel() else b""
