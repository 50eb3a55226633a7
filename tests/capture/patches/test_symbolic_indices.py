"""Indices with symbolic integers, and with tensors beside them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import onnx_aot

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


INDEXED = [
    last_column,
    number_in_middle,
    with_one_more_dimension,
    through_none,
    read_with_tensors,
    read_after_all,
    written_with_tensors,
]


@pytest.mark.parametrize("function", INDEXED, ids=lambda f: f.__name__)
def test_size_among_indices_stays_dynamic(function: Callable[[Tensor], Tensor]) -> None:
    program = onnx_aot.export(function, (torch.randn(2, 5, 3),), dynamic_shapes=({1: "n"},))
    for size in (5, 2, 8):
        x = torch.randn(2, size, 3)
        torch.testing.assert_close(program(x)[0], function(x))
