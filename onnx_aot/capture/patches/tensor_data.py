"""Captures ``tensor.data``, an alias of a tensor without gradients, as ``detach()``.

Torch gives the alias without a node of the graph, so that a capture loses the value. Assigning
``tensor.data = value`` makes the tensor share the memory of the value: later uses of the tensor are
recorded as uses of the value. An input, parameter or buffer gets the value at the end of
``forward``, by a write to its own memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from onnx_aot import torch_compat
from onnx_aot.capture.error_hints import RefusedError
from onnx_aot.capture.patches.assigned_buffers import write_at_end
from onnx_aot.torch_compat import Hook, Patch, Place, Settings

__all__ = ["STATE_DATA", "TENSOR_DATA", "StateData"]

Tensor = torch.Tensor


class StateData:
    """Inputs, parameters and buffers whose ``.data`` was replaced while ``forward`` was traced."""

    def __init__(self) -> None:
        self._before: list[tuple[Tensor, Tensor]] = []

    def add(self, tensor: Tensor) -> None:
        """Keeps an alias of the tensor's own memory, when its data is replaced the first time."""
        if not any(tensor is known for known, _ in self._before):
            self._before.append((tensor, tensor.detach()))

    def on_return(self, _: Any, __: Any, returned: Any) -> Any:
        """Writes the values into the tensors' own memory; a hook after ``forward``."""
        changed = [(t, own) for t, own in self._before if not _is_same_view(t, own)]
        self._before.clear()
        if not changed:
            return returned
        returned = write_at_end([(own, tensor) for tensor, own in changed], returned)
        for tensor, own in changed:
            torch_compat.rebind_traced(tensor, own)
        return returned


def _is_same_view(one: Tensor, other: Tensor) -> bool:
    """True if two tensors are the same elements of the same memory, in the same order."""
    if torch_compat.storage_key(one) != torch_compat.storage_key(other):
        return False
    return _layout(one) == _layout(other)


def _layout(tensor: Tensor) -> list[Any]:
    sizes = [*tensor.shape, *tensor.stride(), tensor.storage_offset()]
    return [tensor.dtype, *map(_size_key, sizes)]


def _size_key(size: Any) -> Any:
    """The expression of a size, to compare sizes without a guard."""
    return torch_compat.expression_key(size) if isinstance(size, torch.SymInt) else size


def _record_data(original: Any, settings: Settings) -> property:
    def get(self: Tensor) -> Tensor:
        if torch_compat.in_capturing_thread() and torch_compat.is_recording():
            return self.detach()
        data: Tensor = original.__get__(self)
        return data

    def assign(self: Tensor, value: Tensor) -> None:
        if torch_compat.in_capturing_thread() and torch_compat.is_traced(self):
            _assign_traced(self, value, settings)
        elif torch_compat.in_capturing_thread() and torch_compat.is_traced(value):
            raise _unregistered("assigns a computed value to the .data of")
        else:
            original.__set__(self, value)

    return property(get, assign)


def _assign_traced(tensor: Tensor, value: Tensor, settings: Settings) -> None:
    """Records ``tensor.data = value``.

    Raises:
        RefusedError: The graph cannot hold the assignment.
    """
    if not torch_compat.is_traced(value):
        raise _unregistered("assigns to .data")
    alias = value.detach()
    if _is_same_view(tensor, alias):  # x.data *= 2 assigns what it has written
        return
    rows = settings.model_rows
    state = [*settings.module.parameters(), *settings.module.buffers(), *rows.boundary.inputs]
    if any(tensor is known for known in state):
        shapes = [[each.dtype, *map(_size_key, each.shape)] for each in (tensor, alias)]
        if shapes[0] != shapes[1]:
            raise RefusedError(
                "it assigns a tensor of another shape or dtype to the .data of an input, parameter "
                "or buffer, whose shape and dtype an ONNX model cannot change",
                "use a variable of forward instead of the attribute",
                "OA115",
            )
        rows.replaced.add(tensor)
    elif torch_compat.is_input_of_trace(tensor):
        raise RefusedError(
            "a function given to torch.cond, scan or another operator with functions assigns to "
            "the .data of its argument",
            "return the value instead",
            "OA115",
        )
    try:
        torch_compat.rebind_traced(tensor, alias)
    except NotImplementedError as error:
        raise RefusedError(
            f"it assigns to .data; {error}", "use a variable of forward instead", "OA115"
        ) from error


def _unregistered(what: str) -> RefusedError:
    return RefusedError(
        f"it {what} a tensor that is not a parameter, buffer or input of the model and that "
        "forward did not compute",
        "register the tensor as a buffer: self.register_buffer(name, tensor)",
        "OA115",
    )


def _return_hook(settings: Settings) -> Iterator[Place]:
    register = settings.module.register_forward_hook
    yield Hook(register)


def _is_traced_in_python(settings: Settings) -> bool:
    return settings.model_rows is not None and not settings.strict


TENSOR_DATA: tuple[Patch, ...] = (
    Patch(
        "torch:Tensor.data",
        _record_data,
        "Models that use x.data are refused.",
        when=_is_traced_in_python,
        optional=False,
    ),
    Patch(  # Dynamo's name for the same
        "torch._C._autograd:_get_data_attr",
        lambda original, settings: torch.detach,
        "x.data is refused or wrong in strict captures and in functions given to torch.cond.",
        optional=False,
    ),
)

STATE_DATA = Patch(
    "values assigned to .data of the model's state",
    lambda original, settings: settings.model_rows.replaced.on_return,
    "Parameters and buffers whose .data forward replaces keep their value.",
    when=_is_traced_in_python,
    places=_return_hook,
    optional=False,
)
"""Comes after the hook that registers the classes of results: it looks for tensors in them."""
