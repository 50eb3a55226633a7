"""Models in the process of another environment, as releases of ONNX Runtime run."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from conformance import __main__ as command
from conformance import other_releases
from conformance.other_releases import OtherSession, Release, find_release
from tests.tolerances import assert_close

HERE = Release("onnxruntime", sys.executable)
"""The release of this process, in a process of its own."""


class Sorted(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, places = torch.sort(x)
        return values * 2, places


def _program() -> onnx_aot.ONNXProgram:
    return onnx_aot.export(Sorted(), (torch.randn(3, 4),), dynamic_shapes=({0: "n"},))


def test_a_program_runs_in_another_process() -> None:
    program = _program()
    program.initialize_inference_session(initializer=functools.partial(OtherSession, HERE))
    assert isinstance(program._session, OtherSession)
    results = []
    for count in (3, 1, 5):
        x = torch.randn(count, 4)
        results.append((program(x), Sorted()(x)))
    for found, expected in results:  # results of earlier calls keep their memory
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)


def test_its_errors_are_raised_here() -> None:
    with pytest.raises(RuntimeError, match=r"InvalidProtobuf|INVALID_PROTOBUF"):
        OtherSession(HERE, b"not a model")
    session = OtherSession(HERE, _program().model_proto.SerializeToString())
    with pytest.raises(RuntimeError, match="Required inputs"):
        session.run_with_ort_values(None, {}, None)


def test_a_crash_is_an_error_and_the_next_model_gets_a_new_process() -> None:
    model = _program().model_proto.SerializeToString()
    session = OtherSession(HERE, model)
    other_releases._servers[HERE.python].kill()
    with pytest.raises(RuntimeError, match="ended with exit code -9"):
        session.run_with_ort_values(None, {}, None)
    OtherSession(HERE, model)


def test_a_release_without_an_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="nox -s targets makes it"):
        find_release("1.16")


def test_results_of_a_release_are_not_those_of_the_installed_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["conformance", "--release", "1.16", "--output", "x.json"])
    with pytest.raises(SystemExit):
        command.main()
    assert "--output is for the installed ONNX Runtime" in capsys.readouterr().err
