"""Provides the measured exporters behind one interface."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import onnxruntime
import torch

import onnx_aot
from conformance.other_releases import OtherSession, Release
from onnx_aot.errors import UnsupportedOperatorError

__all__ = ["EXPORTERS", "as_complex", "export", "is_unsupported", "load", "run"]

EXPORTERS = ("onnx_aot", "torch")


def export(
    exporter: str,
    captured: torch.export.ExportedProgram,
    opset: int | None = None,
    release: Release | None = None,
) -> Any:
    """Returns the exporter's own ``ONNXProgram``, at its default opset unless one is given.

    ``release``: that of ONNX Runtime which onnx_aot's file is for, if not the installed one.
    """
    if exporter == "onnx_aot":
        target = "onnxruntime" if release is None else release.target
        return onnx_aot.export(captured, opset_version=opset, target=target)
    return torch.onnx.export(
        captured, opset_version=opset, dynamo=True, optimize=True, verbose=False
    )


def is_unsupported(error: BaseException) -> bool:
    """True if the export failed because an operator has no translation."""
    if isinstance(error, UnsupportedOperatorError):
        return True
    cause: BaseException | None = error
    while cause is not None:
        if type(cause).__name__ == "DispatchError":  # an error of torch.onnx
            return True
        cause = cause.__cause__
    return False


def load(program: Any, release: Release | None = None) -> None:
    """Creates the program's session, with one thread.

    Raises:
        Exception: Whatever ONNX Runtime raises when it refuses the model.
    """
    create = _create_session if release is None else functools.partial(OtherSession, release)
    program.initialize_inference_session(initializer=create)


def _create_session(model: str | bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(program: Any, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Runs the program and returns its outputs."""
    return list(program(*inputs))


def as_complex(
    exporter: str, expected: Sequence[torch.Tensor | complex], actual: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Converts the pairs of real numbers that torch.onnx's programs return to complex numbers."""
    if exporter == "onnx_aot":
        return list(actual)
    converted = list(actual)
    for i, (one, other) in enumerate(zip(expected, actual, strict=False)):
        is_complex = one.is_complex() if isinstance(one, torch.Tensor) else type(one) is complex
        if is_complex and not other.is_complex() and other.dim() and other.shape[-1] == 2:
            converted[i] = torch.complex(other[..., 0], other[..., 1])
    return converted
