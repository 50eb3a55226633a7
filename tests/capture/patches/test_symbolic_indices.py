"""Indices with symbolic integers, with tensors beside them, and with integers in 0-d tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import onnx_aot
from onnx_aot.torch_compat import pytree

ROWS = torch.tensor([1, 0])


def last_column(x: Tensor) -> Tensor:
    x = x.clone()
    x[:, x.shape[1] - 1] = x[:, 0] * 2
    return x


def number_in_middle(x: Tensor) -> Tensor:
    x = x.clone()
    x[..., x.shape[1] // 2, 1:] = 5.0
    return x


def with_one_more_dimension(x: Tensor) -> Tensor:
    x = x.clone()
    x[0, x.shape[1] - 1] = x[:1, 0]
    return x


def through_none(x: Tensor) -> Tensor:
    x = x.clone()
    x[None, :, x.shape[1] - 1] = x[:, 0] + 1
    return x


def read_with_tensors(x: Tensor) -> Tensor:
    return x[ROWS, x.shape[1] - 1, ROWS + 1]


def read_after_all(x: Tensor) -> Tensor:
    return x[..., x.shape[1] - 1, ROWS]


def written_with_tensors(x: Tensor) -> Tensor:
    x = x.clone()
    x[ROWS, x.shape[1] - 1, ROWS + 1] = torch.tensor([7.0, 8.0])
    x[:, x.shape[1] - 1, ROWS] = 3.0
    return x


def listed(x: Tensor) -> tuple[Tensor, Tensor]:
    ends, middle = [0, x.shape[1] - 1], [1, x.shape[1] // 2, -1]
    return x[:, ends, 1:], x.mT.flatten(0, 1)[..., middle]


def written_to_a_list(x: Tensor) -> Tensor:
    x = x.clone()
    x[:, [0, x.shape[1] - 1]] = x[:, :1] + 1
    return x


INDEXED = [
    last_column,
    number_in_middle,
    with_one_more_dimension,
    through_none,
    read_with_tensors,
    read_after_all,
    written_with_tensors,
    listed,
    written_to_a_list,
]


@pytest.mark.parametrize("function", INDEXED, ids=lambda f: f.__name__)
def test_size_among_indices_stays_dynamic(function: Callable[[Tensor], Any]) -> None:
    program = onnx_aot.export(function, (torch.randn(2, 5, 3),), dynamic_shapes=({1: "n"},))
    for size in (5, 2, 8):
        x = torch.randn(2, size, 3)
        torch.testing.assert_close(pytree.tree_leaves(function(x)), list(program(x)))


def test_a_list_of_numbers_that_data_gives() -> None:
    def function(x: Tensor) -> Tensor:
        return x[:, x.mean((0, 2)).topk(2)[1].tolist()]

    program = onnx_aot.export(function, (torch.randn(2, 5, 3),), dynamic_shapes=({0: "n"},))
    for size in (2, 4):
        x = torch.randn(size, 5, 3)
        torch.testing.assert_close(program(x)[0], function(x))


def erases_largest(x: Tensor) -> Tensor:
    x = x.clone()
    place = x.flatten().argmax()
    x[place // x.shape[1], place % x.shape[1]] = -1.0
    return x


def moves_best_row(x: Tensor) -> Tensor:
    x = x.clone()
    best = x[:, 0].argmax()
    x[best, 1:] += x[0, :2] * 3
    x[best.to(torch.int32), None] = 2 * x[None, best]
    return x


def counts_from_end(x: Tensor) -> Tensor:
    x = x.clone()
    x[..., x[0].argmin() - x.shape[1]] = x[:, 1] + 1
    return x


def marks_the_way(x: Tensor) -> tuple[Tensor, Tensor]:
    """Goes to the nearest row that it has not been to, three times."""
    distances = torch.cdist(x, x)
    seen = torch.zeros(x.shape[0], dtype=torch.bool)
    here, way = x[:, 0].argmax(), []
    for _ in range(3):
        seen[here] = True
        way.append(here)
        here = distances[here].masked_fill(seen, torch.inf).argmin()
    return torch.stack(way), seen


def beside_others(x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone()
    best = x[:, 0].argmax()
    x[best, [0, 2]] = x[0, :2] * 2
    return x, x[best, torch.tensor([2, 0])]


def beside_slices(x: Tensor) -> Tensor:
    x = x.clone()
    best, count = x[:, 0].argmax(), (x[0] > 0).sum()
    x[best, :count] = 0
    x[best, count:] = torch.tensor(3.0)
    return x


INTEGERS = [
    erases_largest,
    moves_best_row,
    counts_from_end,
    marks_the_way,
    beside_others,
    beside_slices,
]


@pytest.mark.parametrize("dims", [None, ({0: "n"},)], ids=["static", "dynamic"])
@pytest.mark.parametrize("function", INTEGERS, ids=lambda f: f.__name__)
def test_tensor_of_one_integer(
    function: Callable[[Tensor], Tensor | tuple[Tensor, Tensor]], dims: tuple[dict[int, str]] | None
) -> None:
    program = onnx_aot.export(function, (torch.randn(4, 3),), dynamic_shapes=dims)
    for size in (4,) * 4 if dims is None else (4, 3, 9):
        x = torch.randn(size, 3)
        wanted = function(x)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        torch.testing.assert_close(tuple(program(x)), wanted)


def position_alone(x: Tensor, i: Tensor) -> Tensor:
    x = x.clone()
    x[i] = x.mean(0)
    x[i, 0] = 5
    return x


def position_behind_others(x: Tensor, i: Tensor) -> Tensor:
    x = x.clone()
    x[:, i] = x[:, i] * 2
    x[..., i.to(torch.int32)] -= 1
    x[None, i, 1:3] = torch.ones(2)
    return x


def position_with_tensors(x: Tensor, i: Tensor) -> Tensor:
    x = x.clone()
    x[i, ROWS] = 7.0
    x[ROWS, i] = torch.tensor([1.0, 2.0])
    x[i, x[0] > 0] = 0.0
    return x


def position_and_slice(x: Tensor, i: Tensor) -> Tensor:
    x = x.clone()
    x[i : i + 2, i] = 2.0
    return x


WRITTEN = [position_alone, position_behind_others, position_with_tensors, position_and_slice]


@pytest.mark.parametrize("function", WRITTEN, ids=lambda f: f.__name__)
def test_writes_where_a_tensor_says(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    shapes = ({0: "n"}, None)
    program = onnx_aot.export(function, (torch.randn(4, 4), torch.tensor(1)), dynamic_shapes=shapes)
    for size, position in ((4, 1), (4, 0), (4, -1), (7, 3)):
        given = torch.randn(size, 4), torch.tensor(position)
        torch.testing.assert_close(program(*given)[0], function(*given))


class Ring(torch.nn.Module):
    """Keeps the last three inputs, as replay buffers do."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(3, 4))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        self.kept[self.count % 3] = x
        self.count += 1
        return self.kept.sum(0)


def test_ring_buffer_from_call_to_call() -> None:
    program = onnx_aot.export(Ring(), (torch.zeros(4),), state="io")
    ring = Ring()
    for step in range(5):
        x = torch.full((4,), 10.0**step)
        torch.testing.assert_close(program(x)[0], ring(x))
