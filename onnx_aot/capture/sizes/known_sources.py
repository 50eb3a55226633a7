"""Finds the tensors of a model whose values are known before a capture."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from onnx_aot.torch_compat import REGISTRIES, FakeTensor, storage_key, with_real_tensors

__all__ = ["LIMIT", "Source", "copy_elements", "find_sources", "has_elements", "has_memory"]

LIMIT = 4096
"""Tensors with more elements are not known."""


@dataclasses.dataclass(frozen=True)
class Source:
    """A parameter, buffer or attribute of the model whose value is known before the capture.

    Attributes:
        value: A copy of the tensor, made before the capture.
        memory: Key of the tensor's memory. Torch puts other tensors in the model while it traces,
            and code that holds the tensor elsewhere, such as a hook, uses the tensor itself.
        held: Returns what the model holds in its place now.
    """

    value: torch.Tensor
    memory: int
    held: Callable[[], Any]


def find_sources(
    module: torch.nn.Module, replaceable: Callable[[str], bool] = lambda name: False
) -> dict[str, Source]:
    """Finds the small parameters, buffers and tensor attributes of a model, by qualified name.

    Args:
        module: The model.
        replaceable: True for the names of parameters and buffers that are inputs of the exported
            model.
    """
    found: dict[str, Source] = {}
    replaced: set[int] = set()
    for path, owner in module.named_modules():
        if isinstance(owner, torch.jit.ScriptModule):
            continue
        prefix = f"{path}." if path else ""
        registered = (
            *owner.named_parameters(recurse=False),
            *owner.named_buffers(recurse=False),
        )
        for name, tensor in registered:
            if has_elements(tensor):
                held = functools.partial(getattr, owner, name, None)
                found[prefix + name] = _make_source(tensor, held)
                if replaceable(prefix + name):
                    replaced.add(storage_key(tensor))
        for name, value in vars(owner).items():
            if isinstance(value, _MAY_HOLD) and name not in REGISTRIES:
                found.update(_find_attributes(prefix + name, value, owner, name))
    return {name: source for name, source in found.items() if source.memory not in replaced}


_MAY_HOLD = (torch.Tensor, list, tuple, dict)


def _make_source(tensor: torch.Tensor, held: Callable[[], Any]) -> Source:
    return Source(copy_elements(tensor), storage_key(tensor), held)


def _find_attributes(
    name: str, value: Any, owner: torch.nn.Module, attribute: str
) -> Iterator[tuple[str, Source]]:
    if isinstance(value, (list, tuple, dict)):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in list(parts):
            if has_elements(part):
                held = functools.partial(_get_item, value, key)
                yield f"{name}[{key!r}]", _make_source(part, held)
    elif has_elements(value):
        yield name, _make_source(value, functools.partial(getattr, owner, attribute, None))


def _get_item(container: Any, key: Any) -> Any:
    with contextlib.suppress(LookupError):
        return container[key]
    return None


def has_elements(value: Any) -> bool:
    """True for a small tensor with elements."""
    return (
        isinstance(value, torch.Tensor)
        and not isinstance(value, FakeTensor)
        and type(value) in _PLAIN
        and value.layout is torch.strided
        and not (value.is_meta or value.is_quantized)
        and has_memory(value)
        and math.prod(value.shape) <= LIMIT
    )


_PLAIN = (torch.Tensor, torch.nn.Buffer, torch.nn.Parameter)


def has_memory(tensor: torch.Tensor) -> bool:
    """False for tensors without memory of their own: values of ``torch.vmap`` and sparse ones."""
    try:
        tensor.untyped_storage()
    except NotImplementedError:
        return False
    return True


def copy_elements(tensor: torch.Tensor) -> torch.Tensor:
    """Copies a real tensor, also while torch traces with fake ones."""
    with with_real_tensors():
        return tensor.detach().clone()
