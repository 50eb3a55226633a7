"""A write is refused whose effect depends on whether ``reshape`` copies for these sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import onnx_aot
from onnx_aot.errors import FunctionalizationError
from tests.tolerances import assert_close

Tensor = torch.Tensor

# At size 1, all of them share memory, as a warning says.
pytestmark = pytest.mark.filterwarnings("ignore:the model's code branches on sizes")


def reshaped(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    z = y.reshape(y.shape[1], -1)
    y.add_(5)
    return y, z


def copied(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    z = y.clone().reshape(y.shape[1], -1)
    y.add_(5)
    return y, z


def viewed(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    z = y.view(y.shape)
    y.add_(5)
    return y, z


def flattened(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.t() * 2
    z = y.t().flatten()
    z.add_(5)
    return y, z


@pytest.fixture
def square() -> Tensor:
    return torch.arange(9.0).reshape(3, 3).t()


def test_a_reshape_that_may_copy(square: Tensor) -> None:
    with pytest.raises(FunctionalizationError, match="that reshape may or may not copy") as caught:
        onnx_aot.export(reshaped, (square,), dynamic_shapes=({0: "n", 1: "m"},))
    assert f"{__file__}:{reshaped.__code__.co_firstlineno + 2}" in str(caught.value)


@pytest.mark.parametrize("function", [reshaped, copied, viewed, flattened])
def test_sizes_that_are_equal_and_both_edits_that_the_error_names(
    square: Tensor, function: Callable[[Tensor], tuple[Tensor, Tensor]]
) -> None:
    program = onnx_aot.export(function, (square,), dynamic_shapes=({0: "n", 1: "n"},))
    for size in (3, 5):
        x = torch.rand(size, size).t()
        for actual, expected in zip(program(x), function(x), strict=True):
            assert_close(actual, expected)


def test_memory_that_is_not_read_again() -> None:
    """For batch 1, ``flatten`` is a view of what nothing reads afterwards."""

    def scaled(x: Tensor) -> Tensor:
        y = (x + 1).mT.flatten(0, 1)
        return y.mul_(2).exp()

    shape = {0: "batch", 2: "frames"}
    program = onnx_aot.export(scaled, (torch.rand(1, 3, 4),), dynamic_shapes=(shape,))
    for x in (torch.rand(1, 3, 4), torch.rand(2, 3, 5)):
        assert_close(program(x)[0], scaled(x))


def test_sizes_that_do_not_vary(square: Tensor) -> None:
    program = onnx_aot.export(reshaped, (square,))
    for actual, expected in zip(program(square), reshaped(square), strict=True):
        assert_close(actual, expected)


def test_an_input_that_flatten_copies_at_other_sizes_too() -> None:
    """The capture may need an example of other sizes, which has the layout of this one."""

    def doubled(x: Tensor) -> tuple[Tensor, Tensor]:
        flat = x.flatten()
        flat.mul_(2)
        return flat, x

    shapes = ({0: torch.export.Dim("n", min=0), 1: torch.export.Dim("m", min=0)},)
    program = onnx_aot.export(doubled, (torch.rand(6, 4).t(),), dynamic_shapes=shapes)
    for sizes in ((6, 4), (5, 3)):
        x = torch.rand(sizes).t()
        for one, other in zip(program(x.clone()), doubled(x), strict=True):
            assert_close(one, other)


def ends(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    z = y[:, -2:].contiguous()
    y.add_(5)
    return y, z


def flat_ends(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    z = y[:, -2:].reshape(-1, 3)
    y.add_(5)
    return y, z


@pytest.mark.parametrize("function", [ends, flat_ends])
@pytest.mark.parametrize("dim", ["n", torch.export.Dim("n", min=1), torch.export.Dim.AUTO])
def test_a_slice_that_is_everything_at_small_sizes(
    function: Callable[[Tensor], tuple[Tensor, Tensor]], dim: object
) -> None:
    with pytest.raises(FunctionalizationError, match="may or may not copy"):
        onnx_aot.export(function, (torch.rand(2, 6, 3),), dynamic_shapes=({1: dim},))


@pytest.mark.parametrize("function", [ends, flat_ends])
def test_a_slice_that_is_a_part_at_all_sizes(
    function: Callable[[Tensor], tuple[Tensor, Tensor]],
) -> None:
    dim = torch.export.Dim("n", min=3)
    program = onnx_aot.export(function, (torch.rand(2, 6, 3),), dynamic_shapes=({1: dim},))
    for size in (6, 3, 9):
        x = torch.rand(2, size, 3)
        for actual, expected in zip(program(x), function(x), strict=True):
            assert_close(actual, expected)
