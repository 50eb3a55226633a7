"""Keeps the user's module as it was, also when a capture fails half way."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["preserved_state"]


@contextlib.contextmanager
def preserved_state(module: torch.nn.Module) -> Iterator[None]:
    """Restores every attribute of every submodule afterwards.

    Tracing runs ``forward``, which may count calls, fill caches or replace attributes, and leaves
    fake tensors in them. Parameters and buffers themselves are never written during a capture.
    Attributes that are lists, dicts or sets get their contents back, one level deep.
    """
    saved = [(owner, _snapshot(owner)) for owner in module.modules()]
    try:
        yield
    finally:
        for owner, (attributes, contents) in saved:
            _restore(owner, attributes, contents)


Snapshot = tuple[dict[str, Any], dict[str, Any]]


def _snapshot(owner: torch.nn.Module) -> Snapshot:
    attributes = dict(owner.__dict__)
    contents = {
        name: value.copy()
        for name, value in attributes.items()
        if isinstance(value, (list, dict, set)) and value
    }
    return attributes, contents


def _restore(owner: torch.nn.Module, attributes: dict[str, Any], contents: dict[str, Any]) -> None:
    present = owner.__dict__
    for name in [name for name in present if name not in attributes]:
        del present[name]
    for name, value in attributes.items():
        if present.get(name) is not value or name not in present:
            present[name] = value
        if not isinstance(value, (list, dict, set)):
            continue
        before = contents.get(name)
        if before is None:
            value.clear()
        elif isinstance(value, list):
            if len(value) != len(before) or any(
                a is not b for a, b in zip(value, before, strict=True)
            ):
                value[:] = before
        elif isinstance(value, dict):
            if not _same_items(value, before):
                value.clear()
                value.update(before)
        elif value != before:
            value.clear()
            value.update(before)


def _same_items(left: dict[Any, Any], right: dict[Any, Any]) -> bool:
    return len(left) == len(right) and all(
        a is b and left[a] is right[b] for a, b in zip(left, right, strict=True)
    )
