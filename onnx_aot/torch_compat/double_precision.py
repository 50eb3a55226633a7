"""Runs PyTorch code in double precision, also where it asks for another type."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from onnx_aot.torch_compat.lookup import private, pytree

__all__ = ["in_double_precision", "to_double"]

_WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}


def to_double(tree: Any) -> Any:
    """Converts the floating point tensors in a container to float64, complex ones to complex128."""
    return pytree.tree_map(_widen, tree)


@contextlib.contextmanager
def in_double_precision() -> Iterator[None]:
    """Computes in float64 what operators take or create in a less precise type.

    Conversions such as ``x.float()`` and factories with ``dtype=torch.float32`` give float64 too.
    Tensors of a less precise type that exist before are converted where an operator reads them;
    one that writes to them is left as it is. Only this thread is affected.

    Raises:
        NotImplementedError: This release of torch has no dispatch modes.
    """
    base = private("torch.utils._python_dispatch:TorchDispatchMode")
    if base is None:
        raise NotImplementedError(f"torch {torch.__version__} has no dispatch modes")

    class InDouble(base):  # type: ignore[misc, valid-type]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if not _writes_narrow(func, args, kwargs):
                args, kwargs = pytree.tree_map(_widen, (tuple(args), dict(kwargs)))
            return func(*args, **kwargs)

    with InDouble():
        yield


def _widen(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.to(_WIDER[leaf.dtype]) if leaf.dtype in _WIDER else leaf
    return _WIDER.get(leaf, leaf) if isinstance(leaf, torch.dtype) else leaf


def _writes_narrow(func: Any, args: Any, kwargs: Any) -> bool:
    """True if an operator writes to a tensor of a less precise type."""
    declared = func._schema.arguments
    given = {argument.name: value for argument, value in zip(declared, args, strict=False)}
    given.update(kwargs)
    return any(
        isinstance(leaf, torch.Tensor) and leaf.dtype in _WIDER
        for argument in declared
        if argument.alias_info is not None and argument.alias_info.is_write
        for leaf in pytree.tree_leaves(given.get(argument.name))
    )
