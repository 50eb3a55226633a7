"""Removes the pytree registrations of transformers' exporter after a test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from onnx_aot.pytrees import containers
from onnx_aot.torch_compat import deregister_pytree_node, pytree

__all__ = ["registrations_taken_back"]


@contextlib.contextmanager
def registrations_taken_back() -> Iterator[None]:
    """Restores the registrations, because other tests flatten caches in this package's way."""
    from transformers import Cache

    try:
        yield
    finally:
        classes = [cls for cls in pytree.SUPPORTED_NODES if isinstance(cls, type)]
        for cls in classes:
            if issubclass(cls, Cache) and not containers._caches.get(cls):
                deregister_pytree_node(cls)
        containers.recall_caches()
