"""Access to the registries of an ``nn.Module``, whose entries no public method replaces."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, MutableMapping
from typing import Any

import torch

from onnx_aot.torch_compat.places import Attribute

__all__ = ["REGISTRIES", "HookedForward", "has_hooks", "is_initialized", "registered_in"]

REGISTRIES = frozenset({"_parameters", "_buffers", "_modules"})
"""Attributes in which a module keeps its parameters, buffers and submodules."""


def registered_in(module: torch.nn.Module, kind: str) -> MutableMapping[str, Any]:
    """Returns a module's own ``"parameters"``, ``"buffers"`` or ``"modules"``, by name."""
    held: MutableMapping[str, Any] = vars(module)[f"_{kind}"]
    return held


def is_initialized(module: torch.nn.Module) -> bool:
    """False if the class of a module does not call ``super().__init__()``."""
    return hasattr(module, "_parameters")


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def has_hooks(module: torch.nn.Module) -> bool:
    """True if functions run before or after a module, one of its submodules, or all modules."""
    everywhere = vars(torch.nn.modules.module)
    if any(everywhere.get(f"_global{name}") for name in _HOOKS):
        return True
    return any(vars(part).get(name) for part in module.modules() for name in _HOOKS)


_RUN = ("_forward_pre_hooks", "_forward_hooks")
_WITH_KWARGS = tuple(f"{name}_with_kwargs" for name in _RUN)


@dataclasses.dataclass(frozen=True)
class HookedForward:
    """The ``forward`` of a module, and the hooks that run before and after it."""

    module: torch.nn.Module

    def has_hooks(self) -> bool:
        """True if there are hooks."""
        return any(vars(self.module).get(name) for name in _RUN)

    def own(self) -> Any:
        """The stored ``forward``, and the entries of the registries."""
        held = vars(self.module)
        forward = Attribute(self.module, "forward").own()
        return forward, {name: dict(held[name]) for name in (*_RUN, *_WITH_KWARGS) if name in held}

    def value(self) -> Callable[..., Any]:
        """A function that runs the hooks and ``forward``."""
        module, forward, (_, held) = self.module, self.module.forward, self.own()
        before, after = ([*held.get(name, {}).items()] for name in _RUN)
        takes_kwargs = [key for name in _WITH_KWARGS for key in held.get(name, {})]

        @functools.wraps(forward)
        def forward_with_hooks(*args: Any, **kwargs: Any) -> Any:
            for key, hook in before:
                if key in takes_kwargs:
                    changed = hook(module, args, kwargs)
                    args, kwargs = (args, kwargs) if changed is None else changed
                else:
                    changed = hook(module, args)
                    if changed is not None:
                        args = changed if isinstance(changed, tuple) else (changed,)
            result = forward(*args, **kwargs)
            for key, hook in after:
                given = (args, kwargs, result) if key in takes_kwargs else (args, result)
                changed = hook(module, *given)
                result = result if changed is None else changed
            return result

        return forward_with_hooks

    def put(self, value: Any) -> None:
        """Sets a ``forward`` that runs the hooks; takes what ``own`` returned to undo that."""
        forward, held = value if isinstance(value, tuple) else (value, {})
        for name in (*_RUN, *_WITH_KWARGS):
            registry = vars(self.module).get(name, {})
            registry.clear()
            registry.update(held.get(name, {}))
        Attribute(self.module, "forward").put(forward)
