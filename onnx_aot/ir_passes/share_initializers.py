"""Merges initializers that hold the same tensor."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.torch_compat import has_elements

__all__ = ["share_initializers"]


def share_initializers(model: ir.Model) -> int:
    """Merges tied weights, which share one torch storage, into one initializer.

    Nothing is compared element by element: two tensors are the same if they have the same memory,
    type, shape and strides.

    Before::

        embed.weight, head.weight      the same torch tensor

    After::

        embed.weight                   read in both places

    Returns:
        The number of dropped initializers.
    """
    initializers = model.graph.initializers
    kept: dict[Any, ir.Value] = {}
    dropped = []
    for value in initializers.values():
        key = _memory_key(value)
        if key is None or value.is_graph_output() or value.is_graph_input():
            continue
        first = kept.setdefault(key, value)
        if first is not value:
            value.replace_all_uses_with(first)
            dropped.append(str(value.name))
    for name in dropped:
        del initializers[name]
    return len(dropped)


def _memory_key(value: ir.Value) -> Any:
    tensor = getattr(value.const_value, "raw", None)
    if not isinstance(tensor, torch.Tensor) or tensor.numel() == 0:
        return None
    if tensor.layout != torch.strided or not has_elements(tensor):
        return None
    pointer = tensor.data_ptr()
    if pointer == 0:
        return None
    return (pointer, tensor.dtype, tuple(tensor.shape), tensor.stride())
