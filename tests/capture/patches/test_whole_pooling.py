"""Pooling over whole dynamic dimensions keeps them dynamic."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

import onnx_aot
from onnx_aot.errors import DynamicShapeError

POOLING: dict[str, Callable[[Tensor], Any]] = {
    "average": lambda x: F.avg_pool2d(x, x.shape[2:]),
    "largest": lambda x: F.max_pool2d(x, x.shape[2:]),
    "average of lines": lambda x: F.avg_pool1d(x[0], x.shape[3]),
    "rows": lambda x: F.avg_pool2d(x, (x.shape[2], 1)),
    "pairs of columns": lambda x: F.max_pool2d(x, (x.shape[2], 2)),
    "rows with a stride": lambda x: F.avg_pool2d(x, (2, x.shape[3]), stride=1),
    "part of a window": lambda x: F.avg_pool2d(x, (x.shape[2], 3), ceil_mode=True),
    "strides of both": lambda x: F.max_pool2d(x, (x.shape[2], 2), (x.shape[2], 1)),
    "volumes": lambda x: F.avg_pool3d(x, (1, *x.shape[2:])),
    "power 2": lambda x: F.lp_pool2d(x, 2, x.shape[2:]),
    "power 3 of lines": lambda x: F.lp_pool1d(x[0], 3.0, x.shape[3]),
    "power 2 of rows": lambda x: F.lp_pool2d(x, 2, (x.shape[2], 2), ceil_mode=True),
    "power 2 of volumes": lambda x: F.lp_pool3d(x, 2, (2, *x.shape[2:]), (1, 1, 1)),
    "infinite power": lambda x: F.lp_pool2d(x, float("inf"), x.shape[2:]),
    "negative infinite power": lambda x: F.lp_pool2d(x, float("-inf"), x.shape[2:]),
}


@pytest.mark.parametrize("name", POOLING)
def test_every_size_is_right(name: str) -> None:
    pool = POOLING[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shapes = ({2: "height", 3: "width"},)
        program = onnx_aot.export(pool, (torch.rand(1, 3, 6, 8),), dynamic_shapes=shapes)
    for height, width in ((6, 8), (5, 9), (13, 4), (3, 3)):
        x = torch.randn(1, 3, height, width).abs()
        torch.testing.assert_close(program(x)[0], pool(x))


def test_half_of_a_dimension_is_refused_with_its_line() -> None:
    def pool(x: Tensor) -> Tensor:
        return F.lp_pool2d(x, 2, (x.shape[2], x.shape[3] // 2))

    x = torch.rand(1, 3, 6, 8)
    with pytest.raises(DynamicShapeError, match=r"F\.lp_pool2d\(x, 2"):
        onnx_aot.export(pool, (x,), dynamic_shapes=({2: "height", 3: "width"},))


def test_a_fixed_kernel_stays_an_operator() -> None:
    x = torch.rand(1, 3, 6, 8)
    program = onnx_aot.export(
        lambda x: F.lp_pool2d(x, 2, 2, ceil_mode=True), (x,), dynamic_shapes=({2: "h", 3: "w"},)
    )
    for height in (6, 7):
        x = torch.rand(1, 3, height, 9)
        torch.testing.assert_close(program(x)[0], F.lp_pool2d(x, 2, 2, ceil_mode=True))
