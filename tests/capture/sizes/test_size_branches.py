"""Exporting a model that branches on sizes gives a warning that names the line."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import onnx_aot
from onnx_aot.errors import OnnxExporterWarning


def larger(x: Tensor) -> Tensor:
    if x.shape[0] > 4:
        return x * 2
    return x


def rounded(x: Tensor) -> Tensor:
    even = (x.shape[0] + 1) // 2 * 2
    if even != x.shape[0]:
        x = torch.nn.functional.pad(x, (0, 0, 0, 1))
    return x.reshape(even // 2, 2, 3)


def of_two_sizes(x: Tensor) -> Tensor:
    return x if x.shape[0] < x.shape[1] * 5 else x + 1


def refuses(x: Tensor) -> Tensor:
    if x.shape[0] > 100:
        raise ValueError("too long")
    assert x.shape[0] < 1000
    return x + 1


def one_or_more(x: Tensor) -> Tensor:
    return x.sum(0) if x.shape[0] > 1 else x[0]


def always(x: Tensor) -> Tensor:
    return x + 1 if x.shape[0] >= 0 else x


N = {0: "n"}
BOTH = {0: "n", 1: "m"}


@pytest.mark.parametrize(
    ("function", "shapes", "line"),
    [
        (larger, N, "if x.shape[0] > 4:"),
        (rounded, N, "if even != x.shape[0]:"),
        (of_two_sizes, BOTH, "return x if x.shape[0] < x.shape[1] * 5 else x + 1"),
    ],
)
def test_the_line_is_named(function: Callable[..., Any], shapes: Any, line: str) -> None:
    x = torch.rand(8, 3)
    with pytest.warns(OnnxExporterWarning, match="code branches on sizes") as caught:
        program = onnx_aot.export(function, (x,), dynamic_shapes=(shapes,))
    text = str(caught[0].message)
    assert f"`{line}` at {__file__}:" in text
    assert "runtime_checks=True" in text
    torch.testing.assert_close(program(x)[0], function(x))


@pytest.mark.parametrize(
    ("function", "shapes"),
    [(refuses, N), (one_or_more, N), (always, N), (larger, {0: Dim("n", min=5)})],
)
def test_what_is_right_at_every_size(function: Callable[..., Any], shapes: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        onnx_aot.export(function, (torch.rand(8, 3),), dynamic_shapes=(shapes,))


def _two_reasons(x: Tensor) -> Tensor:
    if x.shape[10] // 2 == 4:  # holds around the example: axis 10 has its own warning
        x = x + 1
    if x.shape[1] > 4:
        x = x * 2
    return x


def test_axis_1_is_not_axis_10() -> None:
    x = torch.rand(1, 6, *[1] * 8, 8)
    with pytest.warns(OnnxExporterWarning) as caught:
        onnx_aot.export(_two_reasons, (x,), dynamic_shapes=({1: "n", 10: "m"},))
    texts = [str(warning.message) for warning in caught]
    (limited,) = [text for text in texts if "behaves differently for" in text]
    (chosen,) = [text for text in texts if "branches on sizes" in text]
    assert "x, axis 10" in limited
    assert "if x.shape[1] > 4:" in chosen
    assert "shape[10]" not in chosen


def test_a_number_is_warned_of_beside_another_warning() -> None:
    def scaled(x: Tensor, n: int) -> Tensor:
        y = x[: x.shape[0] // 2 * 2] if x.shape[0] // 2 == 4 else x
        return y * 2 if n > 4 else y

    with pytest.warns(OnnxExporterWarning) as caught:
        onnx_aot.export(scaled, (torch.rand(8, 3), 7), dynamic_shapes=({0: "rows"}, "n"))
    assert any("if n > 4" in str(warning.message) for warning in caught)
