"""Summaries of inputs and outputs, and their names in the model and in PyTorch."""

from __future__ import annotations

import pytest
import torch

import onnx_aot
from onnx_aot.errors import InvalidOptionError
from tests.program.lora import Tensor


class Steps(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(7, 8)
        self.head = torch.nn.Linear(8, 7, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("count", torch.zeros(1))

    def forward(self, ids: Tensor, phase: Tensor) -> tuple[Tensor, Tensor]:
        self.count.add_(1)
        hidden = self.embed(ids)
        return self.head(torch.cat([hidden, hidden], 1)) * self.count, phase * 2


@pytest.fixture(scope="module")
def steps() -> onnx_aot.ONNXProgram:
    inputs = (torch.tensor([[1, 2, 3]]), torch.randn(4, dtype=torch.complex64))
    shapes = ({0: "batch", 1: "time"}, {0: "n"})
    return onnx_aot.export(
        Steps(), inputs, dynamic_shapes=shapes, state="io", weights_as_inputs=["embed*"]
    )


def test_summaries(steps: onnx_aot.ONNXProgram) -> None:
    assert [(str(value), value.role) for value in steps.inputs] == [
        ("ids: int64[batch, time]", "input"),
        ("phase: complex64[n]", "input"),
        ("count: float32[1]", "state"),
        ("head.weight: float32[7, 8]", "weight"),
    ]
    assert [str(value) for value in steps.outputs] == [
        "mul: float32[batch, 2*time, 7]",
        "mul_1: complex64[n]",
        "count_out: float32[1]",
    ]
    assert steps.inputs[0].dtype == torch.int64
    assert steps.inputs[0].shape == ("batch", "time")
    assert all(value.role == "output" for value in steps.outputs)


def test_names_both_ways(steps: onnx_aot.ONNXProgram) -> None:
    names = steps.names()
    assert names.to_onnx("embed.weight") == names.to_onnx("head.weight")
    weight = names.to_onnx("embed.weight")
    assert sorted(names.to_torch(weight)) == ["embed.weight", "head.weight"]
    assert names.to_onnx("count") == "count"
    for node in ("embedding", "linear", "mul"):
        assert names.to_torch(names.to_onnx(node)) == [node]
    assert names.to_onnx("ids") == "ids"
    with pytest.raises(InvalidOptionError, match="no value for 'nothing'"):
        names.to_onnx("nothing")
    with pytest.raises(InvalidOptionError, match="corresponds to 'nothing'"):
        names.to_torch("nothing")
