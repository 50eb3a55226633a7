"""Resizes example tensors by repeating or leaving out elements along an axis."""

from __future__ import annotations

from typing import Any

import torch

from onnx_aot.torch_compat import FakeTensor

__all__ = ["resize_leaf"]

REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def resize_leaf(leaf: Any, shape: Any) -> Any:
    """Resizes a tensor to a shape, reusing its elements, and laid out in memory as it is.

    Args:
        leaf: A leaf of the inputs.
        shape: Its new shape; the new value if it is a number; None if it stays.
    """
    if isinstance(shape, int):
        return shape
    if shape is None or tuple(leaf.shape) == shape:
        return leaf
    made = leaf
    for axis, size in enumerate(shape):
        made = _resize_axis(made.detach(), axis, size)
    return _lay_out(made, leaf)


def _lay_out(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Gives a tensor the order of axes in memory, and the gaps, that another has.

    They decide whether ``flatten`` and ``reshape`` copy, and so what a write to the result changes.
    Tensors whose elements overlap, other than by ``expand``, stay contiguous.
    """
    is_plain = type(tensor) is torch.Tensor and like.layout == torch.strided
    is_plain = is_plain and not tensor.is_meta and not tensor.is_quantized
    if not is_plain or not like.numel() or like.is_contiguous():
        return tensor
    strides = [0] * like.dim()
    reached, reached_before = 1, 1  # elements up to the next axis, here and there
    for axis in sorted(range(like.dim()), key=lambda axis: (like.stride(axis), like.shape[axis])):
        step = like.stride(axis)
        if step == 0 or like.shape[axis] == 1:
            continue
        if step < reached_before:
            return tensor
        strides[axis] = reached * -(-step // reached_before)
        reached = strides[axis] * max(tensor.shape[axis], 1)
        reached_before = step * like.shape[axis]
    expanded = [a for a in range(like.dim()) if like.stride(a) == 0 and like.shape[a] > 1]
    for axis in range(like.dim()):  # nothing is known of an axis that had one element
        if strides[axis] == 0 and axis not in expanded:
            strides[axis], reached = reached, reached * max(tensor.shape[axis], 1)
    source = tensor
    for axis in expanded:
        source = source.narrow(axis, 0, min(1, tensor.shape[axis]))
    made = torch.empty_strided(source.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return made.copy_(source).expand(tensor.shape)


def _resize_axis(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """Resizes one axis: takes elements in order, starting over if there are not enough.

    Repeated numbers become a little smaller each time: among equal ones it is undefined which one a
    sort or a maximum picks. Masks, indices and other whole numbers are repeated unchanged. Sorted
    vectors, such as boundaries, stay sorted.
    """
    before = tensor.shape[axis]
    if size == before:
        return tensor
    if before == 0 or tensor.is_meta or isinstance(tensor, FakeTensor):
        return tensor.new_zeros((*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]))
    positions = torch.arange(size, device=tensor.device)
    taken = tensor.index_select(axis, positions % before)
    if size > before and tensor.dtype in REAL and bool((tensor != tensor.round()).any()):
        factors = 1 - (positions // before).clamp(max=32).to(tensor.dtype) / 64
        taken = taken * factors.reshape([-1 if i == axis else 1 for i in range(tensor.dim())])
    if tensor.dim() == 1 and _is_sorted(tensor):
        taken = taken.sort().values
    return taken


def _is_sorted(tensor: torch.Tensor) -> bool:
    if tensor.is_complex() or (tensor.is_floating_point() and tensor.itemsize == 1):
        return False  # torch has no order of these
    return bool((tensor[1:] >= tensor[:-1]).all())
