"""Unique elements: ``onnx_aot/ops/core/unique.py``."""

from __future__ import annotations

import pytest
import torch

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


def test_a_captured_program() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.unique_consecutive(dim=-1)

    captured = torch.export.export(Model(), (torch.ones(2, 3),))
    with pytest.raises(TranslationError, match="dim=1"):
        onnx_aot.export(captured)
