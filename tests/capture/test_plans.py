"""Plans that a capture tries, their order, and the result that it keeps."""

from __future__ import annotations

import dataclasses
import importlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import onnx_aot
from onnx_aot.capture import plans
from onnx_aot.capture.attempts import Attempt, Plan
from onnx_aot.capture.strategies import Model
from onnx_aot.capture.time_limits import TimeLimit
from onnx_aot.errors import CaptureError, DynamicShapeError

X = torch.rand(4, 3)
NAMED = ({0: "n"},)


def doubled(x: Tensor) -> Tensor:
    return x * 2


def asks_for_zero(x: Tensor) -> Tensor:
    return x * 2 if x.numel() > 0 else x + 1


def asks_and_catches(x: Tensor) -> Tensor:
    try:
        return x * 2 if x.numel() > 0 else x + 1
    except Exception:
        return x - 1


def fixes_rows(x: Tensor) -> Tensor:
    return x + torch.ones(4, 1)


def adds_in_a_loop(x: Tensor) -> Tensor:
    y = torch.zeros_like(x[0])
    for row in x:
        y = 0.5 * y + row
    return y


def depends_on_data(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x


def returns_other_kinds(x: Tensor) -> Tensor:
    return x.long() if x.sum() > 0 else x


def adds_last_columns(x: Tensor) -> Tensor:
    n = x.shape[1]
    for i in range(n - 2, n):
        x = x * 2 + x[:, i : i + 1]
    return x


def broadcasts_last(x: Tensor) -> Tensor:
    return x - x[:, 1:]


def counts_rows(x: Tensor) -> Tensor:
    return x.reshape(int(x.shape[0]), -1)


def counts_rows_if_any(x: Tensor) -> Tensor:
    return counts_rows(asks_for_zero(x))


def counts_rows_first(x: Tensor) -> Tensor:
    return asks_for_zero(counts_rows(x))


def counts_and_catches(x: Tensor) -> Tensor:
    try:
        return counts_rows(x)
    except Exception:
        return x - 1


def needs_number(x: Tensor) -> Tensor:
    """A strict capture, which would keep the number symbolic, is refused."""
    torch._dynamo.graph_break()
    columns = int(x.shape[0] // 4 + 2)
    assert columns.to_bytes(1, "big")  # symbolic numbers have no such method
    return x.reshape(-1, columns) * 2


class Counted(nn.Module):
    """Reads a number from a buffer, and writes to it afterwards."""

    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.tensor(0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.steps.item()
        self.steps += 1
        return y


WRONG, FIXED = {"ends_early": True}, {"ends_when_fixed": True}
FIRST = WRONG | FIXED
INT = {"conversions": frozenset({(__name__, "int")})}
ZERO = {"from_zero": True}
ROLLS = {"rolls": True, "loops_in": frozenset({__file__})}
ROWS: dict[str, tuple[Any, Any, str, list[dict[str, Any]]]] = {
    "as asked": (doubled, NAMED, "error", [FIRST]),
    "static": (doubled, None, "error", [FIRST]),
    "a derived dimension": (doubled, ({0: 2 * Dim("n")},), "error", [ZERO | FIXED]),
    "empty tensors": (asks_for_zero, NAMED, "error", [FIRST, ZERO | FIXED]),
    "a model that catches": (asks_and_catches, NAMED, "error", [FIRST, ZERO | FIXED]),
    "a model that catches, with a range": (
        asks_and_catches,
        ({0: Dim("n")},),
        "warn",
        [FIRST, ZERO | FIXED, FIXED],
    ),
    "int of a size": (
        counts_rows,
        NAMED,
        "error",
        [FIRST, WRONG | INT],
    ),
    "int of a size, and empty tensors": (
        counts_rows_if_any,
        NAMED,
        "error",
        [FIRST, ZERO | FIXED, ZERO | INT],
    ),
    "int of a size, then empty tensors": (
        counts_rows_first,
        NAMED,
        "error",
        [FIRST, WRONG | INT, ZERO | INT],
    ),
    "int of a size, in a model that catches": (
        counts_and_catches,
        NAMED,
        "error",
        [FIRST, WRONG | INT],
    ),
    "int of a size that has to be a number": (
        needs_number,
        NAMED,
        "error",
        [FIRST, WRONG | INT, WRONG, *(WRONG | {"request": "resized"} | c for c in ({}, INT))],
    ),
    "int of a size that has to be a number, accepted": (
        needs_number,
        NAMED,
        "allow",
        [
            *(FIRST, WRONG | INT, WRONG),
            *(WRONG | {"request": "resized"} | c for c in ({}, INT)),
            WRONG | {"request": "delivered"} | INT,
        ],
    ),
    "a written number": (
        Counted(),
        NAMED,
        "warn",
        [FIRST, FIRST | {"unknown": frozenset({"steps"})}],
    ),
    "fixed, an error": (
        fixes_rows,
        ({0: Dim("n")},),
        "error",
        [FIRST, FIRST | {"request": "resized"}, FIXED | {"request": "any"}],
    ),
    "fixed, accepted": (
        fixes_rows,
        ({0: Dim("n")},),
        "allow",
        [FIRST, *(FIRST | {"request": r} for r in ("resized", "any", "delivered"))],
    ),
    "a loop": (
        adds_in_a_loop,
        NAMED,
        "error",
        [FIRST, WRONG | ROLLS, ZERO | ROLLS],
    ),
    "data": (depends_on_data, NAMED, "error", [FIRST, {"both_ways": True}]),
    "data, an error": (returns_other_kinds, NAMED, "error", [FIRST, {"both_ways": True}]),
}


def _settings(plan: Plan) -> dict[str, Any]:
    """Returns the settings of a plan that differ from the defaults."""
    return {
        field.name: getattr(plan, field.name)
        for field in dataclasses.fields(plan)
        if field.name not in ("requested", "inputs", "strategies")
        and getattr(plan, field.name) != field.default
    }


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Attempt]:
    """Records the test's attempts in order."""
    attempts: list[Attempt] = []
    make: Callable[[Model, Plan, TimeLimit], Attempt] = plans.make_attempt

    def record(model: Model, plan: Plan, limit: TimeLimit) -> Attempt:
        attempts.append(make(model, plan, limit))
        return attempts[-1]

    monkeypatch.setattr(plans, "make_attempt", record)
    return attempts


@pytest.mark.parametrize(
    ("model", "shapes", "on_specialized", "expected"), ROWS.values(), ids=ROWS.keys()
)
def test_plans_in_order(
    tried: list[Attempt], model: Any, shapes: Any, on_specialized: Any, expected: Any
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = onnx_aot.export(
                model, (X,), dynamic_shapes=shapes, on_specialized=on_specialized
            )
        except (CaptureError, DynamicShapeError):
            program = None
    assert [_settings(attempt.plan) for attempt in tried] == expected
    assert (program is None) == (
        on_specialized == "error" and model in (fixes_rows, returns_other_kinds, needs_number)
    )
    if program is not None:
        reference = doubled if model in (asks_for_zero, asks_and_catches) else model
        if not isinstance(model, nn.Module):
            torch.testing.assert_close(program(X)[0], reference(X))


def test_a_module_that_keeps_int_is_captured_once(
    tried: list[Attempt], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives the type to torch, so another capture would fix the size too."""
    (tmp_path / "keeps_int.py").write_text(
        "import torch\n\n\ndef forward(x):\n"
        "    return x.reshape(int(x.shape[0]), -1) + torch.ones(1, dtype=int)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    forward = importlib.import_module("keeps_int").forward
    program = onnx_aot.export(forward, (X,), dynamic_shapes=NAMED, on_specialized="allow")
    assert not any(attempt.plan.conversions or attempt.fixed_in for attempt in tried)
    torch.testing.assert_close(program(X)[0], forward(X))


def test_a_capture_that_contradicts_the_example_is_not_kept(tried: list[Attempt]) -> None:
    program = onnx_aot.export(adds_last_columns, (torch.rand(2, 5),), dynamic_shapes=({1: "n"},))
    assert any(attempt.contradicts_example for attempt in tried[:-1])
    assert not tried[-1].plan.small_sizes
    assert not tried[-1].contradicts_example
    for n in (5, 9):
        x = torch.rand(2, n)
        torch.testing.assert_close(program(x)[0], adds_last_columns(x))


def test_a_computed_size_of_1_that_broadcasts(tried: list[Attempt]) -> None:
    """Sizes for which it is not 1, and which the model refuses, are excluded."""
    auto = ({0: Dim.AUTO, 1: Dim.AUTO},)
    program = onnx_aot.export(broadcasts_last, (torch.rand(3, 2),), dynamic_shapes=auto)
    assert not tried[-1].plan.small_sizes
    assert [str(dim) for dim in program.model.graph.inputs[0].shape] == ["x_dim_0", "2"]
    for n in (3, 5):
        x = torch.rand(n, 2)
        torch.testing.assert_close(program(x)[0], broadcasts_last(x))


def test_a_requested_size_that_the_model_needs_to_broadcast() -> None:
    with pytest.raises(DynamicShapeError, match=r"axis 1 \('n'\): fixed at 2"):
        onnx_aot.export(broadcasts_last, (torch.rand(3, 2),), dynamic_shapes=({1: "n"},))


@pytest.mark.parametrize("case", ["fixed, an error", "data, an error"])
def test_a_failing_model_is_captured_at_most_four_times(tried: list[Attempt], case: str) -> None:
    """Torch's own error takes one capture per strategy, and explaining it at most two more."""
    model, shapes, on_specialized, _ = ROWS[case]
    with pytest.raises((CaptureError, DynamicShapeError)):
        onnx_aot.export(model, (X,), dynamic_shapes=shapes, on_specialized=on_specialized)
    assert sum(len(a.failures) + (a.captured is not None) for a in tried) <= 4


def test_loops_become_one_before_a_capture_above_zero(tried: list[Attempt]) -> None:
    def takes_one_row(x: Tensor) -> Tensor:
        x = x * 2 if x.numel() > 0 else x + 1
        rows = [row.exp() for row in x]
        return rows[1]

    with pytest.raises(DynamicShapeError, match="one of the steps in the middle"):
        onnx_aot.export(takes_one_row, (X,), dynamic_shapes=NAMED)
    expected = [FIRST, ZERO | FIXED, ZERO | ROLLS, ROLLS, FIXED]
    assert [_settings(attempt.plan) for attempt in tried][:5] == expected
