"""Exports PyTorch models to ONNX, ahead of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx_aot.capture.fake_weights import enable_fake_mode
from onnx_aot.capture.tracing_state import is_in_onnx_export
from onnx_aot.errors import OnnxExporterError, OnnxExporterWarning
from onnx_aot.explanations import explain
from onnx_aot.export import export
from onnx_aot.integrations.compare_file import compare
from onnx_aot.integrations.install import install, installed, uninstall
from onnx_aot.integrations.observe import CallsAlike, Observed, observe
from onnx_aot.integrations.verify_file import verify
from onnx_aot.ops.user.process_registrations import register, unregister
from onnx_aot.version import __version__

if TYPE_CHECKING:
    from onnx_aot.program.program import ONNXProgram

__all__ = [
    "CallsAlike",
    "ONNXProgram",
    "Observed",
    "OnnxExporterError",
    "OnnxExporterWarning",
    "__version__",
    "compare",
    "enable_fake_mode",
    "errors",
    "explain",
    "export",
    "install",
    "installed",
    "is_in_onnx_export",
    "observe",
    "register",
    "uninstall",
    "unregister",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Imports ``ONNXProgram`` on first use: onnx_ir takes longer to import than the rest."""
    if name == "ONNXProgram":
        from onnx_aot.program.program import ONNXProgram

        return ONNXProgram
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
