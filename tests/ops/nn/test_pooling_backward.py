"""Gradients of pooling and padding: ``onnx_aot/ops/nn/pooling_backward.py``."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import onnx_aot
from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, check, floats, ints, parametrize
from tests.tolerances import assert_close

ROWS = [
    # what gradients are recorded with
    Row(aten._adaptive_avg_pool2d.default, (floats("n", 3, 5, "w"), [3, 2])),
    Row(aten._adaptive_avg_pool3d.default, (floats("n", 3, 5, 7, 4), [3, 2, 1])),
    *(
        Row(aten.avg_pool2d_backward.default, args, name=name)
        for name, args in (
            ("plain", (floats(2, 3, 2, 3), floats(2, 3, 4, 7), [2], [], [0], False, True, None)),
            (
                "padding",
                (floats("n", 3, 3, 4), floats("n", 3, 5, 7), [3], [2], [1], False, True, None),
            ),
            (
                "padding is not counted",
                (floats(2, 3, 3, 4), floats(2, 3, 5, 7), [3, 3], [2], [1], False, False, None),
            ),
            (
                "ceil mode",
                (floats(2, 3, 4, 4), floats(2, 3, 7, 7), [2, 3], [2, 2], [0, 1], True, True, None),
            ),
            (
                "divisor",
                (floats("n", 3, 2, 3), floats("n", 3, 4, 7), [2], [], [0], False, True, 3),
            ),
            ("no batch", (floats(3, 2, 3), floats(3, 4, 7), [2], [], [0], False, True, None)),
            (
                "half",
                (
                    floats(2, 3, 2, 3, dtype=torch.float16),
                    floats(2, 3, 4, 7, dtype=torch.float16),
                    *([2], [], [0], False, True, None),
                ),
            ),
        )
    ),
    Row(
        aten.avg_pool3d_backward.default,
        (floats(2, 3, 2, 3, 2), floats(2, 3, 4, 7, 5), [2], [], [0], False, True, None),
    ),
    Row(aten._adaptive_avg_pool2d_backward.default, (floats("n", 3, 3, 4), floats("n", 3, 5, 7))),
    Row(aten._adaptive_avg_pool2d_backward.default, (floats(3, 3, 1), floats(3, 5, 7)), name="3"),
    Row(
        aten._adaptive_avg_pool3d_backward.default,
        (floats(2, 3, 2, 3, 2), floats(2, 3, 4, 7, 5)),
    ),
    Row(
        aten.adaptive_max_pool2d_backward.default,
        (floats("n", 3, 3, 4), floats("n", 3, 5, 7), ints("n", 3, 3, 4, low=0, high=35)),
    ),
    Row(
        aten.adaptive_max_pool3d_backward.default,
        (floats(3, 2, 3, 2), floats(3, 4, 7, 5), ints(3, 2, 3, 2, low=0, high=140)),
    ),
    *(
        Row(target, (floats("n", 3, *wide), floats("n", 3, *narrow), padding))
        for target, wide, narrow, padding in (
            (aten.replication_pad1d_backward.default, (8,), (5,), [1, 2]),
            (aten.replication_pad2d_backward.default, (8, 5), (5, 4), [1, 0, 1, 2]),
            (aten.replication_pad3d_backward.default, (8, 5, 4), (5, 4, 2), [1, 1, 1, 0, 1, 2]),
        )
    ),
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)


def pooled(layer: nn.Module) -> Callable[[Tensor], Tensor]:
    def compute(x: Tensor) -> Tensor:
        return torch.func.grad(lambda y: layer(y).sin().sum())(x)

    return compute


@pytest.mark.parametrize(
    ("layer", "spatial"),
    [
        (nn.AvgPool1d(3, 2, 1), 1),
        (nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), 2),
        (nn.AvgPool3d(2), 3),
        (nn.AdaptiveAvgPool2d((3, 2)), 2),
        (nn.AdaptiveAvgPool3d((3, 2, 1)), 3),
        (nn.AdaptiveMaxPool2d((3, 2)), 2),
        (nn.AdaptiveMaxPool3d((3, 2, 1)), 3),
        (nn.LPPool2d(2.0, 2), 2),
        (nn.ReplicationPad2d((1, 2, 0, 1)), 2),
        (nn.LocalResponseNorm(3), 2),
    ],
    ids=str,
)
def test_gradients_of_layers(layer: nn.Module, spatial: int) -> None:
    model = pooled(layer)
    x = torch.randn(2, 3, *[6, 7, 5][:spatial])
    program = onnx_aot.export(model, (x,), dynamic_shapes=({0: "n", 2: "h"},))
    for size in (6, 9):
        given = torch.randn(4, 3, *[size, 7, 5][:spatial])
        assert_close(program(given)[0], model(given))


def test_sizes_are_those_of_the_model() -> None:
    """The largest elements of the windows of a model with a dynamic size."""
    model = pooled(nn.AdaptiveMaxPool1d(2))
    x = torch.randn(2, 3, 8)
    program = onnx_aot.export(model, (x,), dynamic_shapes=({2: "n"},))
    given = functional.pad(x, (0, 3), value=0.25)
    assert_close(program(given)[0], model(given))
