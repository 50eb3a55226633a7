"""What a runtime can run, as data, and the pass that makes a model fit it."""

from __future__ import annotations

from onnx_aot.targets.legalize import TARGETS, Adaptation, legalize, unsupported_nodes

__all__ = ["TARGETS", "Adaptation", "legalize", "unsupported_nodes"]
