"""Implements ``verify``, which compares a program or file with the model that it came from."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch

if TYPE_CHECKING:
    from onnx_aot.inspection.verification import Verification
    from onnx_aot.program.program import ONNXProgram

__all__ = ["verify"]


def verify(
    program: ONNXProgram | str | os.PathLike[str],
    model: torch.nn.Module | torch.export.ExportedProgram | Callable[..., Any],
    args: tuple[Any, ...] | torch.Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    sizes: bool = True,
    runtime: Literal["onnxruntime", "reference"] = "onnxruntime",
) -> Verification:
    """Runs an ONNX model and the PyTorch model that it came from, and compares the outputs.

    Example::

        result = onnx_aot.verify("model.onnx", model, (x,))
        assert result.ok, result

    Args:
        program: What ``export`` returned, or the path of an ONNX file. For a file, inputs are
            matched in the order of its graph's inputs, and the names of their dimensions, with the
            ranges in the file's metadata, determine which sizes are tried.
        model: The module or function, whose buffers are restored afterwards, or an
            ``ExportedProgram``.
        args: Inputs.
        kwargs: Keyword inputs.
        sizes: Whether to try up to five other sizes of the dynamic dimensions too: the minimum,
            1, odd and larger ones.
        runtime: ``"onnxruntime"``, or ``"reference"`` for ONNX's reference implementation, which is
            slow and written in Python.

    Returns:
        ``ok``, and for each set of sizes every output with its largest absolute and relative
        difference, their position, and a histogram; it prints as a table.

    Raises:
        InvalidOptionError: There is no such file, the inputs do not fit ``forward``, the runtime is
            unknown, or it lacks operators.
        InferenceError: The inputs do not fit the ONNX model.
        Exception: Whatever PyTorch raises on the inputs.
    """
    from onnx_aot.program.program import ONNXProgram

    loaded = ONNXProgram.load(program) if isinstance(program, (str, os.PathLike)) else program
    return loaded.verify(model, args, kwargs, sizes=sizes, runtime=runtime)
