"""Translates an ExportedProgram to an ``onnx_ir.Model``: look up, bind, promote, emit, stamp.

``translate`` runs the stage; the other modules are its parts.
"""

from __future__ import annotations

from onnx_aot.translate.assemble import Translated, translate
from onnx_aot.translate.request import Request
from onnx_aot.translate.walker import Statistics

__all__ = ["Request", "Statistics", "Translated", "translate"]
