"""The operator sets that the table emits."""

from __future__ import annotations

__all__ = ["MAX_OPSET", "MIN_OPSET"]

MIN_OPSET = 17
MAX_OPSET = 25
