"""Fake quantization: ``onnx_aot/capture/fake_quantization.py``."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.ao import quantization

import onnx_aot
from onnx_aot.errors import CaptureError
from tests.tolerances import assert_close

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.ao"),
    pytest.mark.filterwarnings("ignore:Please use quant_min and quant_max"),
]


def compare(model: torch.nn.Module, inputs: list[torch.Tensor], **options: Any) -> set[str]:
    for given in inputs:
        model(given)
    model.apply(quantization.disable_observer)
    switches = [float(value) for name, value in model.named_buffers() if "enabled" in name]
    program = onnx_aot.export(model, (inputs[0],), **options)
    for given in inputs:
        expected = copy.deepcopy(model)(given)
        assert_close(program(given)[0], expected)
    assert switches == [float(v) for name, v in model.named_buffers() if "enabled" in name]
    return {node.op_type for node in program.model.graph}


@pytest.mark.parametrize(
    "make",
    [
        quantization.default_fake_quant,
        quantization.default_per_channel_weight_fake_quant,
        quantization.default_fused_act_fake_quant,
        quantization.default_fused_per_channel_wt_fake_quant,
        quantization.default_fixed_qparams_range_0to1_fake_quant,
    ],
)
def test_layers(make: Any) -> None:
    """The operators that observe the range are removed."""
    operators = compare(make(), [torch.randn(4, 3), torch.randn(4, 3)])
    assert "QuantizeLinear" in operators
    assert not {"ReduceMax", "Where"} & operators


def test_a_layer_that_does_not_quantize() -> None:
    layer = quantization.default_fake_quant()
    layer.disable_fake_quant()
    assert compare(layer, [torch.randn(4, 3)]) <= {"Identity"}


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 2, 3)
        self.norm = torch.nn.BatchNorm2d(2)
        self.relu = torch.nn.ReLU()
        self.linear = torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.relu(self.norm(self.conv(x))).flatten(1))


@pytest.mark.filterwarnings("ignore")
def test_a_network_prepared_for_training() -> None:
    model = Network().train()
    model.qconfig = quantization.get_default_qat_qconfig("x86")
    model = quantization.fuse_modules_qat(model, [["conv", "norm", "relu"]])
    model = quantization.prepare_qat(model)
    inputs = [torch.randn(2, 1, 4, 4), torch.randn(3, 1, 4, 4)]
    for given in inputs:
        model(given)
    compare(model.eval(), inputs, dynamic_shapes=({0: "n"},))


def test_what_still_observes_is_told_to_stop() -> None:
    with pytest.raises(CaptureError, match=r"disable_observer\) first"):
        onnx_aot.export(quantization.default_fake_quant(), (torch.randn(4, 3),))


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_layers_of_packed_integers_are_named() -> None:
    layer = torch.ao.nn.quantized.dynamic.Linear(3, 2)
    with pytest.raises(CaptureError, match=r"0, a quantized Linear, computes with packed") as found:
        onnx_aot.export(torch.nn.Sequential(layer), (torch.ones(4, 3),))
    assert "quantize the file, or quantize the model with torchao.quantization.pt2e" in str(
        found.value
    )
