"""Records indices such as ``x[:, n - 1] = value`` and ``x[i, rows]`` whose integers are symbolic.

Torch turns such an integer into a number, or refuses it. It handles only ``x[:, i]`` without
tensors among the indices. An integer in a 0-d tensor, ``x[position] = value``, is refused too.
"""

from __future__ import annotations

from typing import Any

import torch

from onnx_aot.torch_compat import aten

__all__ = ["get_item", "is_mixed", "set_item"]

Tensor = torch.Tensor


def is_mixed(index: Any) -> bool:
    """True for indices with symbolic integers and tensors of integers."""
    if not isinstance(index, tuple) or not any(isinstance(i, torch.SymInt) for i in index):
        return False
    return all(map(_is_known, index)) and any(isinstance(i, Tensor) for i in index)


def get_item(self: Tensor, index: tuple[Any, ...]) -> Tensor:
    """Selects what the integers say, then what the tensors say."""
    view, tensors = _index(self, list(index))
    return aten.index.Tensor(view, tensors)  # type: ignore[no-any-return]


def set_item(self: Tensor, index: Any, value: Any) -> None:
    """Writes to what ``get_item`` gives."""
    items = list(map(_as_number, index if isinstance(index, tuple) else (index,)))
    is_symbolic = any(isinstance(item, torch.SymInt) for item in items)
    if not is_symbolic or not all(map(_is_known, items)):
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


def _as_number(item: Any) -> Any:
    """The integer in a 0-d tensor, which indexes as a Python integer does; others as they are."""
    is_number = isinstance(item, Tensor) and item.dim() == 0 and item.dtype in _SIGNED
    return item.item() if is_number else item


_SIGNED = (torch.int64, torch.int32, torch.int16, torch.int8)


def _is_known(item: Any) -> bool:
    if isinstance(item, Tensor):
        is_mask = item.dim() == 1 and item.dtype is torch.bool
        return is_mask or (item.dim() > 0 and item.dtype in (torch.int64, torch.int32))
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
        if isinstance(item, (int, torch.SymInt)):
            tensor = tensor.select(axis, item)
            continue
        if item is None:
            tensor = tensor.unsqueeze(axis)
        elif isinstance(item, Tensor):
            tensors[axis] = item
        elif item != slice(None):
            start, stop, step = map(_as_number, (item.start, item.stop, item.step))
            tensor = aten.slice(tensor, axis, start, stop, step or 1)
        axis += 1
    return tensor, [tensors.get(each) for each in range(max(tensors, default=-1) + 1)]
