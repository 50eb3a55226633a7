"""Converts the values that pass in and out of ``forward`` while it is traced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from onnx_aot.errors import warn
from onnx_aot.pytrees.containers import register_containers, unwrap_constants, wrap_constants
from onnx_aot.torch_compat import pytree

__all__ = ["Boundary"]

Number = bool | int | float


class Boundary:
    """Hooks of a module that is traced.

    Constants in the inputs are unwrapped before ``forward``. The classes of the returned values are
    registered afterwards, since they become known only while the model runs. Strict capture does
    not allow such side effects; it runs after the non-strict one, which has registered the classes
    if it got that far.

    Attributes:
        inputs: Tensors among the inputs of the traced call; empty in strict captures.
        changed: Python numbers of the module that ``forward`` changed, with both values; empty in
            strict captures.
    """

    def __init__(self, strict: bool = False) -> None:
        self._strict = strict
        self.inputs: list[torch.Tensor] = []
        self.changed: list[str] = []
        self._numbers: dict[str, Number] = {}
        self._given: tuple[Any, Any] = ((), {})

    def on_entry(self, module: torch.nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Unwraps constants; a hook before ``forward``."""
        args, kwargs = unwrap_constants((args, kwargs))
        if not self._strict:
            self._given = (args, kwargs)
            self.inputs = _tensors(self._given)
            self._numbers = dict(_find_numbers(module))
        return args, kwargs

    def on_return(self, module: torch.nn.Module, _: Any, __: Any, returned: Any) -> Any:
        """Registers returned classes and wraps constants; a hook after ``forward``.

        Raises:
            InvalidOptionError: The module returns an object of an unsupported class.
        """
        register_containers(returned, "the result", "outputs")
        if not self._strict:
            now = dict(_find_numbers(module))
            values = {
                name: (repr(one), repr(now.get(name, one))) for name, one in self._numbers.items()
            }
            self.changed = [
                f"{n} ({old}, then {new})" for n, (old, new) in values.items() if old != new
            ]
        # Hooks of the user may have replaced the arguments, which concerns no caller.
        _warn_about_replaced(self.inputs, self._given, returned)
        return wrap_constants(returned)


def _find_numbers(module: torch.nn.Module) -> Iterator[tuple[str, Number]]:
    """Yields the Python numbers among the attributes of a module and its submodules."""
    for path, owner in module.named_modules():
        if not isinstance(owner, torch.jit.ScriptModule):
            for name, value in vars(owner).items():
                if type(value) in (bool, int, float):
                    yield ".".join(filter(None, ("self", path, name))), value


def _warn_about_replaced(before: list[torch.Tensor], inputs: Any, returned: Any) -> None:
    """Warns about a rebound entry of an input container: the graph cannot represent that."""
    kept = {id(tensor) for tensor in (*before, *_tensors(returned))}
    path = next((path for path, leaf in _named_tensors(inputs) if id(leaf) not in kept), None)
    if path is not None:
        warn(
            f"the model puts a new tensor into its argument, at {path}, and does not return it; "
            "the ONNX model has no output for it. Return the argument too",
            "OA125",
        )


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _named_tensors(inputs: tuple[Any, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    args, kwargs = inputs
    for given in (args, kwargs):
        for path, leaf in pytree.tree_flatten_with_path(given)[0]:
            if isinstance(leaf, torch.Tensor):
                yield ("args" if given is args else "kwargs") + pytree.keystr(path), leaf
