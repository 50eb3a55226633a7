"""Resizes example tensors by repeating or leaving out elements along an axis."""

from __future__ import annotations

from typing import Any

import torch

from onnx_aot.torch_compat import FakeTensor

__all__ = ["resize_leaf"]

REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def resize_leaf(leaf: Any, shape: Any) -> Any:
    """Resizes a tensor to a shape, reusing its elements.

    Args:
        leaf: A leaf of the inputs.
        shape: Its new shape; the new value if it is a number; None if it stays.
    """
    if isinstance(shape, int):
        return shape
    if shape is None or tuple(leaf.shape) == shape:
        return leaf
    for axis, size in enumerate(shape):
        leaf = _resize_axis(leaf.detach(), axis, size)
    return leaf


def _resize_axis(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """Resizes one axis: takes elements in order, starting over if there are not enough.

    Repeated numbers become a little smaller each time: among equal ones it is undefined which one a
    sort or a maximum picks. Masks, indices and other whole numbers are repeated unchanged. Sorted
    vectors, such as boundaries, stay sorted.
    """
    before = tensor.shape[axis]
    if size == before:
        return tensor
    if before == 0:
        return tensor.new_zeros((*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]))
    positions = torch.arange(size, device=tensor.device)
    taken = tensor.index_select(axis, positions % before)
    if tensor.is_meta or isinstance(tensor, FakeTensor):
        return taken
    if size > before and tensor.dtype in REAL and bool((tensor != tensor.round()).any()):
        factors = 1 - (positions // before).clamp(max=32).to(tensor.dtype) / 64
        taken = taken * factors.reshape([-1 if i == axis else 1 for i in range(tensor.dim())])
    if tensor.dim() == 1 and _is_sorted(tensor):
        taken = taken.sort().values
    return taken


def _is_sorted(tensor: torch.Tensor) -> bool:
    if tensor.is_complex():
        return False
    return bool((tensor[1:] >= tensor[:-1]).all())
