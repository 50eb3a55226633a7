"""Models that compute with tensors of types that do not fit each other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import CaptureError

X = torch.randn(4, 8)


class Converted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = x.double()
        return self.linear(y)  # mixed


class Batch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.linear = nn.Linear(8, 2)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return self.linear(self.norm(batch["x"]))


def look_up(x: Tensor, index: Tensor) -> Tensor:
    return x[index]


@pytest.mark.parametrize(
    ("model", "args", "said", "fix"),
    [
        (
            nn.Linear(8, 2),
            (X.double(),),
            "example inputs: input: float64\n",
            "input.to(torch.float32)",
        ),
        (
            nn.Linear(8, 2).half(),
            (X,),
            "weights: float16 (weight, bias)\n",
            "pass input.to(torch.float16), or convert the model, model.to(torch.float32)",
        ),
        (nn.Linear(8, 2), (X.int(),), "input: int32\n", "pass floats: input.to(torch.float32)"),
        (
            nn.Conv2d(3, 4, 3),
            (torch.zeros(1, 3, 8, 8, dtype=torch.uint8),),
            "input: uint8\n",
            "pass floats: input.to(torch.float32)",
        ),
        (nn.Embedding(8, 2), (X,), "indices", "looks up by index: input.long()"),
        (look_up, (X, torch.ones(2)), "index: float32\n", "x.long() or index.long()"),
        (nn.LSTM(8, 8), (X[None].double(),), "bias_ih_l0 and 1 more)\n", "input.to(torch.float32)"),
        (
            Batch(),
            ({"x": X.double()},),
            "batch['x']: float64\n",
            "pass batch['x'].to(torch.float32)",
        ),
        (Converted(), (X,), "return self.linear(y)  # mixed\n", "as in y.to(x.dtype)"),
    ],
)
def test_the_message_names_types_line_and_fix(
    model: Any, args: tuple[Any, ...], said: str, fix: str
) -> None:
    with pytest.raises(CaptureError, match="types of its tensors do not fit") as raised:
        onnx_aot.export(model, args)
    assert said in str(raised.value)
    assert fix in raised.value.fix
    assert raised.value.code == "OA128"


def test_the_fix_helps() -> None:
    model, x = nn.Linear(8, 2), X.double()
    for converted, given in ((model, x.to(torch.float32)), (nn.Linear(8, 2).to(torch.float64), x)):
        assert onnx_aot.export(converted, (given,), verify=True).report.succeeded


def test_other_failures_are_not_about_types() -> None:
    with pytest.raises(CaptureError) as raised:
        onnx_aot.export(nn.Linear(7, 2), (X,))
    assert raised.value.code != "OA128"


def test_a_model_that_only_runs_in_evaluation_mode() -> None:
    model = nn.Sequential(nn.Linear(8, 2), nn.BatchNorm1d(2), nn.ReLU().eval())
    with pytest.raises(CaptureError, match="Expected more than 1 value per channel") as raised:
        onnx_aot.export(model, (X[:1],))
    assert raised.value.fix.startswith("call model.eval() before the export")
    assert [part.training for part in model] == [True, True, False]
    assert onnx_aot.export(model.eval(), (X[:1],), verify=True).report.succeeded


def misshapen(x: Tensor) -> Tensor:
    return x @ torch.ones(7, 2)  # does not fit


def test_other_failures_have_the_models_own_words_and_the_inputs() -> None:
    with pytest.raises(CaptureError, match="mat1 and mat2 shapes cannot be multiplied") as raised:
        onnx_aot.export(misshapen, (X,))
    message = str(raised.value)
    assert "return x @ torch.ones(7, 2)  # does not fit\n  at " in message
    assert "example inputs: x: float32[4, 8]\nfix: run model(*args)" in message
    assert "Dynamo" not in message
    assert isinstance(raised.value.__cause__, RuntimeError)
    with pytest.raises(CaptureError, match="example inputs: no tensors\nfix: pass tensors"):
        onnx_aot.export(nn.Linear(8, 2), ((4, 8),))


def test_inputs_on_another_device_than_the_weights() -> None:
    with pytest.raises(CaptureError, match="with tensors on different devices") as raised:
        onnx_aot.export(nn.Linear(8, 2), (X.to("meta"),))
    assert raised.value.fix.startswith("move the model and the example inputs to one device")
    assert raised.value.code == "OA116"


def test_an_error_that_the_model_raises_itself_is_not_about_types() -> None:
    def model(x: Tensor) -> Tensor:
        raise RuntimeError("the kernel must have the same dtype as the stride")

    with pytest.raises(CaptureError) as caught:
        onnx_aot.export(model, (X,))
    assert "the kernel must have the same dtype as the stride" in str(caught.value)
    assert "OA128" not in str(caught.value)
