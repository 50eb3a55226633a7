"""Exports of programs that the user captured with ``torch.export``."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import onnx_aot
from onnx_aot.capture.sizes import captured_dimensions
from onnx_aot.dimensions import conditions
from onnx_aot.dimensions.conditions import holds
from onnx_aot.errors import DynamicShapeError


class Sum(torch.nn.Module):
    def forward(self, x: Tensor, options: dict[str, Tensor], *, bias: Tensor) -> Tensor:
        return x + options["offset"] + bias


def captured() -> torch.export.ExportedProgram:
    return torch.export.export(
        Sum(),
        (torch.ones(2, 3), {"offset": torch.ones(2, 3)}),
        {"bias": torch.ones(3)},
        dynamic_shapes={
            "x": {0: Dim.DYNAMIC},
            "options": {"offset": {0: Dim.DYNAMIC}},
            "bias": None,
        },
    )


def shapes(program: onnx_aot.ONNXProgram) -> list[Any]:
    return [value.shape for value in program.model.graph.inputs]


def test_dimensions_are_named_after_inputs() -> None:
    program = onnx_aot.export(captured())
    assert shapes(program) == [("x_dim_0", 3), ("x_dim_0", 3), (3,)]
    program = onnx_aot.export(captured(), input_names=["tokens"])
    assert shapes(program)[0] == ("tokens_dim_0", 3)


@pytest.mark.parametrize(
    "dynamic_shapes",
    [
        {"x": {0: "rows"}},
        {"options": {"offset": {0: Dim("rows")}}},
        ({0: "rows"}, {"offset": {0: "rows"}}),
        {"x": {0: Dim.DYNAMIC}, "options": {"offset": {0: "rows"}}},
    ],
)
def test_dynamic_shapes_name_dimensions(dynamic_shapes: Any) -> None:
    program = onnx_aot.export(captured(), dynamic_shapes=dynamic_shapes)
    assert shapes(program) == [("rows", 3), ("rows", 3), (3,)]


def test_a_dimension_that_was_captured_static() -> None:
    with pytest.raises(DynamicShapeError, match=r"x, axis 1 \('width'\): fixed at 3"):
        onnx_aot.export(captured(), dynamic_shapes={"x": {0: "rows", 1: "width"}})


def test_an_input_that_is_not_there() -> None:
    with pytest.raises(DynamicShapeError, match="'y', which is not an input"):
        onnx_aot.export(captured(), dynamic_shapes={"y": {0: "rows"}})


def test_the_program_is_as_before() -> None:
    program = captured()
    before = str(program)
    onnx_aot.export(program)
    assert str(program) == before


def test_verifies_with_the_inputs_given_or_the_captured_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []
    run = onnx_aot.ONNXProgram.__call__

    def spy(self: onnx_aot.ONNXProgram, *args: Any, **kwargs: Any) -> Any:
        seen.append(len(args[0]))
        return run(self, *args, **kwargs)

    monkeypatch.setattr(onnx_aot.ONNXProgram, "__call__", spy)
    onnx_aot.export(captured(), verify=True)
    of_capture = seen.copy()
    seen.clear()
    args = (torch.randn(5, 3), {"offset": torch.randn(5, 3)})
    onnx_aot.export(captured(), args, kwargs={"bias": torch.randn(3)}, verify=True)
    assert [of_capture[0], seen[0]] == [2, 5]
    assert len(set(of_capture)) == len(of_capture) > 2  # verified at other sizes too


def test_positional_inputs_of_any_number() -> None:
    class Many(torch.nn.Module):
        def forward(self, *xs: Tensor) -> Tensor:
            return xs[0] + xs[1]

    program = torch.export.export(
        Many(),
        (torch.ones(2), torch.ones(2)),
        dynamic_shapes={"xs": ({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC})},
    )
    exported = onnx_aot.export(program, dynamic_shapes=({0: "rows"},), verify=True)
    assert shapes(exported) == [("rows",), ("rows",)]


def test_the_search_for_far_sizes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A condition of six large sizes that none fulfil once took minutes."""
    tried = []

    def count(condition: str, sizes: dict[str, int]) -> bool:
        tried.append(sizes)
        return holds(condition, sizes) is True

    monkeypatch.setattr(captured_dimensions, "holds", count)
    examples = tuple((f"n{i}", 60) for i in range(6))
    assert not captured_dimensions._has_far_solution("n0 * n1 == -1", examples)
    assert len(tried) < 2 * captured_dimensions.TRIED_SIZES
    assert captured_dimensions._has_far_solution("3 * n0 == n1", examples)


def _is_near(condition: str, example: int) -> bool:
    """The definition of ``_only_near``, size by size."""

    def fulfils(n: int) -> bool:
        return holds(condition, {"n": n}) is not False

    if captured_dimensions.NUMBER_COMPUTED.search(condition):
        return not any(map(fulfils, captured_dimensions._far_sizes(example)))
    above = range(2 * example + 1, 4 * example + 65)
    return not any(map(fulfils, above)) and (example == 0 or not all(map(fulfils, range(example))))


@pytest.mark.parametrize("example", [0, 1, 7, 300])
@pytest.mark.parametrize(
    "condition",
    [
        "n <= 50",
        "4 <= n <= 9",
        "n // 2 == 150",
        "n % 7 == 0",
        "n % 1200 != 5",
        "3 * (n // 3) < n or n == 1000",
        "math.trunc(0.1*n) == 0",
        "n - 300 <= 0 and n > 299",
        "100 // (n - 1150) >= 1000",
        "n != n",
    ],
)
def test_bound_dimensions_are_found_as_size_by_size(condition: str, example: int) -> None:
    assert captured_dimensions._only_near(condition, example) == _is_near(condition, example)


def test_no_size_is_tested_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds went by between two captures of a model of sounds, whose sizes are large."""
    monkeypatch.setattr(conditions._Steps, "compute", None)
    assert captured_dimensions._only_near("60000 < n <= 90000", 88_200)
