"""Sizes that models compute with NumPy: ``capture/patches/numpy_numbers.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import onnx_aot
from onnx_aot.errors import DynamicShapeError
from tests.tolerances import assert_close

CALLS: dict[str, Callable[[Any], Any]] = {
    "a type of Python": lambda n: np.ceil(np.log2(n)).astype("int").item(),
    "a type of NumPy": lambda n: np.sqrt(n).astype(np.int64),
    "double": lambda n: np.sqrt(n / 3).astype(float),
    "single, of a whole number": lambda n: np.ceil(n / 3).astype(np.float32).item(),
    "minimum": lambda n: np.minimum(5, n),
    "maximum, of a number of NumPy": lambda n: np.maximum(n - 3, np.int64(1)),
    "maximum of two": lambda n: np.maximum(n, 12 - n),
    "another function": lambda n: np.floor_divide(n, 2),
    "with an array": lambda n: (np.arange(3) * n).sum(),
    "sums of products": lambda n: np.multiply.reduce([n, 2]) + np.float64(0.5) * n,
}


class Scaled(nn.Module):
    def __init__(self, compute: Callable[[Any], Any]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, x: Tensor) -> Tensor:
        return x * self.compute(x.shape[0])


@pytest.mark.parametrize("dim", ["n", Dim.AUTO])
@pytest.mark.parametrize("name", CALLS)
def test_sizes_stay_dynamic(name: str, dim: Any) -> None:
    model = Scaled(CALLS[name])
    program = onnx_aot.export(model, (torch.randn(9, 2),), dynamic_shapes=({0: dim},))
    for count in (9, 4, 16, 1):
        x = torch.randn(count, 2)
        assert_close(program(x)[0], model(x))


class Smallest(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.topk(np.minimum(5, x.shape[0]), dim=0)[0]


@pytest.mark.filterwarnings("error::onnx_aot.OnnxExporterWarning")
def test_a_minimum_does_not_limit_the_size() -> None:
    program = onnx_aot.export(Smallest(), (torch.randn(9, 2),), dynamic_shapes=({0: Dim("n")},))
    for count in (9, 3, 5, 0):
        x = torch.randn(count, 2)
        assert_close(program(x)[0], Smallest()(x))


@pytest.mark.parametrize(
    "compute",
    [
        lambda n: np.ceil(np.log(n)).astype("int").item(),
        lambda n: np.sqrt(n).astype(np.float16).item(),
    ],
)
def test_what_may_be_rounded_fixes_the_size(compute: Callable[[Any], Any]) -> None:
    model, x = Scaled(compute), torch.randn(9, 2)
    with pytest.raises(DynamicShapeError, match=r"x, axis 0 \('n'\): fixed at 9\s.*np\."):
        onnx_aot.export(model, (x,), dynamic_shapes=({0: "n"},))
    program = onnx_aot.export(model, (x,), dynamic_shapes=({0: Dim.AUTO},))
    assert_close(program(x)[0], model(x))
