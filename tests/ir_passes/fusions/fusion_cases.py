"""Cases: a model, the rules that fire on it and how often, and the remaining operators."""

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

__all__ = ["FusionCase", "check", "export", "parametrize", "same_with_and_without"]

FUSIONS = {r.name for r in (*RULES, *CONTRIB_RULES) if "fusions" in r.apply.__module__}
BATCH_AND_LENGTH = ((2, 5), (3, 1))


@dataclasses.dataclass(frozen=True)
class FusionCase:
    """One export.

    Attributes:
        name: Name of the test.
        model: The module, in eval mode.
        inputs: Makes the inputs from a batch and a length, both dynamic.
        fires: Number of times that each fusion applies; the others must not apply.
        operators: Number of nodes per operator at the end.
        opset: Opset of the model.
        dynamic: Batch and length axes of each input.
        contrib_ops: Value of the option of that name.
    """

    name: str
    model: Callable[..., Any]
    inputs: Callable[[int, int], tuple[torch.Tensor, ...]]
    fires: dict[str, int]
    operators: dict[str, int] = dataclasses.field(default_factory=dict)
    opset: int = 20
    dynamic: tuple[dict[int, str], ...] = ({0: "batch", 1: "length"},)
    contrib_ops: bool = False


def parametrize(cases: list[FusionCase]) -> Any:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


def export(case: FusionCase) -> onnx_aot.ONNXProgram:
    model = case.model.eval() if isinstance(case.model, nn.Module) else case.model
    args = case.inputs(*BATCH_AND_LENGTH[0])
    shapes = tuple(case.dynamic * len(args)) if len(case.dynamic) == 1 else case.dynamic
    return onnx_aot.export(
        model, args, dynamic_shapes=shapes, opset_version=case.opset, optimize=False
    )


def check(case: FusionCase) -> None:
    """The fusions fire as the case specifies, and outputs match eager mode at two sizes."""
    program = export(case)
    counts = program.optimize(contrib_ops=case.contrib_ops)
    fired = {name: n for name, n in counts.items() if name in FUSIONS}
    assert fired == case.fires, fired
    found = collections.Counter(node.op_type for node in program.model.graph)
    assert {name: found[name] for name in case.operators} == case.operators
    onnx.checker.check_model(program.model_proto, full_check=True)
    for size in BATCH_AND_LENGTH:
        args = case.inputs(*size)
        wanted = case.model(*args)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for mine, eager in zip(program(*args), wanted, strict=True):
            assert_close(mine, eager.detach())


def same_with_and_without(case: FusionCase) -> None:
    """Outputs are the same before and after the fusions, whichever of them fire."""
    program = export(case)
    args = case.inputs(*BATCH_AND_LENGTH[0])
    before = program(*args)
    program.optimize(contrib_ops=case.contrib_ops)
    for after, wanted in zip(program(*args), before, strict=True):
        assert_close(after, wanted)
