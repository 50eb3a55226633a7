"""What passes in and out of ``forward`` while it is traced."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from onnx_aot.containers import constants_held, registered, unwrapped
from onnx_aot.errors import warn
from onnx_aot.torch_compat import pytree

__all__ = ["observed"]


@contextlib.contextmanager
def observed(module: torch.nn.Module, strict: bool) -> Iterator[None]:
    """Lets a module take and return what ``torch.export`` takes no note of.

    Constants in the inputs are unwrapped before ``forward``. The classes of what it returns are
    registered, which nobody could do before: they are met only while the model runs. Strict capture
    cannot do that; it follows the non-strict one, which has met them where it came that far.

    Args:
        module: What is traced; it gets hooks for the duration.
        strict: Whether the hooks are read by Dynamo too, which takes no side effects.

    Raises:
        InvalidOptionError: From the call of the module: it returns an object of a class that is
            not understood.
    """
    before: list[torch.Tensor] = []

    def on_entry(_: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        args, kwargs = unwrapped((args, kwargs))
        if not strict:
            before[:] = _tensors((args, kwargs))
        return args, kwargs

    def on_return(_: Any, args: Any, kwargs: Any, returned: Any) -> Any:
        registered(returned, "the result", "outputs")
        _warn_about_replaced(before, (args, kwargs), returned)
        return constants_held(returned)

    handles = [module.register_forward_pre_hook(on_entry, with_kwargs=True, prepend=True)]
    if not strict:
        handles.append(module.register_forward_hook(on_return, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _warn_about_replaced(before: list[torch.Tensor], inputs: Any, returned: Any) -> None:
    """An entry of an argument that gets another tensor is no write that a graph could hold."""
    kept = {id(tensor) for tensor in (*before, *_tensors(returned))}
    path = next((path for path, leaf in _named_tensors(inputs) if id(leaf) not in kept), None)
    if path is not None:
        warn(
            f"the model puts a new tensor into its argument, at {path}, and does not return it; "
            "the ONNX model has no output for it. Return the argument too"
        )


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _named_tensors(inputs: tuple[Any, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    args, kwargs = inputs
    for given in (args, kwargs):
        for path, leaf in pytree.tree_flatten_with_path(given)[0]:
            if isinstance(leaf, torch.Tensor):
                yield ("args" if given is args else "kwargs") + pytree.keystr(path), leaf
