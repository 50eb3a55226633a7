"""Describes, as data, the kernels of a runtime, and adapts models to them."""

from __future__ import annotations

from onnx_aot.targets.legalize import TARGETS, Adaptation, legalize, unsupported_nodes

__all__ = ["TARGETS", "Adaptation", "legalize", "unsupported_nodes"]
