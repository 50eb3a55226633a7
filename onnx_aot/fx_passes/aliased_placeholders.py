"""Merges buffers and parameters that are one tensor under several names."""

from __future__ import annotations

from collections.abc import Set

import torch
import torch.fx

from onnx_aot.errors import ConversionError
from onnx_aot.torch_compat import storage_key

__all__ = ["merge_aliased_placeholders"]


def merge_aliased_placeholders(graph: torch.fx.Graph, written: Set[int]) -> bool:
    """Makes the graph read each written tensor under a single name.

    Modules may register one tensor twice, and a write under one name is visible under the other.
    Functionalization follows this best with one name. The other placeholders stay, unread.

    Before::

        %a : placeholder        the same tensor as b
        %b : placeholder
        add_ = add_(%a, 1)
        y = relu(%b)

    After::

        add_ = add_(%a, 1)
        y = relu(%a)

    Args:
        graph: Edited in place.
        written: Addresses of the storages that are written somewhere.

    Returns:
        True if placeholders were merged.

    Raises:
        ConversionError: A written tensor shares memory with one of another shape, such as a
            buffer that is a slice of another buffer.
    """
    first: dict[int, torch.fx.Node] = {}
    merged = False
    for node in graph.nodes:
        if node.op != "placeholder":
            break
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            continue
        storage = storage_key(value)
        if storage not in written:
            continue
        other = first.setdefault(storage, node)
        if other is node:
            continue
        if not _is_same_view(value, other.meta["val"]):
            raise ConversionError(
                f"the model writes to {other.name} or {node.name}, which share memory without "
                "being the same tensor. Register one tensor, and take the view of it in forward",
                code="OA302",
            )
        node.replace_all_uses_with(other)
        node.meta["val"] = torch.empty_like(value)  # unread, so it shares no memory
        merged = True
    return merged


def _is_same_view(left: torch.Tensor, right: torch.Tensor) -> bool:
    return (
        left.dtype == right.dtype
        and left.shape == right.shape
        and left.stride() == right.stride()
        and left.storage_offset() == right.storage_offset()
    )
