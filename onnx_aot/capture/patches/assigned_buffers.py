"""Records ``self.buffer = value`` as a write to the buffer, at the end of ``forward``.

Torch does so for buffers of the model itself, not for those of its submodules, whose new values it
loses. It writes to the wrong buffer if one before it is None, and a returned tensor that was a
buffer before the assignment gets the new value too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, MutableMapping
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from onnx_aot import torch_compat
from onnx_aot.torch_compat import Hook, Patch, Place, Settings, pytree, registered_in

__all__ = ["ASSIGNED_BUFFERS", "AssignedBuffers", "write_at_end"]

Tensor = torch.Tensor


class AssignedBuffers:
    """Buffers that ``forward`` assigns to while it is traced.

    Attributes:
        made: Names of buffers that are None before the call, and have a value of its inputs after
            it.
    """

    def __init__(self) -> None:
        self.made: list[str] = []
        self._before: list[tuple[str, MutableMapping[str, Any], dict[str, Any]]] = []

    def on_entry(self, module: torch.nn.Module, _: Any, __: Any) -> None:
        """Remembers the buffers; a hook before ``forward``."""
        self.made.clear()  # draft export may have traced the model before, up to an error
        self._before.clear()
        for path, owner in module.named_modules():
            held = registered_in(owner, "buffers")
            self._before.append((f"{path}." if path else "", held, dict(held)))

    def on_return(self, _: torch.nn.Module, args: Any, kwargs: Any, returned: Any) -> Any:
        """Records the writes, and puts the buffers back; a hook after ``forward``."""
        writes: list[tuple[Tensor, Tensor]] = []
        inputs = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        for path, held, before in self._before:
            for name, value in held.items():
                own = before.get(name)
                if value is own or value is None:
                    continue
                if own is not None:
                    writes.append((own, value))
                elif torch_compat.is_computed_from(value, inputs):
                    self.made.append(path + name)
            held.clear()
            held.update(before)
        self._before.clear()
        return write_at_end(writes, returned)


def write_at_end(writes: list[tuple[Tensor, Tensor]], returned: Any) -> Any:
    """Records writes of values to tensors, and returns what the model returns.

    Args:
        writes: Traced tensors with their new values.
        returned: Results of the model. Those that share memory with one of the tensors keep the
            value that they have before the writes.
    """
    own_memory = {torch_compat.storage_key(own) for own, _ in writes}

    def keep_value(leaf: Any) -> Any:
        aliased = isinstance(leaf, Tensor) and torch_compat.storage_key(leaf) in own_memory
        return leaf.clone() if aliased else leaf

    if not writes:
        return returned
    returned = pytree.tree_map(keep_value, returned)
    values = [value.clone() for _, value in writes]  # before any write: they may be swapped
    for (own, _), value in zip(writes, values, strict=True):
        torch_compat.record_copy(own, value)
    return returned


def _entry_hook(settings: Settings) -> Iterator[Place]:
    register = settings.module.register_forward_pre_hook
    yield Hook(lambda hook: register(hook, with_kwargs=True))


def _return_hook(settings: Settings) -> Iterator[Place]:
    register = settings.module.register_forward_hook
    yield Hook(lambda hook: register(hook, with_kwargs=True))


def _is_traced_in_python(settings: Settings) -> bool:
    return settings.model_rows is not None and not settings.strict


ASSIGNED_BUFFERS: tuple[Patch, ...] = (
    Patch(
        "torch.export._trace:register_buffer_assignment_hook",
        lambda original, settings: lambda mod, assigned_buffers: RemovableHandle(OrderedDict()),
        "A buffer that forward assigns is written to another one if a buffer of the model is None.",
        when=_is_traced_in_python,
        parameters="mod, assigned_buffers",
        optional=False,
    ),
    Patch(
        "buffers before the model is called",
        lambda original, settings: settings.model_rows.assigned.on_entry,
        "New values of buffers that forward assigns are lost.",
        when=_is_traced_in_python,
        places=_entry_hook,
        optional=False,
    ),
    Patch(
        "buffers that the model assigns",
        lambda original, settings: settings.model_rows.assigned.on_return,
        "New values of buffers that forward assigns are lost.",
        when=_is_traced_in_python,
        places=_return_hook,
        optional=False,
    ),
)
"""Come after the hook that registers the classes of results: they look for tensors in them."""
