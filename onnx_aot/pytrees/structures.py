"""Reads how the inputs and outputs of a captured program are nested."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["input_structure", "output_structure"]


def input_structure(program: torch.export.ExportedProgram) -> Any:
    """Returns the structure of ``(args, kwargs)``; None for a program without one.

    ``program.call_spec`` is the same, and makes a class each time that it is read.
    """
    calls = program.module_call_graph
    return calls[0].signature.in_spec if calls else None


def output_structure(program: torch.export.ExportedProgram) -> Any:
    """Returns the structure of the return value; None for a program without one."""
    calls = program.module_call_graph
    return calls[0].signature.out_spec if calls else None
