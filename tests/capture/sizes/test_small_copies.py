"""Copies that share memory at size 1, and are written to."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import onnx_aot
from onnx_aot.errors import DynamicShapeError, OnnxExporterWarning


def contiguous(x: Tensor) -> Tensor:
    h = x * 2
    y = h.transpose(0, 1).contiguous()
    y += 10
    return y.transpose(0, 1) + h


def reshaped(x: Tensor) -> tuple[Tensor, Tensor]:
    h = x * 2
    boxes = h.transpose(0, 1).reshape(-1, 3)
    boxes[:, :2] = boxes[:, :2] * 10
    return boxes, h.sum(0)


def only_the_copy(x: Tensor) -> Tensor:
    """Reads nothing afterwards that shares memory."""
    y = (x * 2).transpose(0, 1).contiguous()
    y += 10
    return y.transpose(0, 1)


WAYS = {"name": "n", "Dim": Dim("n", min=1), "AUTO": Dim.AUTO}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", [contiguous, reshaped])
def test_a_write_to_what_is_a_copy_from_size_2_on(function: Callable[..., Any], way: str) -> None:
    shapes = ({0: WAYS[way]},)
    with pytest.warns(OnnxExporterWarning, match="for size 1") as caught:
        onnx_aot.export(function, (torch.rand(4, 5, 3),), dynamic_shapes=shapes)
    assert "h.transpose(0, 1)." in str(caught[0].message)


def test_an_example_of_size_1_shows_another_model() -> None:
    with pytest.raises(DynamicShapeError, match="give an example with another size"):
        onnx_aot.export(contiguous, (torch.rand(1, 5, 3),), dynamic_shapes=({0: "n"},))


@pytest.mark.parametrize(
    ("function", "dim"), [(only_the_copy, "n"), (contiguous, Dim("n", min=2)), (contiguous, None)]
)
def test_copies_that_do_not_matter(function: Callable[..., Any], dim: Any) -> None:
    shapes = ({0: dim},)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        program = onnx_aot.export(function, (torch.rand(4, 5, 3),), dynamic_shapes=shapes)
    sizes = (4,) if dim is None else (2, 4) if function is contiguous else (1, 2, 4)
    for size in sizes:
        x = torch.rand(size, 5, 3)
        torch.testing.assert_close(program(x)[0], function(x))
