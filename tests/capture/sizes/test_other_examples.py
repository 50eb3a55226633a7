"""Captures with inputs of other sizes than the example's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import onnx_aot
from onnx_aot.capture.inputs import Inputs
from onnx_aot.capture.program_inputs import arguments_of_program
from onnx_aot.capture.sizes.dynamic_shapes import resolve_dynamic_shapes
from onnx_aot.capture.sizes.other_examples import describe_other_inputs, make_other_inputs
from onnx_aot.errors import DynamicShapeError


def shortcut_for_one(x: Tensor) -> Tensor:
    if x.shape[0] == 1:
        return (x[0] * 2).unsqueeze(0)
    return x * 2


def shortcut_below_two(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] > 1 else (x[0] * 2)[None]


class StoredSize(nn.Module):
    """Keeps a table for one resolution, and computes it for others."""

    def __init__(self) -> None:
        super().__init__()
        self.resolution = (8, 8)
        self.table = nn.Buffer(self.compute(8, 8))

    @staticmethod
    def compute(height: int, width: int) -> Tensor:
        return torch.arange(height)[:, None] + torch.arange(width).float()

    def forward(self, x: Tensor) -> Tensor:
        size = tuple(x.shape[-2:])
        return x + (self.table if size == self.resolution else self.compute(*size))


class StoredSizeAndBatch(StoredSize):
    """Is refused for its resolution, and limits the batch only as captured for another one."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        y = self.dropout(super().forward(x))
        return y[0][None] * 1.0 if y.shape[0] == 1 else y


def equal_by_chance(x: Tensor, y: Tensor) -> Tensor:
    if x.shape[0] == y.shape[0]:
        return torch.cat([x, y]).mean(0, keepdim=True)
    return torch.cat([x, y]).mean(0, keepdim=True) * 1.0


def square(x: Tensor) -> Tensor:
    return x.mT.mT + 1 if x.shape[1] == x.shape[2] else x + 1


def two_of_one_name(x: Tensor, other: list[Tensor]) -> Tensor:
    return x + other[0] if x.shape[0] != 1 else (x[0] + other[0][0])[None]


def floats(*sizes: int) -> Tensor:
    return torch.arange(float(torch.tensor(sizes).prod())).reshape(sizes) / 7


CASES: dict[str, tuple[Any, Callable[..., tuple[Any, ...]], Any, Any]] = {
    "one": (shortcut_for_one, lambda n: (floats(n, 3),), ({0: "n"},), (1,)),
    "one, a Dim": (shortcut_for_one, lambda n: (floats(n, 3),), ({0: Dim("n")},), (1,)),
    "one, up to 4": (shortcut_for_one, lambda n: (floats(n, 3),), ({0: Dim("n", max=4)},), (1,)),
    "one, a hint": (shortcut_for_one, lambda n: (floats(n, 3),), ({0: Dim.DYNAMIC},), (1,)),
    "one, a bound": (shortcut_below_two, lambda n: (floats(n, 3),), ({0: "n"},), (1,)),
    "a stored size": (
        StoredSize(),
        lambda n: (floats(1, n + 7, n + 7),),
        ({0: "b", 1: "h", 2: "w"},),
        (1,),
    ),
    "a stored size, and one": (
        StoredSizeAndBatch(),
        lambda n: (floats(n, n + 7, n + 7),),
        ({0: "b", 1: "h", 2: "w"},),
        (1,),
    ),
    "equal by chance": (
        equal_by_chance,
        lambda n: (floats(4, 3), floats(3 + n, 3)),
        ({0: "n"}, {0: "m"}),
        (1,),
    ),
    "a square": (square, lambda n: (floats(2, 4, 3 + n),), ({1: "h", 2: "w"},), (1,)),
    "one name twice": (
        two_of_one_name,
        lambda n: (floats(n, 3), [floats(n, 3)]),
        ({0: "n"}, [{0: "n"}]),
        (1,),
    ),
}


@pytest.mark.parametrize(("model", "make", "shapes", "example"), CASES.values(), ids=CASES.keys())
def test_the_size_of_the_example_fixes_nothing(
    model: Any, make: Any, shapes: Any, example: Any
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = onnx_aot.export(model, make(*example), dynamic_shapes=shapes, verify=True)
    assert "instead of" in program.report.to_markdown()
    for size in (1, 2, 3, 4):
        inputs = make(size)
        torch.testing.assert_close(program(*inputs)[0], model(*inputs))


@pytest.mark.parametrize("model", [shortcut_for_one, shortcut_below_two])
def test_runtime_checks_accept_the_example(model: Any) -> None:
    program = onnx_aot.export(
        model, (floats(1, 3),), dynamic_shapes=({0: "n"},), runtime_checks=True
    )
    for size in (1, 2, 5):
        torch.testing.assert_close(program(floats(size, 3))[0], floats(size, 3) * 2)


def test_the_range_includes_the_example() -> None:
    program = onnx_aot.export(
        shortcut_below_two, (floats(1, 3),), dynamic_shapes=({0: Dim("n", max=9)},)
    )
    captured = program.exported_program
    assert captured is not None
    (limits,) = captured.range_constraints.values()
    assert (int(limits.lower), int(limits.upper)) == (1, 9)


def shortcut_and_noise(x: Tensor) -> Tensor:
    y = x + torch.rand_like(x)
    return (y[0] * 2).unsqueeze(0) if x.shape[0] == 1 else y * 2


def other_noise_for_one(x: Tensor) -> Tensor:
    y = x + torch.rand_like(x)
    return (y[0] * 3).unsqueeze(0) if x.shape[0] == 1 else y * 2


def test_random_numbers_are_drawn_from_one_state() -> None:
    """The captured program draws as the model does, so their results are comparable."""
    program = onnx_aot.export(
        shortcut_and_noise, (torch.ones(1, 3),), dynamic_shapes=({0: "n"},), seed=0
    )
    for size in (1, 2, 5):
        (y,) = program(torch.ones(size, 3))
        assert y.shape == (size, 3)
        assert 2 <= y.min() < y.max() <= 4
    with pytest.raises(DynamicShapeError, match=r"axis 0 \('n'\): fixed at 1"):
        onnx_aot.export(other_noise_for_one, (torch.ones(1, 3),), dynamic_shapes=({0: "n"},))


def differs_for_one(x: Tensor) -> Tensor:
    return x * 3 if x.shape[0] == 1 else x * 2


def sums_below(x: Tensor) -> Tensor:
    if x.shape[0] == 4:
        return x * 2
    return x * 2 if x.shape[0] > 6 else x * 3


def needs_four(x: Tensor) -> Tensor:
    return x + torch.ones(4, 1)


@pytest.mark.parametrize(
    ("model", "rows"), [(differs_for_one, 1), (sums_below, 4), (needs_four, 4)]
)
def test_a_size_that_is_treated_differently_stays_an_error(model: Any, rows: int) -> None:
    """The error is about the user's sizes and names the line."""
    with pytest.raises(DynamicShapeError, match=rf"axis 0 \('n'\): fixed at {rows}") as caught:
        onnx_aot.export(model, (floats(rows, 3),), dynamic_shapes=({0: "n"},))
    assert f"in {model.__name__}" in str(caught.value)


class Hidden(nn.Module):
    """Treats one row differently without asking for its size."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] == 4:
            x = x * 1
        return x * (1 + torch.ones(x.shape[0]).sum().eq(1).float())


def test_results_are_compared_with_the_models() -> None:
    """The second capture is kept only if it is right for the user's example."""
    program = onnx_aot.export(Hidden(), (floats(4, 3),), dynamic_shapes=({0: "n"},))
    for size in (1, 2, 4):
        torch.testing.assert_close(program(floats(size, 3))[0], Hidden()(floats(size, 3)))


def test_a_model_without_values_is_not_compared() -> None:
    model = StoredSize()
    with pytest.raises(DynamicShapeError, match="fixed at 8"):
        onnx_aot.export(
            model.to("meta"),
            (torch.rand(1, 8, 8, device="meta"),),
            dynamic_shapes=({1: "h", 2: "w"},),
        )


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ({"x": {0: "n"}}, {"x": (2, 3)}),
        ({"x": {0: "n"}, "y": {1: "n"}}, {"x": (2, 3), "y": (6, 2)}),
        ({"x": {0: "n"}, "y": {0: 6 * Dim("n")}}, {"x": (2, 3), "y": (12, 1)}),
        ({"x": {0: "n"}, "y": {0: "n + 5"}}, {"x": (2, 3), "y": (7, 1)}),
        ({"x": {0: Dim("n", max=1)}}, None),
        ({"x": {1: "n"}, "y": {0: "m"}}, {"x": (1, 9)}),
    ],
)
def test_sizes_of_other_inputs(shapes: Any, expected: dict[str, tuple[int, ...]] | None) -> None:
    """The first requested dimension changes; a size that another one has is not taken."""
    inputs = Inputs((torch.rand(1, 3), torch.rand(6, 1)), {})
    program = torch.export.export(_Two(), inputs.args)
    requested = resolve_dynamic_shapes(arguments_of_program(program), shapes, None, (), ())
    others = make_other_inputs(inputs, requested, requested.requested[:1])
    if expected is None:
        assert others is None
        return
    assert others is not None
    given = dict(zip("xy", (tuple(t.shape) for t in others.args), strict=True))
    assert given == {"x": (1, 3), "y": (6, 1), **expected}
    assert len(describe_other_inputs(inputs, others, requested)) >= 1


class _Two(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


@pytest.mark.parametrize("last", [1, 5])
def test_a_size_of_1_that_broadcasts_is_fixed_if_it_is_left_to_the_model(last: int) -> None:
    x, y = torch.rand(1, last), torch.rand(4, 5)
    shapes = (dict.fromkeys(range(2), Dim.AUTO),) * 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = onnx_aot.export(torch.sub, (x, y), dynamic_shapes=shapes)
    assert str(program.model.graph.inputs[0].shape[0]) == "1"
    for rows in (4, 2, 7):
        y = torch.rand(rows, 5)
        torch.testing.assert_close(program(x, y)[0], x - y)


def test_the_example_is_checked_as_it_is_exported() -> None:
    """The model takes all steps while it is exported, and fewer for its example otherwise."""

    def climb(x: Tensor) -> Tensor:
        for _ in range(4):
            x = shortcut_for_one(x)
            if not onnx_aot.is_in_onnx_export() and bool((x > 3).all()):
                break
        return x

    program = onnx_aot.export(climb, (torch.ones(1, 3),), dynamic_shapes=({0: "n"},))
    assert climb(torch.ones(1, 3))[0, 0] == 4
    for n in (1, 2, 5):
        torch.testing.assert_close(program(torch.ones(n, 3))[0], torch.full((n, 3), 16.0))
