"""Finds the tensors of a model whose values are known before a capture."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from onnx_aot.torch_compat import REGISTRIES, FakeTensor, with_real_tensors

__all__ = ["LIMIT", "Source", "copy_elements", "find_sources", "has_elements", "has_memory"]

LIMIT = 4096
"""Tensors with more elements are not known."""


@dataclasses.dataclass(frozen=True)
class Source:
    """A buffer or attribute of the model whose value is known before the capture.

    Attributes:
        value: A copy of the tensor, made before the capture.
        held: Returns what the model holds in its place now.
    """

    value: torch.Tensor
    held: Callable[[], Any]


def find_sources(
    module: torch.nn.Module, replaceable: Callable[[str], bool] = lambda name: False
) -> dict[str, Source]:
    """Finds the small buffers and tensor attributes of a model, by qualified name.

    Args:
        module: The model.
        replaceable: True for the names of buffers that are inputs of the exported model.
    """
    found: dict[str, Source] = {}
    for path, owner in module.named_modules():
        if isinstance(owner, torch.jit.ScriptModule):
            continue
        prefix = f"{path}." if path else ""
        for name, buffer in owner.named_buffers(recurse=False):
            if has_elements(buffer) and not replaceable(prefix + name):
                value = copy_elements(buffer)
                found[prefix + name] = Source(value, functools.partial(getattr, owner, name, None))
        for name, value in vars(owner).items():
            if name not in REGISTRIES:
                found.update(_find_attributes(prefix + name, value, owner, name))
    return found


def _find_attributes(
    name: str, value: Any, owner: torch.nn.Module, attribute: str
) -> Iterator[tuple[str, Source]]:
    if isinstance(value, (list, tuple, dict)):
        held = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in list(held):
            if has_elements(part):
                yield (
                    f"{name}[{key!r}]",
                    Source(copy_elements(part), functools.partial(_get_item, value, key)),
                )
    elif has_elements(value):
        yield (
            name,
            Source(copy_elements(value), functools.partial(getattr, owner, attribute, None)),
        )


def _get_item(container: Any, key: Any) -> Any:
    with contextlib.suppress(LookupError):
        return container[key]
    return None


def has_elements(value: Any) -> bool:
    """True for a small tensor with elements that is no parameter."""
    return (
        isinstance(value, torch.Tensor)
        and not isinstance(value, (FakeTensor, torch.nn.Parameter))
        and type(value) in _PLAIN
        and value.layout is torch.strided
        and not (value.is_meta or value.requires_grad or value.is_quantized)
        and has_memory(value)
        and math.prod(value.shape) <= LIMIT
    )


_PLAIN = (torch.Tensor, torch.nn.Buffer)


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
