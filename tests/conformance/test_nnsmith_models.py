"""Models of nnsmith are drawn, judged and counted; ``nox -s conformance`` tries many more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from conformance import judging
from conformance.judging import judge_export
from conformance.nnsmith_models import Chunk, Counted
from onnx_aot import ONNXProgram

RIGHT = ("right", "")


def test_models_are_drawn_judged_and_counted(tmp_path: Path) -> None:
    """In a process of its own, since nnsmith sets handlers and seeds."""
    pytest.importorskip("nnsmith", reason="conformance/nnsmith.txt is not installed")
    output = tmp_path / "found.json"
    command = [sys.executable, "-m", "conformance.nnsmith_models", "--models", "4"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    for _ in range(2):  # the second run finds all of them counted
        done = subprocess.run(
            [*command, "--output", output], capture_output=True, text=True, check=False, env=env
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(output.read_text())
        assert found["models"] + sum(found["not generated"].values()) == 4
        assert found["static"]["right"] >= 2
        assert sum(found["dynamic"].values()) == found["models"]


def test_outcomes_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0")
    output = tmp_path / "found.json"
    counted = Counted.read(output)
    judged = [
        {"static": RIGHT, "dynamic": ("refused", "CaptureError: x")},
        {"static": RIGHT, "dynamic": ("wrong", "at {}: differs")},
        {"static": ("explained", "rounding"), "dynamic": ("reported", "NaN")},
        {"drawn": ("failed", "InternalError")},
        {"outcome": "crash", "reason": "ended with -6"},
    ]
    counted.add(Chunk(20, 5), judged)
    found = json.loads(output.read_text())
    assert (found["models"], found["not generated"]) == (4, {"InternalError": 1})
    assert found["static"] == {"right": 2, "explained": 1}
    assert found["dynamic"] == {"refused": 1, "wrong": 1, "reported": 1}
    assert found["refused"] == {"CaptureError: x": 1}
    assert found["explained"] == ["22, static: rounding"]
    assert found["failures"] == ["21, dynamic: at {}: differs", "24: crash: ended with -6"]
    rest = Counted.read(output).unfinished(range(45))
    assert rest == [Chunk(0, 20), Chunk(40, 5)]


class Positions(torch.nn.Module):
    """Finds the largest element after the square roots."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sqrt().argmax(-1)


def test_differences_on_nan_that_the_report_names() -> None:
    x = torch.tensor([[4.0, -1.0, 9.0]])
    outcome, text = judge_export(Positions(), (x,), {}, {"args": (x,)})
    assert outcome == "reported", text
    assert judge_export(Positions(), (x.abs(),), {}, {"args": (x.abs(),)}) == RIGHT


def test_other_differences_of_the_same_operator_are_failures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = ONNXProgram.__call__

    def shift(self: ONNXProgram, *args: object, **kwargs: object) -> object:
        return tuple(value + 1 for value in call(self, *args, **kwargs))

    run = ONNXProgram._run
    monkeypatch.setattr(ONNXProgram, "__call__", shift)
    monkeypatch.setattr(ONNXProgram, "_run", lambda *a: tuple(v + 1 for v in run(*a)))
    monkeypatch.setattr(judging, "LENGTH", 5000)
    x = torch.tensor([[4.0, 1.0, 9.0]])
    assert judge_export(Positions(), (x,), {}, {"args": (x,)})[0] == "wrong"
