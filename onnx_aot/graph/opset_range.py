"""Range of opsets that the operator table can emit."""

from __future__ import annotations

__all__ = ["MAX_OPSET", "MIN_OPSET"]

MIN_OPSET = 17
MAX_OPSET = 25
