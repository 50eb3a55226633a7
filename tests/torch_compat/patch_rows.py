"""Makes a row of the table of patches for a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnx_aot.torch_compat import Patch, Settings


def row(place: Any, make: Callable[..., Any], **options: Any) -> Patch:
    return Patch("a place", make, "Nothing.", places=lambda settings: [place], **options)


def plus_one(original: Callable[[int], int], settings: Settings) -> Callable[[int], int]:
    return lambda x: original(x) + 1
