"""Functions that read data: ``onnx_aot/capture/patches/functions.py``."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

import onnx_aot
from onnx_aot.errors import DynamicShapeError, OnnxExporterWarning
from tests.tolerances import assert_close

Tensor = torch.Tensor

bound_early = torch.equal

ANSWERS: dict[str, Callable[[Tensor, Tensor], bool]] = {
    "equal": bound_early,
    "a method": Tensor.equal,
    "another rank": lambda x, y: torch.equal(x[None], y),
    "allclose": torch.allclose,
    "allclose by a method": lambda x, y: x.allclose(y, rtol=0, atol=0.2),
    "equal NaN": lambda x, y: torch.allclose(x, y, equal_nan=True),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_returned(name: str) -> None:
    answer = ANSWERS[name]

    def forward(x: Tensor, y: Tensor) -> tuple[bool, Tensor]:
        return answer(x, y), x + y

    x = torch.ones(3)
    program = onnx_aot.export(forward, (x, x.clone()), dynamic_shapes=({0: "n"}, {0: "n"}))
    for other in (x, x + 0.1, torch.tensor([1.0, 1.0, math.nan]), torch.ones(0), torch.ones(5)):
        mine = x if len(other) == 3 else other.clone()
        for first, second in ((mine, other), (other, other)):
            assert bool(program(first, second)[0]) == answer(first, second)


def test_equal_decides_a_cond() -> None:
    def forward(x: Tensor, y: Tensor) -> Tensor:
        chosen: Tensor = torch.cond(
            torch.equal(x, y), lambda a, b: a * 1, lambda a, b: a + b, (x, y)
        )
        return chosen

    x, y = torch.ones(3), torch.zeros(3)
    program = onnx_aot.export(forward, (x, y))
    for other in (x, y):
        torch.testing.assert_close(program(x, other)[0], forward(x, other))


def test_a_branch_on_equal() -> None:
    def forward(x: Tensor, y: Tensor) -> Tensor:
        return x if torch.equal(x, y) else x + y

    x, y = torch.ones(3), torch.zeros(3)
    program = onnx_aot.export(forward, (x, x))
    for other in (x, y):
        torch.testing.assert_close(program(x, other)[0], forward(x, other))


def diagonal_of_products(x: Tensor) -> Tensor:
    scores = x @ x.T
    scores.fill_diagonal_(float("-inf"))
    return scores.softmax(-1)


def diagonal_of_a_view(x: Tensor) -> Tensor:
    both = x.new_zeros(2, x.shape[0], 5)
    both[1].fill_diagonal_(3)
    return both


def diagonal_of_a_cube(x: Tensor) -> Tensor:
    n = x.shape[0]
    return torch.zeros(n, n, n).fill_diagonal_(2.0)


@pytest.mark.parametrize("forward", [diagonal_of_products, diagonal_of_a_view, diagonal_of_a_cube])
def test_diagonal_of_a_dynamic_size(forward: Callable[[Tensor], Tensor]) -> None:
    program = onnx_aot.export(forward, (torch.randn(4, 6),), dynamic_shapes=({0: "n"},))
    for rows in (4, 3, 7, 2):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(program(x)[0], forward(x))


def narrow_and_write(x: Tensor, start: Tensor) -> Tensor:
    x = x.clone()
    x.narrow(1, start, 2).mul_(2)
    return x


@pytest.mark.parametrize(
    "forward",
    [
        lambda x, start: Tensor.narrow(x, 1, start, 2),
        lambda x, start: torch.narrow(x, dim=1, start=start, length=2),
        lambda x, start: torch.narrow(x, 1, 1, 2) + start,
        narrow_and_write,
    ],
)
def test_narrow_from_a_start_in_a_tensor(forward: Callable[[Tensor, Tensor], Tensor]) -> None:
    x = torch.arange(24.0).reshape(4, 6)
    program = onnx_aot.export(forward, (x, torch.tensor(1)), dynamic_shapes=({0: "n"}, {}))
    for rows, start in ((4, 1), (1, 0), (2, 4), (4, -3)):
        arguments = x[:rows], torch.tensor(start)
        torch.testing.assert_close(program(*arguments)[0], forward(*arguments))


def test_narrow_to_a_length_in_a_tensor() -> None:
    def forward(x: Tensor, lengths: Tensor) -> Tensor:
        if (lengths > 3).any():
            return x.narrow(-1, 0, lengths.max()).sum(-1)
        return x.sum(-1)

    x = torch.randn(2, 8)
    program = onnx_aot.export(forward, (x, torch.tensor([2, 5])))
    for numbers in ([2, 5], [1, 2], [7, 1]):
        lengths = torch.tensor(numbers)
        torch.testing.assert_close(program(x, lengths)[0], forward(x, lengths))


@pytest.mark.parametrize(
    "forward",
    [
        lambda mask, x: torch.where(mask, x, 2 * x),
        lambda mask, x: torch.where(mask, input=x, other=0.5),
        lambda mask, x: x.where(mask, 0.5),
        lambda mask, x: torch.where(mask)[0] + x.shape[0],
    ],
)
@pytest.mark.filterwarnings("ignore:where received a uint8 condition")
def test_a_mask_of_uint8(forward: Callable[[Tensor, Tensor], Tensor]) -> None:
    x, mask = torch.arange(1.0, 7.0), torch.tensor([0, 1, 2, 0, 255, 1], dtype=torch.uint8)
    program = onnx_aot.export(forward, (mask, x), dynamic_shapes=({0: "n"}, {0: "n"}))
    for count in (6, 1, 0):
        arguments = mask[:count], x[:count]
        torch.testing.assert_close(program(*arguments)[0], forward(*arguments))


@pytest.mark.parametrize(
    "forward",
    [
        lambda mask, x: x[mask] + x.shape[0],
        lambda mask, x: torch.stack([x, 2 * x])[:, mask],
    ],
)
@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_an_index_of_uint8(forward: Callable[[Tensor, Tensor], Tensor]) -> None:
    x, mask = torch.arange(1.0, 7.0), torch.tensor([0, 1, 2, 0, 255, 1], dtype=torch.uint8)
    program = onnx_aot.export(forward, (mask, x), dynamic_shapes=({0: "n"}, {0: "n"}))
    for count in (6, 3, 1):
        arguments = mask[:count], x[:count]
        torch.testing.assert_close(program(*arguments)[0], forward(*arguments))


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: x * x.new_tensor([x.shape[1] / 2, 1.5])[0],
        lambda x: x + x.new_tensor([[x.shape[1], 2], [3, x.shape[0]]], dtype=torch.int32).sum(),
        lambda x: x * x.new_tensor(x.shape[1]),
        lambda x: x * torch.tensor(data=x.shape[1] / 2, dtype=x.dtype),
        lambda x: x * torch.tensor(data=[0.5])[0] * x.shape[1],
    ],
)
def test_tensors_of_sizes(forward: Callable[[Tensor], Tensor]) -> None:
    program = onnx_aot.export(forward, (torch.rand(2, 6),), dynamic_shapes=({1: "n"},))
    for count in (6, 5, 1):
        x = torch.rand(2, count)
        assert_close(program(x)[0], forward(x))


@pytest.mark.filterwarnings("ignore:Using torch.cross without specifying the dim arg")
def test_cross_without_a_dimension() -> None:
    """It is along the first axis of size 3, which is another one for 3 rows."""

    def forward(x: Tensor) -> Tensor:
        return torch.cross(x, x.flip(1) + 1)

    shapes = ({0: "n"},)
    with pytest.warns(OnnxExporterWarning, match=r"branches on sizes.*torch\.cross"):
        program = onnx_aot.export(forward, (torch.rand(4, 3),), dynamic_shapes=shapes)
    for count in (1, 2, 4, 7):
        x = torch.rand(count, 3)
        assert_close(program(x)[0], forward(x))
    with pytest.raises(DynamicShapeError, match=r"give torch\.cross the dimension"):
        onnx_aot.export(forward, (torch.rand(3, 3),), dynamic_shapes=shapes)
    x = torch.rand(3, 3)
    assert_close(onnx_aot.export(forward, (x,))(x)[0], forward(x))


def test_a_number_of_data_or_a_size_whichever_is_smaller() -> None:
    def forward(x: Tensor) -> tuple[Tensor, ...]:
        count, size = (x > 0).sum(), x.shape[0]
        return min(count, size // 2), max(size - 2, count), x[: min(size // 2, count)]

    x = torch.tensor([1.0, -1.0, 2.0, 3.0, 4.0])
    program = onnx_aot.export(forward, (x,), dynamic_shapes=({0: "n"},))
    assert all(node.op_type != "If" for node in program.model.graph)
    for given in (x, -x, x.repeat(2), -x.repeat(3)):
        for mine, expected in zip(program(given), forward(given), strict=True):
            torch.testing.assert_close(mine, torch.as_tensor(expected))


@pytest.mark.parametrize(
    "function",
    [
        lambda z: z.mean(),
        lambda z: z.mean(1),
        lambda z: z - z.mean((0, 1), keepdim=True),
        lambda z: z.mean(1) * z.shape[0] / z.shape[1],
    ],
)
def test_means_of_complex_numbers(function: Callable[[Tensor], Tensor]) -> None:
    def forward(x: Tensor) -> Tensor:
        return torch.view_as_real(function(torch.view_as_complex(x)))

    program = onnx_aot.export(forward, (torch.randn(2, 6, 2),), dynamic_shapes=({0: "b", 1: "n"},))
    for sizes in ((2, 6), (1, 1), (3, 9)):
        x = torch.randn(*sizes, 2)
        assert_close(program(x)[0], forward(x))
