"""If a model differs since its weights were drawn anew, the weights are named, not the outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot

X = torch.rand(4, 3)


class Model(nn.Module):
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3, dtype=dtype)
        self.second = nn.Linear(3, 3, dtype=dtype)
        self.second.bias = self.first.bias
        self.register_buffer("scale", torch.rand((), dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x.to(self.scale.dtype))) * self.scale


NAMES = {"first.weight", "first.bias", "second.weight", "second.bias", "scale"}


def saved(model: nn.Module, folder: Path, **options: Any) -> Path:
    path = folder / "model.onnx"
    onnx_aot.export(model, (X,), path, dynamic_shapes=({0: "n"},), **options)
    return path


def test_a_file_and_a_model_of_other_weights(tmp_path: Path) -> None:
    path = saved(Model(), tmp_path)
    result = onnx_aot.verify(path, Model(), (X,))
    assert not result.ok
    assert result.other_weights is not None
    assert set(result.other_weights.names) == NAMES - {"first.bias"}  # tied, once in the file
    text = str(result)
    assert text.count("first.weight") == 1
    assert "4 of 4 weights have other values" in text
    assert "outputs differ:" not in text
    assert "FAIL" not in text
    assert "torch.manual_seed(0)" in text
    found = json.loads(result.to_json())
    assert found["other_weights"]["compared"] == 4
    assert found["results"][0]["differences"]


def test_the_fix_works(tmp_path: Path) -> None:
    def make() -> nn.Module:
        torch.manual_seed(0)
        return Model()

    path = saved(make(), tmp_path)
    assert onnx_aot.verify(path, make(), (X,)).ok
    other = Model()
    other.load_state_dict(make().state_dict())
    assert onnx_aot.verify(path, other, (X,)).ok


def test_a_program_and_a_model_of_other_weights() -> None:
    program = onnx_aot.export(Model(), (X,))
    found = program.verify(Model(), (X,)).other_weights
    assert found is not None
    assert set(found.names) == NAMES


def test_weights_that_are_inputs() -> None:
    program = onnx_aot.export(Model(), (X,), weights_as_inputs=True)
    found = program.verify(Model(), (X,)).other_weights
    assert found is not None
    assert set(found.names) == NAMES


def test_one_weight_of_many(tmp_path: Path) -> None:
    model = Model()
    path = saved(model, tmp_path)
    with torch.no_grad():
        model.second.weight[1, 1] += 1
    result = onnx_aot.verify(path, model, (X,))
    assert result.other_weights is not None
    assert result.other_weights.names == ("second.weight",)
    assert "1 of 4 weights" in str(result)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_types(dtype: torch.dtype, tmp_path: Path) -> None:
    model = Model(dtype)
    path = saved(model, tmp_path)
    assert onnx_aot.verify(path, model, (X,)).other_weights is None
    found = onnx_aot.verify(path, Model(dtype), (X,)).other_weights
    assert found is not None
    assert len(found.names) == 4


def test_nan_is_equal_to_itself(tmp_path: Path) -> None:
    class Marked(Model):
        def __init__(self) -> None:
            super().__init__()
            self.mark = nn.Parameter(torch.tensor([torch.nan, 1.0, 2.0]))

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + self.mark.nan_to_num()

    path = saved(Marked(), tmp_path)
    found = onnx_aot.verify(path, Marked(), (X,)).other_weights
    assert found is not None
    assert "mark" not in found.names


def test_outputs_that_differ_with_equal_weights(tmp_path: Path) -> None:
    class Doubled(Model):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * 2

    model = Model()
    path = saved(model, tmp_path)
    doubled = Doubled()
    doubled.load_state_dict(model.state_dict())
    result = onnx_aot.verify(path, doubled, (X,))
    assert result.other_weights is None
    assert "FAIL" in str(result)


def test_a_function_has_no_weights(tmp_path: Path) -> None:
    path = saved(Model(), tmp_path)
    result = onnx_aot.verify(path, lambda x: x * 7, (X,))
    assert not result.ok
    assert result.other_weights is None
