"""A squeezed dimension keeps the rank of the example, or is named in a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import onnx_aot
from onnx_aot.errors import DynamicShapeError, OnnxExporterWarning


def first(x: Tensor) -> Tensor:
    return x.squeeze(0) * 2


def every(x: Tensor) -> Tensor:
    return x.squeeze() * 2


def second(x: Tensor) -> Tensor:
    return x.squeeze(1) * 2


def beside_a_reshape(x: Tensor) -> Tensor:
    return x.squeeze(0) + x.reshape(-1, x.shape[0]).sum()


def flattened(x: Tensor) -> Tensor:
    return x[:, :1].flatten().squeeze(0) * 2


def behind_a_slice(x: Tensor) -> Tensor:
    return x[1:].squeeze(0) * 2


def behind_a_slice_from_the_end(x: Tensor) -> Tensor:
    """One row at every size but 0 and 1, which the capture cannot tell."""
    row = x[-2:-1]
    return row.squeeze(0) + row.expand(1, 3).sum()


def before_a_limit(x: Tensor) -> Tensor:
    return x.squeeze(0) * 2 + x.expand(1, 3).sum()


class Squeezing(torch.nn.Module):
    """Calls a function; torch 2.12 records lines of modules only."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.parametrize("function", [first, every, beside_a_reshape, before_a_limit, flattened])
def test_a_size_of_1_that_is_left_to_the_model_is_fixed(function: Callable[..., Tensor]) -> None:
    x = torch.rand(1, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = onnx_aot.export(function, (x,), dynamic_shapes=({0: Dim.AUTO},))
    torch.testing.assert_close(program(x)[0], function(x))


def test_a_product_of_sizes_of_1_that_are_left_to_the_model_is_fixed() -> None:
    x = torch.rand(1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = onnx_aot.export(
            lambda x: x.flatten().squeeze(0) * 2, (x,), dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO},)
        )
    torch.testing.assert_close(program(x)[0], x[0, 0] * 2)


def test_other_dimensions_of_size_1_stay_dynamic() -> None:
    x = torch.rand(1, 1, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = onnx_aot.export(second, (x,), dynamic_shapes=({0: "n", 1: Dim.AUTO},))
    for size in (0, 1, 2, 5):
        x = torch.rand(size, 1, 3)
        torch.testing.assert_close(program(x)[0], second(x))


@pytest.mark.parametrize("function", [first, every, beside_a_reshape])
@pytest.mark.parametrize("given", ["n", Dim.AUTO])
def test_a_dynamic_dimension_is_warned_of(function: Callable[..., Tensor], given: object) -> None:
    x, model = torch.rand(4, 3), Squeezing(function)
    with pytest.warns(OnnxExporterWarning, match="squeeze removes dimensions of size 1") as caught:
        program = onnx_aot.export(model, (x,), dynamic_shapes=({0: given},))
    text = str(caught[0].message)
    assert f" at {__file__}:" in text
    assert "torch.export.Dim(name, min=2)" in text
    for size in (2, 4, 7):
        torch.testing.assert_close(program(x := torch.rand(size, 3))[0], function(x))


@pytest.mark.parametrize("asks", [lambda n: n > 1, lambda n: n != 1], ids=["larger", "other"])
@pytest.mark.parametrize("given", ["n", Dim("n"), Dim.AUTO], ids=["name", "dim", "auto"])
def test_a_choice_that_excludes_1_does_not_hide_the_squeeze(
    given: object, asks: Callable[[int], bool]
) -> None:
    """Both ways are equal at size 1, so that the choice itself is no reason to warn or refuse."""

    def model(x: Tensor) -> Tensor:
        doubled = x * 2 if asks(x.shape[0]) else x + x
        return doubled.squeeze().softmax(0)

    with pytest.warns(OnnxExporterWarning, match="squeeze removes dimensions of size 1"):
        onnx_aot.export(model, (torch.rand(4, 3),), dynamic_shapes=({0: given},))


def test_a_model_that_refuses_1_needs_no_warning() -> None:
    def model(x: Tensor) -> Tensor:
        if x.shape[0] < 2:
            raise ValueError("two rows are needed")
        return x.squeeze().softmax(0)

    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        onnx_aot.export(model, (torch.rand(4, 3),), dynamic_shapes=({0: "n"},))


@pytest.mark.parametrize("function", [first, every, beside_a_reshape])
def test_a_range_without_1_needs_no_warning(function: Callable[..., Tensor]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shapes = ({0: Dim("n", min=2)},)
        program = onnx_aot.export(function, (torch.rand(4, 3),), dynamic_shapes=shapes)
    for size in (2, 4, 7):
        torch.testing.assert_close(program(x := torch.rand(size, 3))[0], function(x))


@pytest.mark.parametrize("function", [first, every])
def test_a_named_dimension_that_is_1_is_refused(function: Callable[..., Tensor]) -> None:
    """The model captured with another size keeps the axis that the example's result lacks."""
    with pytest.raises(DynamicShapeError, match="squeezed, which removes it at the example's size"):
        onnx_aot.export(Squeezing(function), (torch.rand(1, 3),), dynamic_shapes=({0: "n"},))


def test_a_named_dimension_that_is_1_becomes_static_on_request() -> None:
    x = torch.rand(1, 3)
    with pytest.warns(OnnxExporterWarning, match=r"x, axis 0 \('n'\) is squeezed"):
        program = onnx_aot.export(
            Squeezing(first), (x,), dynamic_shapes=({0: "n"},), on_specialized="warn"
        )
    torch.testing.assert_close(program(x)[0], first(x))


def test_a_computed_size_that_is_1_keeps_the_rank_of_the_example() -> None:
    """The model may fix the dimension, and would have another rank at the example itself."""
    for function in (behind_a_slice, behind_a_slice_from_the_end):
        x = torch.rand(2, 3)
        program = onnx_aot.export(function, (x,), dynamic_shapes=({0: Dim.AUTO},))
        torch.testing.assert_close(program(x)[0], function(x))


def test_a_named_dimension_of_a_computed_size_that_is_1_is_refused() -> None:
    what = r"part of a size that is squeezed, which removes an axis at the example's x.shape\[0\]"
    with pytest.raises(DynamicShapeError, match=what) as caught:
        onnx_aot.export(behind_a_slice, (torch.rand(2, 3),), dynamic_shapes=({0: "n"},))
    assert f"at {__file__}:" in str(caught.value)
    assert caught.value.places[0].function == "behind_a_slice"
    with pytest.warns(OnnxExporterWarning, match="squeeze removes dimensions of size 1"):
        program = onnx_aot.export(behind_a_slice, (torch.rand(4, 3),), dynamic_shapes=({0: "n"},))
    torch.testing.assert_close(program(x := torch.rand(7, 3))[0], behind_a_slice(x))


@pytest.mark.parametrize("dim", [Dim.AUTO, Dim.DYNAMIC], ids=["auto", "dynamic"])
def test_a_slice_of_one_leaves_its_dimension_dynamic(dim: object) -> None:
    """Beside an answer that is wrong for empty tensors, for which sizes count from zero."""

    def forward(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x[x > 0], y[:, :1].squeeze(1) * 2

    example = (torch.randn(4, 5), torch.randn(3, 6))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OnnxExporterWarning)
        program = onnx_aot.export(forward, example, dynamic_shapes=({0: dim}, {0: dim, 1: dim}))
    for rows, columns in ((3, 6), (1, 1), (5, 2)):
        given = torch.randn(4, 5), torch.randn(rows, columns)
        for one, two in zip(program(*given), forward(*given), strict=True):
            torch.testing.assert_close(one, two)
