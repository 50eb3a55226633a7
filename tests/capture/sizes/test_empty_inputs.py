"""Models that take the maximum of two sizes or test for zero also support empty inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import onnx_aot
from onnx_aot.capture import attempts
from onnx_aot.capture.strategies import Run
from onnx_aot.errors import DynamicShapeError, OnnxExporterWarning

N = Dim("n")

ANSWERS: dict[str, Callable[[Tensor], Any]] = {
    "torch.sym_max": lambda x: x.sum(0) / torch.sym_max(x.shape[0], 1),
    "max": lambda x: x.sum() / max(x.shape[0], 1),
    "min": lambda x: x.sum() + min(x.shape[0], 1),
    "max of a difference": lambda x: x.sum() + max(x.shape[0] - 1, 0),
    "the size of a slice": lambda x: torch.ones(x[1:].shape[0] + 1),
    "the size of the first row": lambda x: torch.ones(x[:1].shape[0] + 3),
    "the size of the last row": lambda x: torch.ones(x[-1:].size(0) + 3),
    "the number of the second row": lambda x: torch.ones(x[1:2].numel() + 3),
    "the length of the first row": lambda x: torch.ones(len(x[:1]) + 3),
    "the size of a diagonal": lambda x: torch.ones(x[:, :1].diagonal().shape[0] + 1),
    "a start that may be the first": lambda x: torch.ones(torch.ones(4)[-x.shape[0] :].shape[0]),
}


@pytest.mark.parametrize("function", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("shapes", [{0: "n"}, {0: N}, {0: 2 * N}], ids=["n", "Dim", "2*n"])
def test_equal_to_eager(function: Callable[[Tensor], Any], shapes: Any) -> None:
    program = onnx_aot.export(function, (torch.rand(4, 3),), dynamic_shapes=(shapes,))
    for size in (0, 2, 6):
        x = torch.rand(size, 3)
        (answer,) = program(x)
        torch.testing.assert_close(answer, torch.as_tensor(function(x)))


@pytest.mark.parametrize("name", ["the size of the first row", "the size of the last row"])
def test_strict_captures_too(name: str) -> None:
    function, given = ANSWERS[name], (torch.rand(4, 3),)
    program = onnx_aot.export(function, given, dynamic_shapes=({0: N},), strategies=("strict",))
    for size in (0, 1, 6):
        x = torch.rand(size, 3)
        torch.testing.assert_close(program(x)[0], function(x))


def test_a_derived_dimension_whose_root_no_input_has() -> None:
    def cut(x: Tensor) -> Tensor:
        return x.sum() + torch.sym_max(x.shape[0] - 2, 0)

    program = onnx_aot.export(cut, (torch.ones(4),), dynamic_shapes=({0: N + 1},), verify=True)
    assert [str(value.shape) for value in program.model.graph.inputs] == ["[n + 1]"]
    assert [program(torch.ones(n))[0].item() for n in (1, 2, 5)] == [1, 2, 8]


ASKED: dict[str, Callable[[Tensor], Tensor]] = {
    "n == 0": lambda x: x + 1 if x.shape[0] == 0 else x * 2,
    "numel() > 0": lambda x: x * 2 if x.numel() > 0 else x + 1,
    "n": lambda x: x * 2 if x.shape[0] else x + 1,
}


@pytest.mark.parametrize("function", ASKED.values(), ids=ASKED)
def test_a_branch_on_zero_is_a_condition(function: Callable[[Tensor], Tensor]) -> None:
    example = (torch.rand(4, 3),)
    program = onnx_aot.export(
        function, example, dynamic_shapes=({0: "n"},), runtime_checks=True, verify=True
    )
    torch.testing.assert_close(program(torch.ones(1, 3))[0], torch.full((1, 3), 2.0))
    with pytest.raises(Exception, match=r"check: (3 \* )?x\.shape"):
        program(torch.ones(0, 3))
    with pytest.warns(OnnxExporterWarning, match=r"for empty inputs .*Dim\(name, min=1\)"):
        onnx_aot.export(function, example, dynamic_shapes=({0: N},))


def test_what_does_not_depend_on_zero_is_captured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []
    capture = attempts.run_strategy
    monkeypatch.setattr(
        attempts, "run_strategy", lambda run: runs.append(run.strategy) or capture(run)
    )

    def model(x: Tensor) -> Tensor:
        if x.shape[0] < x.shape[0] or x.shape[0] + 1 == 0:
            return x
        return torch.ones(x.shape[0]) + x[1:].sum() + x.mean(0, keepdim=True)[0, 0]

    one_on = {0: Dim("n", min=1)}
    onnx_aot.export(model, (torch.rand(4, 3),), dynamic_shapes=(one_on,))
    assert runs == ["non-strict"]
    onnx_aot.export(lambda x: x / max(x.shape[0], 1), (torch.rand(4),), dynamic_shapes=(one_on,))
    assert runs == ["non-strict"] * 2

    def first(x: Tensor) -> Tensor:
        return x[:1].expand(-1, x[:1].size(1)) + x[:1].size(-1)

    onnx_aot.export(first, (torch.rand(4, 3),), dynamic_shapes=({0: N},))
    assert runs == ["non-strict"] * 3


def test_where_zero_is_asked_for_the_first_capture_ends() -> None:
    steps: list[str] = []

    def model(x: Tensor) -> Tensor:
        steps.append("asks")
        y = x * 2 if x.numel() > 0 else x
        steps.append("goes on")
        return y.sum(0)

    program = onnx_aot.export(model, (torch.rand(4, 3),), dynamic_shapes=({0: "n"},))
    assert steps[:3] == ["asks", "asks", "goes on"]
    assert steps[3:] == ["asks", "goes on"]  # the model is run at size 0, to compare
    x = torch.rand(7, 3)
    torch.testing.assert_close(program(x)[0], model(x))


def test_what_fails_from_zero_on_is_captured_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[bool] = []
    capture = attempts.run_strategy

    def fails_from_zero(run: Run) -> torch.export.ExportedProgram:
        runs.append(run.settings.from_zero)
        if run.settings.from_zero:
            raise ValueError("as torch.export may")
        return capture(run)

    monkeypatch.setattr(attempts, "run_strategy", fails_from_zero)
    named = ({0: "n"},)
    with pytest.warns(OnnxExporterWarning, match="captured for sizes above 0"):
        program = onnx_aot.export(ASKED["numel() > 0"], (torch.rand(4, 3),), dynamic_shapes=named)
    assert runs == [False, True, True, False]  # two strategies try the second one
    x = torch.rand(7, 3)
    torch.testing.assert_close(program(x)[0], x * 2)


def test_a_derived_dimension_below_zero() -> None:
    with pytest.raises(DynamicShapeError, match=r"n - 1 to be >= 0.*min value for n"):
        onnx_aot.export(lambda x: x, (torch.ones(4),), dynamic_shapes=({0: N - 1},))
