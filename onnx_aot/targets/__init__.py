"""Describes, as data, the kernels of runtimes, and adapts models to them."""

from __future__ import annotations

from onnx_aot.targets.legalize import Adaptation, Fit, legalize, unsupported_nodes
from onnx_aot.targets.loading import (
    Obstacles,
    check_ir_version,
    describe_nodes,
    find_obstacles,
)
from onnx_aot.targets.releases import (
    FAMILY,
    ON_CUDA,
    RUNTIME,
    find_kernels,
    find_release,
    has_kernel,
    is_target,
    order,
)

__all__ = [
    "FAMILY",
    "ON_CUDA",
    "RUNTIME",
    "Adaptation",
    "Fit",
    "Obstacles",
    "check_ir_version",
    "describe_nodes",
    "find_kernels",
    "find_obstacles",
    "find_release",
    "has_kernel",
    "is_target",
    "legalize",
    "order",
    "unsupported_nodes",
]
