"""Autocast regions in branches, and in captures that are traced again, compute as in PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.capture.patches import capture_conditions
from onnx_aot.errors import CaptureError
from onnx_aot.torch_compat import hidden
from tests.torch_compat.without import shows

MODE = "torch.fx.experimental.proxy_tensor:PreDispatchTorchFunctionMode.__torch_function__"
PASS = "torch._export.passes.replace_autocast_with_hop_pass:replace_autocast_with_hop_pass"


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)


class BranchAfter(Layers):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.b(self.a(x))
        return y * 2 if x.sum() > 0 else y


class BranchInside(Layers):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x)
            if x.sum() > 0:
                y = self.b(y)
            return self.b(y)


class RegionInBranch(Layers):
    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        if x.sum() > 0:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = self.b(y)
            y = y.float()
        return self.b(y)


class DisabledInside(Layers):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x)
            with torch.autocast("cpu", enabled=False):
                y = self.b(y.float())
            return self.a(y) if x.sum() > 0 else self.b(y)


class ReturnsInside(Layers):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x)
            if x.sum() > 0:
                return self.b(y).float()
            y = self.a(y)
        return self.b(y.float())


class ReturnsFromTwo(Layers):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x)
            with torch.autocast("cpu", enabled=False):
                if x.sum() > 0:
                    return self.b(y.float())
                if x[0, 0] > -1:
                    return self.a(y.float())
            y = self.a(y)
        return self.b(y.float())


class MixedTypes(Layers):
    """Weights of float32 beside an input of bfloat16, where autocast is off."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x)
            with torch.autocast("cpu", enabled=False):
                z = nn.functional.layer_norm(y, (8,), self.b.bias * 3.7).float()
            return z * 2 if x.sum() > 0 else z


class OfAnotherDevice(Layers):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x)
            with torch.autocast("cuda", enabled=False):
                y = self.b(y)
                if x[1, 0] > 0:
                    y = self.b(y)
            return self.b(y) if x[0, 0] > 0 else y


class Attention(Layers):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            q = self.a(x)
            if x.sum() > 0:
                q = q * 2
            return nn.functional.scaled_dot_product_attention(q[None], q[None], x[None])


class RegionInCond(Layers):
    def forward(self, x: Tensor) -> Tensor:
        def narrow(y: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.b(y).float()

        return torch.cond(x.sum() > 0, narrow, lambda y: y * 1.0, (self.a(x),))


class CondInRegion(Layers):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.cond(x.sum() > 0, self.b, lambda y: y.bfloat16(), (self.a(x),))


class Loop(Layers):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = torch.zeros(8)
            for i in range(x.shape[0]):
                h = self.a(h + x[i])
        return h


class Scripted(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.jit.script(self.a)  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.a(x)


class OtherDefault(Layers):
    def forward(self, x: Tensor) -> Tensor:
        torch.set_default_dtype(torch.float64)
        try:
            y = torch.ones(8)
            if x.sum() > 0:
                y = y * 2
        finally:
            torch.set_default_dtype(torch.float32)
        return x + y


class Straight(Layers):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.b(self.a(x))


class Raises(Layers):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            raise ValueError(f"on purpose, at rank {self.a(x).dim()}")


MODELS = (
    BranchAfter,
    BranchInside,
    RegionInBranch,
    DisabledInside,
    MixedTypes,
    ReturnsInside,
    ReturnsFromTwo,
    OfAnotherDevice,
    Attention,
    RegionInCond,
    CondInRegion,
    Straight,
)


def _check(model: nn.Module, **options: Any) -> None:
    x = torch.randn(3, 8)
    program = onnx_aot.export(model, (x,), **options)
    for sign in (1, -1):
        given = sign * x.abs()
        with torch.no_grad():
            expected = model(given)
        (actual,) = program(given)
        assert actual.dtype == expected.dtype
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_types_are_those_of_pytorch(model: type[nn.Module]) -> None:
    _check(model().eval())


def test_a_loop_over_a_dynamic_size() -> None:
    model = Loop().eval()
    program = onnx_aot.export(model, (torch.randn(3, 8),), dynamic_shapes=({0: "n"},))
    for size in (3, 1, 7):
        x = torch.randn(size, 8)
        (actual,) = program(x)
        assert actual.dtype == torch.bfloat16
        torch.testing.assert_close(actual, model(x))


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (Scripted, r"autocast computes parts of a scripted module[\s\S]*return self\.a\(x\)"),
        (OtherDefault, r"if x\.sum\(\) > 0:[\s\S]*gives torch\.float64 in the model"),
    ],
)
def test_types_that_are_not_recorded_are_refused(model: type[nn.Module], text: str) -> None:
    with pytest.raises(CaptureError, match=text):
        onnx_aot.export(model().eval(), (torch.randn(3, 8),))


@pytest.mark.parametrize("model", [RegionInCond, Straight], ids=lambda model: model.__name__)
def test_strict_captures(model: type[nn.Module]) -> None:
    _check(model().eval(), strategies=("strict",))


@pytest.mark.parametrize("strategy", ["non-strict", "strict"])
def test_a_capture_that_fails_in_a_region_leaves_none(strategy: str) -> None:
    before = torch.get_autocast_dtype("cpu")
    with pytest.raises(onnx_aot.OnnxExporterError):
        onnx_aot.export(Raises().eval(), (torch.randn(3, 8),), strategies=(strategy,))
    assert not torch.is_autocast_enabled("cpu")
    assert torch.get_autocast_dtype("cpu") == before


@shows(MODE)
def test_regions_in_branches_without_the_row() -> None:
    with hidden(MODE), pytest.raises(AssertionError):
        _check(RegionInCond().eval())


def _begins_with_region() -> bool:
    with capture_conditions():
        program = torch.export.export(CondInRegion().eval(), (torch.randn(3, 8),))
    first = next(node for node in program.graph.nodes if node.op != "placeholder")
    return "autocast" in str(first.target)


@shows(PASS)
def test_graphs_with_regions_and_branches_stay_as_they_are() -> None:
    """Torch moves references to bodies when it makes a module of a region, and may lose bodies."""
    assert _begins_with_region()
    with hidden(PASS):
        assert not _begins_with_region()


@torch.library.custom_op("onnx_aot_tests::traced_once", mutates_args=())
def traced_once(x: Tensor) -> Tensor:
    return x.clone()


@traced_once.register_fake
def _(x: Tensor) -> Tensor:
    CALLS.append(x)
    if len(CALLS) > 1:
        raise ValueError("on purpose")
    return torch.empty_like(x)


CALLS: list[Tensor] = []


class TracedOnce(Layers):
    def forward(self, x: Tensor) -> Tensor:
        def narrow(y: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return traced_once(self.b(y).float())

        return torch.cond(x.sum() > 0, narrow, lambda y: y * 1.0, (x,))


def test_a_second_trace_that_fails_leaves_no_region() -> None:
    CALLS.clear()
    with pytest.raises(onnx_aot.OnnxExporterError):
        onnx_aot.export(TracedOnce().eval(), (torch.randn(3, 8),), strategies=("non-strict",))
    assert len(CALLS) > 1
    assert not torch.is_autocast_enabled("cpu")
