"""Questions about sizes that count as choices of the user's line."""

from __future__ import annotations

import heapq
import statistics
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.export import Dim
from torch.nn import functional
from torch.testing import assert_close

import onnx_aot
from onnx_aot.errors import OnnxExporterWarning

LENGTHS = (1, 2, 6, 7, 8, 9, 12, 33)


def rounded_up(x: Tensor) -> Tensor:
    """Numbers the windows as codecs do."""
    n = x.shape[0]
    windows = n // 4 + int(n % 4 > 0)
    return functional.pad(x, (0, windows * 4 - n)).view(windows, 4).sum(1)


def even(x: Tensor) -> Tensor:
    return functional.pad(x, (0, int(x.shape[0] % 2 == 1)))


def count(x: Tensor) -> Tensor:
    return x * sum(x.shape[0] > limit for limit in (4, 8))


def times(x: Tensor) -> Tensor:
    return x * (x.shape[0] * (x.shape[0] > 8))


def distance(x: Tensor) -> Tensor:
    return x * 2 if abs(x.shape[0] - 8) < 3 else x


@pytest.mark.parametrize("dim", ["n", Dim("n", min=1)], ids=["name", "Dim"])
@pytest.mark.parametrize("function", [rounded_up, even, count, times, distance])
def test_comparisons_that_are_numbers_are_right_at_other_sizes(
    function: Callable[[Tensor], Tensor], dim: Any
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        program = onnx_aot.export(function, (torch.randn(8),), dynamic_shapes=({0: dim},))
    for length in LENGTHS:
        x = torch.randn(length)
        assert_close(program(x)[0], function(x))


@pytest.mark.parametrize(
    "choose",
    [
        lambda n: min((4, 8, 16, 32), key=lambda size: abs(size - n)),
        lambda n: max((n, 1), (8, 2))[1],
        lambda n: heapq.nlargest(1, [n, 8])[0],
        lambda n: statistics.median([n, 8, 9]),
        lambda n: int(np.max([n, 9])),
        lambda n: int(np.sign(n - 8)),
        lambda n: int(np.searchsorted([4, 8, 16], n)),
    ],
)
def test_libraries_ask_for_the_user(choose: Callable[[Any], Any]) -> None:
    """Also those that are written in C, for which the file had the example's answer."""

    def scale(x: Tensor) -> Tensor:
        return x * choose(x.shape[0])

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", OnnxExporterWarning)
        program = onnx_aot.export(scale, (torch.randn(6),), dynamic_shapes=({0: "n"},))
    if any("branches on sizes" in str(warning.message) for warning in caught):
        return
    for length in LENGTHS[1:]:
        x = torch.randn(length)
        assert_close(program(x)[0], scale(x))


def test_a_bucket_of_two_sizes_is_warned_of() -> None:
    def resize(x: Tensor) -> Tensor:
        ratio = x.shape[0] / x.shape[1]
        size = min(((4, 4), (4, 8), (8, 4)), key=lambda each: abs(each[0] / each[1] - ratio))
        return functional.interpolate(x[None, None], size=size)

    shapes = ({0: Dim("h", min=1), 1: Dim("w", min=1)},)
    with pytest.warns(OnnxExporterWarning, match="branches on sizes"):
        onnx_aot.export(resize, (torch.rand(6, 8),), dynamic_shapes=shapes)


def test_a_default_for_size_1_is_warned_of_beside_branches() -> None:
    def largest_below(x: Tensor) -> Tensor:
        return x * max((k for k in (1, 4, 8) if k < x.shape[0]), default=0)

    with pytest.warns(OnnxExporterWarning, match="for size 1"):
        program = onnx_aot.export(largest_below, (torch.rand(6),), dynamic_shapes=({0: "n"},))
    for length in (2, 4, 5, 9, 33):
        x = torch.randn(length)
        assert_close(program(x)[0], largest_below(x))
