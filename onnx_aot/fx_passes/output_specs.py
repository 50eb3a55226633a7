"""Keeps the output specs of a program's signature in step with the rewritten graph."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
from torch.export.graph_signature import ConstantArgument, OutputSpec

__all__ = ["rename_outputs"]


def rename_outputs(
    program: torch.export.ExportedProgram, returned: Sequence[Any]
) -> list[OutputSpec]:
    """Returns the program's output specs with the names of the graph's current results.

    Args:
        program: Its signature is not changed; a program that this one was copied from shares it.
        returned: Results of the graph, one per output spec.
    """
    return [
        OutputSpec(spec.kind, _rename_argument(spec.arg, value), spec.target)
        for spec, value in zip(program.graph_signature.output_specs, returned, strict=True)
    ]


def _rename_argument(argument: Any, value: Any) -> Any:
    if isinstance(value, torch.fx.Node):
        renamed = copy.copy(argument)
        renamed.name = value.name
        return renamed
    if isinstance(argument, ConstantArgument):
        return argument
    return ConstantArgument(name="", value=value)  # a wrapper returned it unchanged
