"""Cutting a dynamic dimension is right at every size, or names the line in an error or warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import onnx_aot
from onnx_aot.capture.sizes.piece_counts import is_unpacked
from onnx_aot.errors import DynamicShapeError, OnnxExporterWarning

N = {0: "n"}


def unpacked(x: Tensor) -> Tensor:
    a, b, c = x.chunk(3)
    return a.sum(0) + 2 * b.sum(0) + 3 * c.sum(0)


def unpacked_halves(x: Tensor) -> Tensor:
    first, second = x.split(x.shape[0] // 2)
    return first - second


def middle(x: Tensor) -> Tensor:
    return x.chunk(3)[1] * 2


def third_of_four(x: Tensor) -> Tensor:
    return x.chunk(4)[2] * 2


def last(x: Tensor) -> Tensor:
    return x.chunk(3)[-1] * 2


def last_half(x: Tensor) -> Tensor:
    return x.chunk(2)[-1] * 2


def second_half(x: Tensor) -> Tensor:
    return x.split(x.shape[0] // 2)[1] * 2


def halves_by_function(x: Tensor) -> Tensor:
    return torch.split(x, x.shape[0] // 2)[-1] * 2


def looped(x: Tensor) -> Tensor:
    return torch.stack([part.sum(0) for part in x.chunk(3)])


def pairs(x: Tensor) -> Tensor:
    return x.split(2)[-1] * 2


def starred(x: Tensor) -> Tensor:
    first, *rest = x.chunk(3)
    return first.sum(0) + len(rest)


def by_tensor_split(x: Tensor) -> Tensor:
    return x.tensor_split(3)[-1] * 2


def by_sizes(x: Tensor) -> Tensor:
    return x.split([2, x.shape[0] - 2])[-1] * 2


def _compare(program: Any, function: Callable[..., Any], sizes: Any) -> int:
    """Compares at the sizes that PyTorch accepts; returns their number."""
    compared = 0
    for size in sizes:
        x = torch.rand(size, 4)
        try:
            expected = function(x)
        except (ValueError, IndexError, RuntimeError):
            continue
        torch.testing.assert_close(program(x)[0], expected)
        compared += 1
    return compared


@pytest.mark.parametrize(
    ("function", "rows"),
    [
        (unpacked, 6),
        (unpacked, 7),
        (unpacked_halves, 6),
        (middle, 6),
        (third_of_four, 8),
        (looped, 6),
        (by_tensor_split, 6),
        (by_sizes, 6),
    ],
)
def test_right_wherever_pytorch_is(function: Callable[..., Any], rows: int) -> None:
    """Other numbers of pieces than the example's are errors in PyTorch too."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = onnx_aot.export(function, (torch.rand(rows, 4),), dynamic_shapes=(N,))
    assert _compare(program, function, range(1, 20)) >= 9


EVEN = "2*torch.export.Dim('_n', min=1)"


@pytest.mark.parametrize(
    ("function", "count", "sizes", "shown", "narrower", "limit"),
    [
        (last, 3, "1, 2, 4", "torch.export.Dim('n', min=5)", Dim("n", min=5), 20),
        (starred, 3, "1, 2, 4", "torch.export.Dim('n', min=5)", Dim("n", min=5), 20),
        (second_half, 2, "3, 5, 7", EVEN, 2 * Dim("_n", min=1), 20),
        (
            halves_by_function,
            2,
            "3, 5, 7",
            "2*torch.export.Dim('_n', min=1)",
            2 * Dim("_n", min=1),
            20,
        ),
        (pairs, 3, "1, 2, 3", "torch.export.Dim('n', min=5, max=6)", Dim("n", min=5, max=6), 8),
    ],
)
@pytest.mark.parametrize("given", ["n", Dim("n")])
def test_other_numbers_of_pieces_are_refused(
    function: Callable[..., Any],
    count: int,
    sizes: str,
    shown: str,
    narrower: Any,
    limit: int,
    given: Any,
) -> None:
    x = torch.rand(6, 4)
    with pytest.raises(DynamicShapeError, match=f"cut into {count} pieces") as caught:
        onnx_aot.export(function, (x,), dynamic_shapes=({0: given},))
    text = str(caught.value)
    assert f"as sizes such as {sizes} are not" in text
    assert f"at {__file__}:" in text
    assert "tensor_split" in text
    assert f"write {shown} for it" in text
    program = onnx_aot.export(function, (x,), dynamic_shapes=({0: narrower},))
    assert _compare(program, function, range(6, limit, 2)) == (limit - 6) // 2


def test_a_range_that_gives_the_pieces_is_accepted() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shapes = ({0: Dim("n", min=5)},)
        program = onnx_aot.export(last, (torch.rand(6, 4),), dynamic_shapes=shapes)
    assert _compare(program, last, range(5, 20)) == 15


def test_a_static_dimension_may_be_cut() -> None:
    def of_columns(x: Tensor) -> Tensor:
        return x.chunk(2, dim=1)[-1] * 2

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = onnx_aot.export(of_columns, (torch.rand(6, 4),), dynamic_shapes=(N,))
    assert _compare(program, of_columns, range(8)) == 8


def test_pieces_that_only_size_1_lacks_are_warned_of() -> None:
    x = torch.rand(6, 4)
    with pytest.warns(OnnxExporterWarning, match=r"cut into 2 pieces\), for size 1"):
        program = onnx_aot.export(last_half, (x,), dynamic_shapes=(N,))
    assert _compare(program, last_half, range(2, 9)) == 7


def test_pieces_that_size_1_lacks_in_pytorch_too() -> None:
    def halves(x: Tensor) -> Tensor:
        found = x.chunk(2)
        return found[0].sum(0) - found[1].sum(0)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = onnx_aot.export(halves, (torch.rand(6, 4),), dynamic_shapes=(N,))
    assert _compare(program, halves, range(2, 9)) == 7


@pytest.mark.parametrize("given", [N, {0: Dim.AUTO}])
def test_other_numbers_of_pieces_are_accepted_if_asked(given: Any) -> None:
    x = torch.rand(6, 4)
    with pytest.warns(OnnxExporterWarning, match="cut into 3 pieces"):
        program = onnx_aot.export(last, (x,), dynamic_shapes=(given,), on_specialized="warn")
    torch.testing.assert_close(program(x)[0], last(x))


def test_calls_whose_results_are_unpacked() -> None:
    found = []

    def cut() -> tuple[int, int]:
        found.append(is_unpacked(sys._getframe().f_back))
        return 1, 2

    _, _ = cut()
    _ = [piece for piece in cut()]  # noqa: C416
    _ = cut()[0]
    assert found == [True, False, False]
