"""Grad-mode and autocast regions become part of the graph around them."""

from __future__ import annotations

import io

import pytest
import torch

import onnx_aot
from onnx_aot.errors import CaptureError
from onnx_aot.fx_passes.inline_wrappers import inline_wrappers
from tests.tolerances import assert_close

Tensor = torch.Tensor


class NoGrad(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            y = self.inner(x)
            with torch.enable_grad():
                z = y.sin()
            w = y + z
        return w * 2, z


class Autocast(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.norm = torch.nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.inner(x)
            y = y + x
        with torch.autocast("cpu", enabled=False):
            return self.norm(y)


@pytest.mark.parametrize("module", [NoGrad(), Autocast()], ids=["grad", "autocast"])
def test_no_wrapper_is_left(module: torch.nn.Module) -> None:
    program = inline_wrappers(torch.export.export(module, (torch.randn(2, 4),)))
    for node in program.graph.nodes:
        assert not isinstance(node.target, torch._ops.HigherOrderOperator)
        assert node.op != "get_attr"


class ReturnedByRegion(torch.nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, int, Tensor]:
        with torch.no_grad():
            doubled = x * 2
            rows = y.shape[0] * 2
        return doubled, y, rows, doubled


def test_the_signature_names_what_a_region_returned() -> None:
    program = torch.export.export(
        ReturnedByRegion(),
        (torch.ones(3), torch.ones(3)),
        dynamic_shapes=(None, {0: torch.export.Dim.DYNAMIC}),
    )
    signature = program.graph_signature
    before = str(signature)
    program = inline_wrappers(program)
    assert str(signature) == before  # a copy of the program may share the signature
    (returned,) = next(iter(reversed(program.graph.nodes))).args
    assert [s.arg.name for s in program.graph_signature.output_specs] == [n.name for n in returned]
    torch.export.save(program, io.BytesIO())


def test_grad_regions_give_the_same_values() -> None:
    module, x = NoGrad(), torch.randn(2, 4)
    program = onnx_aot.export(module, (x,))
    for actual, expected in zip(program(x), module(x), strict=True):
        assert_close(actual, expected)


def test_autocast_computes_in_the_recorded_type() -> None:
    """The graph contains the casts that autocast makes below the captured level."""
    program = inline_wrappers(torch.export.export(Autocast(), (torch.randn(2, 4),)))
    linear = next(n for n in program.graph.nodes if n.target == torch.ops.aten.linear.default)
    assert linear.meta["val"].dtype == torch.bfloat16
    for operand in linear.args:
        assert operand.target == torch.ops.aten._to_copy.default
        assert operand.meta["val"].dtype == torch.bfloat16
    norm = next(n for n in program.graph.nodes if n.target == torch.ops.aten.layer_norm.default)
    assert norm.meta["val"].dtype == torch.float32


def test_autocast_leaves_results_of_several_types() -> None:
    class Broadcast(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return torch.broadcast_tensors(x.to(torch.bfloat16), y)

    module, inputs = Broadcast(), (torch.rand(3), torch.rand(2, 3))
    for actual, expected in zip(
        onnx_aot.export(module, inputs)(*inputs), module(*inputs), strict=True
    ):
        assert_close(actual, expected)


class Mixed(torch.nn.Module):
    """Computes in both types, with a region of its own in which autocast is off."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = torch.nn.Conv1d(3, 4, 3), torch.nn.Linear(4, 5)
        self.norm = torch.nn.LayerNorm(4)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.norm(self.conv(x).relu().transpose(1, 2))
        with torch.autocast("cpu", enabled=False):
            exact = self.linear(y.float()).exp()
        attended = (y @ y.transpose(1, 2)).softmax(-1) @ y
        chosen = torch.cond(x.sum() > 0, lambda a: a @ a.mT, lambda a: a @ a.mT * 2, (y,))
        return self.linear(attended), exact, torch.cat([y, attended.float()]), y.sum(), chosen


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_an_export_in_an_autocast_region(dtype: torch.dtype) -> None:
    model, x = Mixed().eval(), torch.randn(2, 3, 7)
    with torch.autocast("cpu", dtype=dtype), torch.no_grad():
        program = onnx_aot.export(model, (x,), dynamic_shapes=({0: "n"},), verify=True)
        for given in (x, -x[:1], torch.randn(5, 3, 7)):
            for actual, expected in zip(program(given), model(given), strict=True):
                assert_close(actual, expected)


def test_a_recurrent_layer_in_an_autocast_region() -> None:
    layer = torch.nn.LSTM(3, 4)
    with torch.autocast("cpu"), pytest.raises(CaptureError, match=r"enabled=False"):
        onnx_aot.export(layer, (torch.randn(5, 2, 3),))
