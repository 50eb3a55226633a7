"""Sums and their normalizations in one node."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.ir_passes import names_of_passes
from tests.tolerances import assert_close

NAMES = {*names_of_passes(), "skip_normalization"}


class Block(nn.Module):
    """A sum that is normalized and read once more."""

    def __init__(self, shape: tuple[int, ...] = (6,)) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(shape, eps=1e-3)
        nn.init.normal_(self.norm.weight)

    def forward(self, x: Tensor, skip: Tensor) -> tuple[Tensor, Tensor]:
        y = x + skip
        return torch.tanh(self.norm(y)), y * 2


def export(model: nn.Module, opset: int, *given: Tensor) -> onnx_aot.ONNXProgram:
    axes = tuple({1: "rows"} if value.dim() == 3 else None for value in given)
    return onnx_aot.export(
        model.eval(), given, dynamic_shapes=axes, opset_version=opset, optimize=NAMES
    )


def fused(program: onnx_aot.ONNXProgram) -> int:
    wanted = ("com.microsoft", "SkipSimplifiedLayerNormalization")
    return sum((node.domain, node.op_type) == wanted for node in program.model.graph)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_sum_that_is_read_twice(dtype: torch.dtype) -> None:
    model = Block().to(dtype)
    program = export(model, 23, *torch.randn(2, 2, 3, 6, dtype=dtype))
    assert fused(program) == 1
    assert "Add" not in {node.op_type for node in program.model.graph}
    for rows in (1, 4):
        given = torch.randn(2, 2, rows, 6, dtype=dtype)
        for found, wanted in zip(program(*given), model(*given), strict=True):
            assert_close(found, wanted)


def test_what_the_operator_does_not_compute() -> None:
    x = torch.randn(2, 3, 6)
    cases = [
        (Block(), 23, (x, torch.randn(6))),  # a sum that repeats one of its terms
        (Block((3, 6)), 23, (x[None], x[None])),  # two axes; and four dimensions
        (Block().double(), 23, (x.double(), x.double())),
        (Block(), 22, (x, x)),
    ]
    for model, opset, given in cases:
        program = export(model, opset, *given)
        assert fused(program) == 0
        for found, wanted in zip(program(*given), model(*given), strict=True):
            assert_close(found, wanted)
