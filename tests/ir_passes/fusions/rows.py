"""Rows: a model, the rules that fire on it and how often, and what is left."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import onnx
import pytest
import torch
from torch import nn

import onnx_aot
from onnx_aot.ir_passes import CONTRIB_RULES, RULES
from tests.tolerances import assert_close

__all__ = ["Row", "check", "export", "parametrize", "same_with_and_without"]

FUSIONS = {r.name for r in (*RULES, *CONTRIB_RULES) if "fusions" in r.apply.__module__}
SIZES = ((2, 5), (3, 1))


@dataclasses.dataclass(frozen=True)
class Row:
    """One export.

    Attributes:
        name: Of the test.
        model: The module, in eval mode.
        inputs: From a batch and a length, both dynamic.
        fires: How often each fusion applies; the others must not.
        operators: How many nodes of an operator there are at the end.
        opset: Of the model.
        dynamic: Axes of each input that are batch and length.
        contrib_ops: As the option.
    """

    name: str
    model: Callable[..., Any]
    inputs: Callable[[int, int], tuple[torch.Tensor, ...]]
    fires: dict[str, int]
    operators: dict[str, int] = dataclasses.field(default_factory=dict)
    opset: int = 20
    dynamic: tuple[dict[int, str], ...] = ({0: "batch", 1: "length"},)
    contrib_ops: bool = False


def parametrize(rows: list[Row]) -> Any:
    return pytest.mark.parametrize("row", rows, ids=lambda row: row.name)


def export(row: Row) -> onnx_aot.ONNXProgram:
    model = row.model.eval() if isinstance(row.model, nn.Module) else row.model
    args = row.inputs(*SIZES[0])
    shapes = tuple(row.dynamic * len(args)) if len(row.dynamic) == 1 else row.dynamic
    return onnx_aot.export(
        model, args, dynamic_shapes=shapes, opset_version=row.opset, optimize=False
    )


def check(row: Row) -> None:
    """The fusions fire as the row says, and outputs are eager's at two sizes."""
    program = export(row)
    counts = program.optimize(contrib_ops=row.contrib_ops)
    fired = {name: n for name, n in counts.items() if name in FUSIONS}
    assert fired == row.fires, fired
    found = collections.Counter(node.op_type for node in program.model.graph)
    assert {name: found[name] for name in row.operators} == row.operators
    onnx.checker.check_model(program.model_proto, full_check=True)
    for size in SIZES:
        args = row.inputs(*size)
        wanted = row.model(*args)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for mine, eager in zip(program(*args), wanted, strict=True):
            assert_close(mine, eager.detach())


def same_with_and_without(row: Row) -> None:
    """Whatever fires, the outputs are the same."""
    program = export(row)
    args = row.inputs(*SIZES[0])
    before = program(*args)
    program.optimize(contrib_ops=row.contrib_ops)
    for after, wanted in zip(program(*args), before, strict=True):
        assert_close(after, wanted)
