"""scan, map and associative_scan, with zero, one and more steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._higher_order_ops import associative_scan, scan
from torch._higher_order_ops.map import map as map_slices

import onnx_aot
from tests.translate.bodies import Case, Model, check, kinds

Tensor = torch.Tensor


# --- scan ----------------------------------------------------------------------------------------


def running_sum(m: Model, x: Tensor) -> Any:
    """The carry is also collected, as in torch's example."""

    def add(total: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        after = total + row
        return after, after.clone()

    return scan(add, torch.zeros(3), x)


def sum_of_integers(m: Model, x: Tensor) -> Any:
    """Torch's example: the carry differs from the slices in dtype and shape."""

    def add(total: Tensor, number: Tensor) -> tuple[Tensor, Tensor]:
        after = total + number
        return after, after.clone()

    return scan(add, torch.zeros(1), x)


def recurrent(m: Model, x: Tensor) -> Any:
    """A cell with weights, and a value computed outside."""
    shift = x.mean()

    def step(state: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        after = torch.tanh(m.linear(state) + row + shift)
        return after, after.sum()

    return scan(step, torch.zeros(3), x)


def backwards_along_another_axis(m: Model, x: Tensor) -> Any:
    def step(carry: Any, slices: Any) -> Any:
        total = {"sum": carry["sum"] + slices["x"], "count": carry["count"] + 1}
        return total, (slices["x"] * total["count"], carry["sum"].clone())

    start = {"sum": torch.zeros(x.shape[0]), "count": torch.zeros((), dtype=torch.int64)}
    return scan(step, start, {"x": x}, dim=1, reverse=True)


def scan_in_scan(m: Model, x: Tensor) -> Any:
    def outer(state: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        total, products = scan(lambda a, b: (a + b, a * b), torch.zeros(()), row)
        return state + total, products

    return scan(outer, torch.zeros(()), x)


def wide_slices(m: Model, x: Tensor) -> Any:
    """Both axes of the collected values depend on the input."""

    def step(state: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        after = state + row.sum()
        return after, row[:, None] * x.sum(1)[None]

    return scan(step, torch.zeros(()), x)


SCANS = [
    Case(running_sum, nodes=("Scan",)),
    Case(recurrent),
    Case(backwards_along_another_axis, containers=True),
    Case(scan_in_scan),
    Case(wide_slices),
    Case(running_sum, inputs=((torch.ones(5, 3),),), nodes=("Scan",)),
    Case(sum_of_integers, inputs=((torch.arange(5),),)),
]


# --- map -----------------------------------------------------------------------------------------


def with_others(m: Model, x: Tensor) -> Any:
    """Lists of slices and tensors from outside, as in torch's example."""
    first, second = torch.ones(3), x.sum(0)
    return map_slices(lambda xs: xs[0] + xs[1] + first + second, [x, x.cos()])


def rows(m: Model, x: Tensor) -> Any:
    return map_slices(lambda row, scale: (m.linear(row) * scale, row.sum()), x, x.mean())


MAPS = [Case(with_others), Case(rows)]


# --- associative_scan ----------------------------------------------------------------------------


def cumulative_sum(m: Model, x: Tensor) -> Any:
    """Torch's example."""
    return associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")


def linear_recurrence(m: Model, x: Tensor) -> Any:
    """``h[t] = a[t] h[t-1] + b[t]``, with a weight from outside."""
    weight = m.linear.bias.abs()

    def join(left: Any, right: Any) -> Any:
        return left[0] * right[0], left[1] * right[0] + right[1]

    given = (torch.sigmoid(x) * weight, x)
    return associative_scan(join, given, 0, combine_mode="generic")


def products_of_matrices(m: Model, x: Tensor) -> Any:
    given = torch.tanh(x[:, :, None] * x[:, None, :])
    return associative_scan(lambda a, b: a @ b, given, 0, reverse=True, combine_mode="generic")


def largest_along_last(m: Model, x: Tensor) -> Any:
    given = {"x": x, "y": x.sin()}
    return associative_scan(
        lambda a, b: {"x": torch.maximum(a["x"], b["x"]), "y": a["y"] + b["y"]},
        given,
        -1,
        combine_mode="generic",
    )


def large_slices(m: Model, x: Tensor) -> Any:
    """Runs sequentially, because parallel steps would process each slice ``log2(n)`` times."""
    wide = x.repeat(1, 64)
    return associative_scan(torch.maximum, wide, 0, combine_mode="generic")


ASSOCIATIVE = [
    Case(cumulative_sum, sizes=(4, 1, 2, 33), nodes=("Loop",)),
    Case(linear_recurrence),
    Case(products_of_matrices),
    Case(largest_along_last),
    Case(large_slices, nodes=("Scan",)),
    Case(cumulative_sum, inputs=((torch.ones(5, 3),),), nodes=("Loop",)),
]

CASES = [*SCANS, *MAPS, *ASSOCIATIVE]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.function.__name__)
def test_scan(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (running_sum, [(3,), (0, 3)]),
        (wide_slices, [(), (0, 3, 0)]),
        (rows, [(0, 3), (0,)]),
        (cumulative_sum, [(0, 3)]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_no_step(function: Any, shapes: list[tuple[int, ...]]) -> None:
    """Torch rejects an empty input; the model keeps the carry and collects nothing."""
    program = onnx_aot.export(Model(function), (torch.ones(2, 3),), dynamic_shapes=(({0: "n"},),))
    outputs = program(torch.ones(0, 3))
    assert [tuple(output.shape) for output in outputs] == shapes
    if function is running_sum:
        assert not outputs[0].any()


def test_a_size_that_is_never_zero_needs_no_branch() -> None:
    shapes = (({0: torch.export.Dim("n", min=1)},),)
    program = onnx_aot.export(Model(running_sum), (torch.ones(2, 3),), dynamic_shapes=shapes)
    assert "Scan" in kinds(program)
    assert "If" not in kinds(program)
