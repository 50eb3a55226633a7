"""Restores tensors that PyTorch code writes to, and copies only these."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from onnx_aot.torch_compat.lookup import private, pytree

__all__ = ["writes_undone"]


@contextlib.contextmanager
def writes_undone(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Gives tensors their elements back at the end.

    A tensor is copied before an operator whose schema says so writes to its memory. Every tensor is
    copied before a higher-order operator, whose functions are not watched, and without dispatch
    modes. Only writes of this thread are noticed.
    """
    held = list(tensors)
    base = private("torch.utils._python_dispatch:TorchDispatchMode")
    saved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    mode: Any = contextlib.nullcontext()
    if base is None:
        _save(held, saved)
    else:
        mode = _watching(base, held, saved)
    try:
        with mode:
            yield
    finally:
        with torch.no_grad():
            for tensor, before in saved.values():
                tensor.copy_(before)


def _watching(base: Any, held: list[torch.Tensor], saved: dict[int, Any]) -> Any:
    by_memory: dict[int, list[torch.Tensor]] = {}
    for tensor in held:
        by_memory.setdefault(_memory_of(tensor), []).append(tensor)

    class Watching(base):  # type: ignore[misc]
        supports_higher_order_operators = True

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if not hasattr(func, "_schema"):
                _save(held, saved)
            else:
                for written in _list_written(func, args, kwargs):
                    _save(by_memory.get(_memory_of(written), ()), saved)
            return func(*args, **kwargs)

    return Watching()


def _save(tensors: Iterable[torch.Tensor], saved: dict[int, Any]) -> None:
    for tensor in tensors:
        if id(tensor) not in saved:
            saved[id(tensor)] = (tensor, tensor.detach().clone())


def _memory_of(tensor: torch.Tensor) -> int:
    """Address of the storage object, which views share; of the tensor if it has none."""
    if tensor.layout != torch.strided:
        return id(tensor)
    return int(tensor.untyped_storage()._cdata)


def _list_written(func: Any, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors that an operator writes to, as its schema says."""
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[position] if position < len(args) else kwargs.get(argument.name)
            for leaf in pytree.tree_leaves(given):
                if isinstance(leaf, torch.Tensor):
                    yield leaf
