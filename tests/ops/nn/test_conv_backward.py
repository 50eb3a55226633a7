"""Gradients of convolutions: ``onnx_aot/ops/nn/conv_backward.py``."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, check, floats, parametrize

AUTO = torch.export.Dim.AUTO


class Case(NamedTuple):
    layer: type[nn.Module]
    spatial: int
    options: dict[str, Any]


CASES = [
    Case(nn.Conv1d, 1, {}),
    Case(nn.Conv1d, 1, {"stride": 3, "padding": 2, "dilation": 2}),
    Case(nn.Conv2d, 2, {"stride": 2, "padding": 1, "groups": 2}),
    Case(nn.Conv2d, 2, {"stride": (1, 3), "padding": (2, 0), "dilation": (2, 1), "bias": False}),
    Case(nn.Conv3d, 3, {"padding": 1, "groups": 4}),
    Case(nn.ConvTranspose1d, 1, {"stride": 3, "padding": 1, "output_padding": 2}),
    Case(nn.ConvTranspose2d, 2, {"stride": 2, "groups": 2, "dilation": 2}),
    Case(nn.ConvTranspose2d, 2, {"dilation": 2, "output_padding": 1}),
]


class Gradients(nn.Module):
    """Gradients of a loss by the weights of a layer and by its input."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = case.layer(4, 8, 3, **case.options)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
            return torch.func.functional_call(self.layer, weights, (x,)).sin().square().sum()

        by_weights, by_input = torch.func.grad(loss, (0, 1))(dict(self.layer.named_parameters()), x)
        return by_input, *by_weights.values()


ROWS = [
    Row(
        aten.convolution_backward.default,
        (
            floats("n", 6, "h", "w"),
            floats("n", 4, "h", "w"),
            floats(6, 2, 3, 3),
            [6],
            *([1, 1], [1, 1], [1, 1]),
            *(False, [0, 0], 2),
            [True, True, True],
        ),
    )
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients(case: Case, dtype: torch.dtype) -> None:
    model = Gradients(case).to(dtype)
    shape = (2, 4, *(9, 10, 7)[: case.spatial])
    x = torch.randn(shape, dtype=dtype)
    dynamic = {0: AUTO, 2: AUTO}
    for shapes in (None, (dynamic,)):
        program = onnx_aot.export(model, (x,), dynamic_shapes=shapes)
        for size in (9,) if shapes is None else (9, 10, 11, 12):
            batch = 2 if shapes is None else 3
            given = torch.randn(batch, 4, size, *shape[3:], dtype=dtype)
            for found, expected in zip(program(given), model(given), strict=True):
                torch.testing.assert_close(found, expected, rtol=2e-4, atol=2e-4)


def test_an_input_that_needs_no_gradient() -> None:
    layer = nn.Conv2d(3, 2, 3)

    def train(x: Tensor, weight: Tensor) -> Tensor:
        return torch.func.grad(lambda w: nn.functional.conv2d(x, w).square().sum())(weight)

    x = torch.randn(1, 3, 6, 6)
    program = onnx_aot.export(train, (x, layer.weight.detach()))
    torch.testing.assert_close(
        program(x, layer.weight.detach())[0], train(x, layer.weight.detach()), rtol=1e-4, atol=1e-4
    )
