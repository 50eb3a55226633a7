"""Records indices such as ``x[:, n - 1] = value`` and ``x[i, rows]`` whose integers are symbolic.

Torch turns such an integer into a number, or refuses it. It handles only ``x[:, i]`` without
tensors or lists among the indices. A tensor of one integer without axes, ``scores.argmax()``, is
such an integer, as in PyTorch.
"""

from __future__ import annotations

from typing import Any

import torch

from onnx_aot.torch_compat import aten, is_batched

__all__ = ["get_item", "is_mixed", "make_tensors", "set_item", "stack_numbers"]

Tensor = torch.Tensor


def make_tensors(index: Any, device: torch.device) -> Any:
    """Makes tensors of lists in an index that have symbolic integers, as in ``x[:, [0, n - 1]]``.

    Torch makes tensors of them too, which reads the integers as numbers. Masks of uint8 become
    those of bool.
    """
    if isinstance(index, tuple):
        return tuple(make_tensors(item, device) for item in index)
    if isinstance(index, Tensor) and index.dtype is torch.uint8:
        return index.bool()  # a mask; torch's shape functions refuse it
    if not isinstance(index, list) or not any(isinstance(item, torch.SymInt) for item in index):
        return index
    if not all(isinstance(item, (int, torch.SymInt)) for item in index):
        return index
    return stack_numbers(index, torch.int64, device)


def stack_numbers(numbers: list[Any], dtype: torch.dtype, device: torch.device) -> Tensor:
    """``[numbers]``, which stay symbolic; ``torch.tensor`` within torch's code reads them."""
    return torch.stack([torch.scalar_tensor(n, dtype=dtype, device=device) for n in numbers])


def is_mixed(index: Any) -> bool:
    """True for indices with symbolic integers and tensors of integers or masks."""
    if not isinstance(index, tuple) or not any(map(_is_symbolic, index)):
        return False
    return all(map(_is_known, index)) and any(map(_selects_several, index))


def get_item(self: Tensor, index: tuple[Any, ...]) -> Tensor:
    """Selects what the integers say, then what the tensors say."""
    view, tensors = _index(self, list(index))
    return aten.index.Tensor(view, tensors)  # type: ignore[no-any-return]


def set_item(self: Tensor, index: Any, value: Any) -> None:
    """Writes to what ``get_item`` gives."""
    items = list(index) if isinstance(index, tuple) else [index]
    if not any(map(_is_symbolic, items)) or not all(map(_is_known, items)):
        torch.Tensor.__setitem__(self, index, value)
        return
    view, tensors = _index(self, items)
    if tensors:
        torch.Tensor.__setitem__(view, _fill(tensors), value)
    elif isinstance(value, Tensor):
        while value.dim() > view.dim() and type(value.shape[0]) is int and value.shape[0] == 1:
            value = value.squeeze(0)
        view.copy_(value)
    else:
        view.fill_(value)


def _is_symbolic(item: Any) -> bool:
    return isinstance(item, torch.SymInt) or _is_number(item)


def _is_number(item: Any) -> bool:
    """True for a tensor of one integer without axes; one of bool or uint8 is a mask.

    A value of ``torch.vmap`` stands for many integers.
    """
    integers = (torch.int64, torch.int32, torch.int16, torch.int8)
    is_scalar = isinstance(item, Tensor) and item.dim() == 0 and item.dtype in integers
    return is_scalar and not is_batched(item)


def _read_number(item: Any) -> Any:
    return item.item() if _is_number(item) else item


def _selects_several(item: Any) -> bool:
    return isinstance(item, list) or (isinstance(item, Tensor) and item.dim() > 0)


def _is_known(item: Any) -> bool:
    if isinstance(item, Tensor):
        is_mask = item.dim() == 1 and item.dtype is torch.bool
        selects = item.dim() > 0 and item.dtype in (torch.int64, torch.int32)
        return is_mask or selects or _is_number(item)
    if isinstance(item, list):
        return bool(item) and all(type(i) is int for i in item)
    return item is None or item is Ellipsis or type(item) in (int, torch.SymInt, slice)


def _fill(tensors: list[Tensor | None]) -> tuple[Any, ...]:
    return tuple(slice(None) if tensor is None else tensor for tensor in tensors)


def _index(tensor: Tensor, items: list[Any]) -> tuple[Tensor, list[Tensor | None]]:
    """The view that the basic indices give, and the tensors that index its axes."""
    if any(item is Ellipsis for item in items):
        position = next(i for i, item in enumerate(items) if item is Ellipsis)
        used = sum(item is not None for item in items) - 1
        items[position : position + 1] = [slice(None)] * (tensor.dim() - used)
    tensors: dict[int, Tensor] = {}
    axis = 0
    for item in items:
        if isinstance(item, (int, torch.SymInt)) or _is_number(item):
            tensor = tensor.select(axis, _read_number(item))
            continue
        if item is None:
            tensor = tensor.unsqueeze(axis)
        elif isinstance(item, (Tensor, list)):
            tensors[axis] = torch.as_tensor(item, device=tensor.device)
        else:
            start, stop, step = map(_read_number, (item.start, item.stop, item.step))
            if (start, stop, step) != (None, None, None):
                tensor = aten.slice(tensor, axis, start, stop, step or 1)
        axis += 1
    return tensor, [tensors.get(each) for each in range(max(tensors, default=-1) + 1)]
