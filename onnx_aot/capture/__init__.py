"""Model and example inputs to ``ExportedProgram``."""

from __future__ import annotations
