"""Shapes that a model declares for its inputs."""

from __future__ import annotations

from typing import Any

import onnx_aot

__all__ = ["shapes"]


def shapes(program: onnx_aot.ONNXProgram) -> list[list[Any]]:
    return [
        [d if isinstance(d, int) else d.value for d in value.shape]
        for value in program.model.graph.inputs
    ]
