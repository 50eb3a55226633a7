"""Unique elements: ``onnx_aot/ops/core/unique.py``."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

import onnx_aot
from onnx_aot.errors import TranslationError
from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, bools, check, floats, ints, parametrize

NONE_N = ({"n": 0},)
BOTH = {"return_inverse": True, "return_counts": True}


def few(*sizes: int | str) -> T:
    """Floats with many duplicates."""
    return T(sizes, torch.float32, lambda *s: torch.randint(0, 3, s))


def few_with_nan(*sizes: int | str) -> T:
    return T(
        sizes,
        torch.float32,
        lambda *s: torch.where(torch.rand(s) < 0.2, torch.nan, torch.randint(0, 3, s).float()),
    )


ROWS = [
    *(
        Row(aten._unique2.default, (values,), kwargs, sizes=sizes, name=name)
        for name, values, kwargs, sizes in (
            ("vector", few("n"), {}, NONE_N),
            ("matrix", few("n", 3), BOTH, NONE_N),
            ("not sorted", few("n"), {"sorted": False}, ()),
            ("inverse", few("n", 3), {"return_inverse": True}, ()),
            ("counts", few("n", 3), {"return_counts": True}, ()),
            ("nan", few_with_nan("n", 5), {"return_counts": True}, ()),
            ("int", ints("n", 3, low=0, high=4), BOTH, NONE_N),
            ("int32", ints("n", low=0, high=4, dtype=torch.int32), BOTH, ()),
            ("bool", bools("n", 3), BOTH, ()),
            ("rank0", floats(), BOTH, ()),
            ("nothing", floats(0), BOTH, ()),
        )
    ),
    Row(aten._unique.default, (few("n", 3), True, True)),
    *(
        Row(aten.unique_dim.default, args, kwargs, sizes=sizes, name=name)
        for name, args, kwargs, sizes in (
            ("first", (few("n", 2), 0), BOTH, ()),
            ("last", (few(2, "n"), -1), BOTH, ()),
            ("middle", (ints(1, 6, 2, low=0, high=2), 1), {"return_counts": True}, ()),
            ("values only", (few("n", 2), 0), {}, ()),
        )
    ),
    *(
        Row(aten.unique_consecutive.default, (values,), kwargs, sizes=sizes, name=name)
        for name, values, kwargs, sizes in (
            ("vector", few("n"), BOTH, NONE_N),
            ("matrix", few("n", 3), BOTH, NONE_N),
            ("values only", few("n", 3), {}, ()),
            ("nan", few_with_nan("n", 5), BOTH, ()),
            ("bool", bools("n"), BOTH, ()),
            ("first", few("n", 2), {"dim": 0, **BOTH}, NONE_N),
            ("last", few(1, 2, "n"), {"dim": 2, **BOTH}, ()),
            ("rank0", floats(), BOTH, ()),
        )
    ),
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)


@pytest.mark.parametrize("dim", [-1, -2, 1])
def test_results_of_the_model(dim: int) -> None:
    """Torch records other sizes of the result along a dimension that is counted from the end."""

    def distinct(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, inverse, counts = x.unique_consecutive(True, True, dim=dim)
        return values, inverse, counts, values.sum(dim)

    x = torch.tensor([[1.0, 1, 2], [1, 1, 2], [3, 3, 2], [3, 3, 3]])
    program = onnx_aot.export(distinct, (x,), dynamic_shapes=({0: "n", 1: "m"},))
    for given in (x, x[:2], x[:, :2].repeat(3, 2)):
        torch.testing.assert_close(tuple(program(given)), distinct(given))


class LastDimension(torch.nn.Module):
    def __init__(self, compute: Callable[..., object], **flags: bool) -> None:
        super().__init__()
        self.compute, self.flags = compute, flags

    def forward(self, x: torch.Tensor) -> object:
        return self.compute(x.unique_consecutive(dim=-1, **self.flags))


def as_returned(results: object) -> object:
    return results


@pytest.mark.parametrize("flags", [{}, BOTH])
@pytest.mark.parametrize("x", [torch.tensor([1, 1, 2, 3, 3]), torch.tensor([[1, 1, 2], [4, 4, 4]])])
def test_a_captured_program(x: torch.Tensor, flags: dict[str, bool]) -> None:
    """The results of a program along dim=-1, which torch records with other sizes, are right."""
    model = LastDimension(as_returned, **flags)
    captured = torch.export.export(model, (x,), dynamic_shapes=({x.dim() - 1: Dim("n", min=2)},))
    program = onnx_aot.export(captured)
    for given in (x, x[..., :2], x.repeat_interleave(2, -1)):
        torch.testing.assert_close(program(given), tuple(pytree.tree_leaves(model(given))))


def test_a_captured_program_that_computes_with_the_result() -> None:
    model = LastDimension(lambda values: values + 1)
    captured = torch.export.export(model, (torch.ones(2, 3),))
    with pytest.raises(TranslationError, match="dim=1"):
        onnx_aot.export(captured)
