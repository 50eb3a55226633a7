"""Describes what operators return for fake tensors of known sizes, and makes such tensors."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch
import torch.fx

from onnx_aot.torch_compat.lookup import FakeTensor, OpOverload
from onnx_aot.torch_compat.overloads import schema_of

__all__ = [
    "Fakes",
    "Operator",
    "Result",
    "describe",
    "describe_result",
    "find_operator",
    "is_plain",
]

# --- operators -----------------------------------------------------------------------------------

_DATA_TAGS = ("data_dependent_output", "dynamic_output_shape")
_LEFT_OUT = frozenset(
    ("detach", "detach_", "is_nonzero", "lift", "lift_fresh", "resize_", "resize_as_", "set_")
)


@dataclasses.dataclass(frozen=True)
class Operator:
    """An operator that returns one tensor.

    Attributes:
        name: The beginning of its nodes' names.
        writes: Whether it writes to its first argument.
    """

    name: str
    writes: bool


def find_operator(func: Any) -> Operator | None:
    """Returns the operator, or None if torch has to record it."""
    if not isinstance(func, OpOverload) or func.namespace != "aten":
        return None
    return _describe_operator(func)


@functools.cache
def _describe_operator(func: Any) -> Operator | None:
    schema = schema_of(func)
    name = func.overloadpacket.__name__
    if name in _LEFT_OUT or any(getattr(tag, "name", "") in _DATA_TAGS for tag in func.tags):
        return None
    if len(schema.returns) != 1 or str(schema.returns[0].type) != "Tensor":
        return None
    given = schema.arguments
    written = [i for i, a in enumerate(given) if a.alias_info and a.alias_info.is_write]
    if schema.is_mutable and (written != [0] or given[0].kwarg_only):
        return None
    return Operator(torch.fx.Graph()._target_to_str(name), schema.is_mutable)


# --- results -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Result:
    """Describes the result of a call.

    Attributes:
        argument: The number of the tensor among the arguments that it is; None for a new tensor.
        description: What a new tensor is like, see ``describe``.
    """

    argument: int | None
    description: tuple[Any, ...] = ()


def describe(tensor: Any) -> tuple[Any, ...]:
    """Returns what the results of operators depend on, except for elements and dispatch keys."""
    return (
        tensor.dtype,
        tensor.size(),
        tensor.stride(),
        tensor.storage_offset(),
        tensor._fake_device,
        tensor.requires_grad,
    )


def describe_result(
    operator: Operator, made: Any, tensors: list[Any], before: list[Any]
) -> Result | None:
    """Returns what a result is, given the arguments and what they were like before the call."""
    place = next((i for i, tensor in enumerate(tensors) if tensor is made), None)
    if place is not None:
        return Result(place) if describe(made) == before[place] else None
    if any(t.layout != torch.strided for t in (made, *tensors)):  # they have no storage
        return None
    storage = made.untyped_storage()
    if operator.writes or any(t.untyped_storage()._cdata == storage._cdata for t in tensors):
        return None
    if made.is_quantized or made.is_conj() or made.is_neg():
        return None
    if made.storage_offset() != 0 or made.constant is not None or made.real_tensor is not None:
        return None
    plain = torch.empty_strided(made.size(), made.stride(), dtype=made.dtype, device="meta")
    if plain.untyped_storage().nbytes() != storage.nbytes():
        return None
    return Result(None, describe(made))


class Fakes:
    """Makes fake tensors in a quarter of the time that their class takes.

    It is used while torch dispatches to no Python code.
    """

    def __init__(self) -> None:
        self._attributes: dict[Any, dict[str, Any]] = {}

    def make(self, mode: Any, elements: Any, device: Any) -> Any:
        """A fake tensor with the memory of ``elements``, which may be a fake tensor."""
        key = id(mode), device  # the attributes keep the mode
        if key not in self._attributes:
            plain = FakeTensor(mode, torch.empty(0, device="meta"), device)
            self._attributes[key] = dict(vars(plain))
        made = torch.Tensor._make_subclass(
            FakeTensor, elements, False, dispatch_device=True, device_for_backend_keys=device
        )
        torch._C._set_throw_on_mutable_data_ptr(made)
        vars(made).update(self._attributes[key])
        return made


def is_plain(tensor: Any) -> bool:
    """True for a fake tensor of sizes that are numbers, without elements."""
    return not (
        tensor._has_symbolic_sizes_strides
        or tensor.constant is not None
        or tensor.real_tensor is not None
    )
