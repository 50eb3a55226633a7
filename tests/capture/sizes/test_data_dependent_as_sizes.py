"""Numbers read from tensors and used as sizes, bounds and indices in plain Python."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import pad

import onnx_aot
from tests.releases import TORCH

Tensor = torch.Tensor
X = torch.arange(20.0).reshape(5, 4) / 7


@dataclasses.dataclass(frozen=True)
class Case:
    """A function of ``X`` and a tensor of numbers, and values of that tensor."""

    name: str
    call: Callable[..., Any]
    numbers: tuple[Any, ...] = (3, 1, 5, 0)


def checked_view(x: Tensor, n: Tensor) -> Tensor:
    rows = n.item()
    torch._check(rows > 0)
    torch._check(20 % rows == 0)
    return x.reshape(rows, 20 // rows)


def written_slice(x: Tensor, n: Tensor) -> Tensor:
    y = x.clone()
    y[: int(n)] = 0
    return y


def written_row(x: Tensor, n: Tensor) -> Tensor:
    y = x.clone()
    y[int(n)] = 0
    return y


def two_sizes(x: Tensor, n: Tensor) -> Tensor:
    rows, columns = n.tolist()
    return torch.zeros(rows, columns)


CASES = (
    Case("slice to", lambda x, n: x[: int(n)]),
    Case("slice from", lambda x, n: x[n.item() :]),
    Case("index", lambda x, n: x[n.item()], (3, 0, -1)),
    Case("range", lambda x, n: torch.arange(n.item()) * 2),
    Case("zeros", lambda x, n: torch.zeros(n.item(), 4)),
    Case("full", lambda x, n: torch.full((int(n), 2), 7.0)),
    Case("narrow", lambda x, n: x.narrow(0, 0, n.item())),
    Case("view", checked_view, (2, 4, 5)),
    Case("view of the rest", lambda x, n: x.reshape(n.item(), -1), (2, 4, 5)),
    Case("pad", lambda x, n: pad(x, (0, n.item()))),
    Case("expand", lambda x, n: x[None].expand(n.item(), -1, -1), (3, 1)),
    Case("repeat", lambda x, n: x.repeat(n.item(), 1), (3, 1)),
    Case("sizes in a list", two_sizes, ([2, 3], [4, 1])),
    Case("split", lambda x, n: torch.split(x, n.tolist())[0], ([2, 3], [4, 1])),
    Case("eye", lambda x, n: torch.eye(n.item()), (3, 1)),
    Case("top", lambda x, n: x.topk(int(n), 0).values, (3, 1)),
    Case("written slice", written_slice),
    Case("written row", written_row, (3, 0)),
    Case("mask", lambda x, n: torch.arange(n.max())[None] < n[:, None], ([1, 3], [2, 4])),
    Case("largest", lambda x, n: x[:, : n.max()], ([1, 3], [2, 4])),
    Case("count", lambda x, n: x[: int(n.sum())], ([1, 0, 1], [1, 1, 1])),
    Case("of a float", lambda x, n: x[: int(n)], (3.7, 1.2)),
    Case("arithmetic", lambda x, n: x * n.item() / 2 + int(n) % 2),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_number_of_data(case: Case) -> None:
    program = onnx_aot.export(case.call, (X, torch.tensor(case.numbers[0])))
    for number in case.numbers:
        inputs = (X, torch.tensor(number))
        torch.testing.assert_close(program(*inputs)[0], case.call(*inputs))


def out_of_range(x: Tensor) -> Tensor:
    out = torch.empty(0)
    torch.arange(x.shape[0], out=out)
    return x + out[:, None]


def out_of_same_size(x: Tensor) -> Tensor:
    out = torch.empty(x.shape[0], dtype=torch.int64)
    torch.arange(0, x.shape[0], 1, out=out)
    return x + out[:, None]


LENGTHS = (
    Case("range", lambda x: torch.arange(len(x))),
    Case("scale", lambda x: x / len(x)),
    Case("slice", lambda x: x[: len(x) // 2]),
    Case("arange into nothing", out_of_range),
    Case("arange into a tensor", out_of_same_size),
)


@pytest.mark.parametrize("case", LENGTHS, ids=lambda case: case.name)
def test_a_length(case: Case) -> None:
    program = onnx_aot.export(case.call, (X,), dynamic_shapes=({0: "n"},))
    for given in (X, X[:2], X[:1]):
        torch.testing.assert_close(program(given)[0], case.call(given))


class AttendsInGroups(torch.nn.Module):
    """Attention within each group of rows, padded to the size of the largest group."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor, group: Tensor) -> Tensor:
        groups = int(group.max()) + 1
        sizes = torch.zeros(groups, dtype=torch.int64).index_add(0, group, torch.ones_like(group))
        largest = int(sizes.max())
        starts = sizes.cumsum(0) - sizes
        place = torch.arange(len(group)) - starts[group] + group * largest
        used = torch.zeros(groups * largest, dtype=torch.bool).index_fill(0, place, True)
        rows = x.new_zeros(groups * largest, 8).index_copy(0, place, x)
        rows, used = rows.view(groups, largest, 8), used.view(groups, largest)
        found, _ = self.attend(rows, rows, rows, key_padding_mask=~used, need_weights=False)
        return found[used]


def test_a_kernel_that_asks_about_the_largest_count() -> None:
    model = AttendsInGroups().eval()
    said = r"for 2 or more[\s\S]*self\.attend"
    # from torch 2.15 on, the kernel does not ask
    asked = pytest.warns(onnx_aot.OnnxExporterWarning, match=said)
    with asked if TORCH < (2, 15) else contextlib.nullcontext():
        program = onnx_aot.export(
            model,
            (torch.rand(9, 8), torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2])),
            dynamic_shapes=({0: "n"}, {0: "n"}),
        )
    for groups in ([0, 0, 1, 1, 1], [0, 0], [0, 1, 1, 2, 3]):
        given = torch.rand(len(groups), 8), torch.tensor(groups)
        torch.testing.assert_close(program(*given)[0], model(*given))


def branches_on_a_number(x: Tensor, n: Tensor) -> Tensor:
    rows = int(n)
    y = torch.zeros(rows, 4)
    return y + 1 if rows == 1 else y.sum(0, keepdim=True) + x[:1]


def test_a_branch_of_the_model_on_a_size_has_both_sides() -> None:
    n = torch.tensor(3)
    program = onnx_aot.export(branches_on_a_number, (X, n), strategies=("non-strict",))
    for rows in (3, 1, 2):
        n = torch.tensor(rows)
        torch.testing.assert_close(program(X, n)[0], branches_on_a_number(X, n))
