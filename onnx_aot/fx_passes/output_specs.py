"""Keeps what a program's signature says of its outputs in step with the rewritten graph."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
from torch.export.graph_signature import ConstantArgument, OutputSpec

__all__ = ["renamed_outputs"]


def renamed_outputs(
    program: torch.export.ExportedProgram, returned: Sequence[Any]
) -> list[OutputSpec]:
    """The program's output specs, naming what the graph returns now.

    Args:
        program: Its signature is left as it is; a program that this one was copied from has it too.
        returned: What the graph returns, one item per output spec.
    """
    return [
        OutputSpec(spec.kind, _renamed(spec.arg, value), spec.target)
        for spec, value in zip(program.graph_signature.output_specs, returned, strict=True)
    ]


def _renamed(argument: Any, value: Any) -> Any:
    if isinstance(value, torch.fx.Node):
        renamed = copy.copy(argument)
        renamed.name = value.name
        return renamed
    if isinstance(argument, ConstantArgument):
        return argument
    return ConstantArgument(name="", value=value)  # a wrapper returned it as it was
