"""Time until a model is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

import onnx_aot
from onnx_aot.capture import time_limits
from onnx_aot.capture.time_limits import TimeLimit
from onnx_aot.errors import CaptureError, DynamicShapeError

X = torch.rand(4, 3)
STRICT = "torch.export.export(strict=True)"


def branches(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x


def loops(x: Tensor) -> Tensor:
    for step in range(x.sum().to(torch.int64).item()):
        x = x + step
    return x


def loops_twice(x: Tensor) -> Tensor:
    x = loops(x)
    for step in range(x.max().to(torch.int64).item()):
        x = x + step
    return x


def fixes_rows(x: Tensor) -> Tensor:
    return x + torch.ones(4, 1)


def asks_for_zero(x: Tensor) -> Tensor:
    return x * 2 if x.numel() > 0 else x + 1


def refuse(model: Any, **options: Any) -> str:
    with pytest.raises((CaptureError, DynamicShapeError)) as caught:
        onnx_aot.export(model, (X,), dynamic_shapes=({0: "n"},), **options)
    return str(caught.value)


@pytest.fixture
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is time for the first capture only."""
    monkeypatch.setattr(time_limits, "FACTOR", 1.0)
    monkeypatch.setattr(time_limits, "ALLOWANCE", 0.0)


@pytest.fixture
def ends_runs(no_time: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run after the first one is begun, and ended."""
    monkeypatch.setattr(TimeLimit, "allows", lambda self, what, runs=1: True)


@pytest.mark.usefixtures("no_time")
def test_attempts_are_left_out() -> None:
    said = refuse(loops)
    assert "fix: the number of iterations" in said
    assert f" s: {STRICT}; the search for all places that need values of data. A ref" in said
    assert "strategies=('non-strict', 'strict')" in said


@pytest.mark.usefixtures("no_time")
def test_both_sides_of_a_branch_are_left_out() -> None:
    said = refuse(branches)
    assert "fix: choose with torch.where" in said
    assert " s: a capture, since the model branches on its data; " in said


@pytest.mark.usefixtures("no_time")
def test_named_strategies_are_carried_out() -> None:
    said = refuse(loops_twice, strategies=("non-strict", "strict"))
    assert "in 2 places" in said
    assert "left out" not in said


@pytest.mark.usefixtures("no_time")
def test_dimensions_are_refused_in_the_words_of_torch() -> None:
    def fixes_size(x: Tensor) -> Tensor:
        return x.reshape(4, -1)

    with pytest.raises(DynamicShapeError, match=r"left out .*a capture, since the sizes of"):
        onnx_aot.export(fixes_size, (X,), dynamic_shapes=({0: torch.export.Dim("n")},))


@pytest.mark.usefixtures("no_time")
def test_a_result_that_is_wrong_for_empty_tensors_is_improved() -> None:
    program = onnx_aot.export(asks_for_zero, (X,), dynamic_shapes=({0: "n"},))
    empty = torch.empty(0, 3)
    torch.testing.assert_close(program(empty)[0], asks_for_zero(empty))


@pytest.mark.usefixtures("ends_runs")
def test_runs_are_ended() -> None:
    said = refuse(loops_twice)
    assert "in one place" in said
    assert f" s: {STRICT}; the search for all places that need values of data. A ref" in said


@pytest.mark.usefixtures("ends_runs")
def test_models_that_catch_the_end_are_left_out() -> None:
    def catches(x: Tensor) -> Tensor:
        try:
            y = x * 2
        except Exception:
            y = x
        return loops(y)

    assert STRICT in refuse(catches).rpartition("left out after")[2]


def test_the_first_path_leaves_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run stops at a branch on data, and a path through the whole model is longer."""
    seconds = iter([0.0, 0.0, 1.0, 2.0, 22.0, 100.0])
    monkeypatch.setattr("time.thread_time", lambda: next(seconds))
    limit = TimeLimit()
    limit.begin_run()
    limit.complete_run()
    with limit.measure_path():
        limit.check()
    assert limit.largest == 65.0
    with pytest.raises(time_limits._OutOfTimeError):
        limit.check()


def test_a_path_that_takes_long_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first capture ends before the loop."""

    def branches_early(x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x * 2
        for _ in range(400):
            x = x.sin()
        return x

    onnx_aot.export(branches, (X,))  # what is imported and compiled once is not measured
    monkeypatch.setattr(time_limits, "FACTOR", 6.0)
    monkeypatch.setattr(time_limits, "ALLOWANCE", 0.0)
    program = onnx_aot.export(branches_early, (X,))
    for x in (X, -X):
        torch.testing.assert_close(program(x)[0], branches_early(x))


def test_without_a_limit_nothing_is_left_out() -> None:
    limit = TimeLimit(applies=False)
    limit.begin_run()
    limit.complete_run()
    assert limit.allows("more", 10**9)
    limit.check()
    assert limit.describe() is None


def test_slow_first_captures_leave_room(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([0.0, 0.0, 10.0, 20.0, 20.0, 34.0])
    monkeypatch.setattr("time.thread_time", lambda: next(seconds))
    limit = TimeLimit()
    limit.begin_run()
    limit.complete_run()
    assert limit.largest == 35.0
    assert limit.allows("a second run")
    assert not limit.allows("two more", runs=2)
    assert "left out after 34 s: two more. A refusal takes at most 3 times" in str(limit.describe())


def test_a_longer_capture_leaves_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run stops at a branch on data, and the second captures both sides."""
    seconds = iter([0.0, 0.0, 1.0, 1.0, 11.0, 11.0, 12.0])
    monkeypatch.setattr("time.thread_time", lambda: next(seconds))
    limit = TimeLimit()
    limit.begin_run()
    limit.complete_run()
    assert limit.largest == 8.0
    limit.begin_run()
    limit.complete_run(is_captured=True)
    assert limit.largest == 35.0
    limit.begin_run()
    limit.complete_run(is_captured=True)
    assert limit.largest == 35.0


ENDED_AT_EACH_CHECK = """
import os, sys, warnings
import torch
import onnx_aot
from onnx_aot.capture.time_limits import TimeLimit, _OutOfTimeError

warnings.simplefilter("ignore")
state = {}

def check(self):
    if state["inside"]:
        state["seen"] += 1
    if state["seen"] >= state["end"]:
        self.ended = True
        raise _OutOfTimeError

class Upscales(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(4, 1, 1))

    def forward(self, x):
        x = x * self.scale
        state["inside"] = True
        y = torch.nn.functional.pixel_shuffle(x, 2)
        z = x.permute(0, 2, 3, 1).contiguous().flatten(1, 2).transpose(1, 2)
        state["inside"] = False
        return y, z

def export(end):
    state.update(inside=False, seen=0, end=end)
    try:
        shapes = ({0: "batch", 2: "height", 3: "width"},)
        onnx_aot.export(Upscales(), (torch.rand(2, 4, 5, 7),), dynamic_shapes=shapes)
    except Exception:
        assert state["seen"] >= end

TimeLimit.check = check
TimeLimit.largest = property(lambda self: 100.0)
export(10**6)
assert state["seen"]
for end in range(1, state["seen"] + 1):
    child = os.fork()
    if not child:
        export(end)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, end
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_an_end_at_any_check_leaves_the_process_alive() -> None:
    """C++ code of torch asks for devices and sizes too, and crashes if an exception leaves it."""
    ran = subprocess.run(
        [sys.executable, "-c", ENDED_AT_EACH_CHECK], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
