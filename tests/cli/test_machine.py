"""``onnx-aot doctor``."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch

import onnx_aot
from tests.cli.conftest import call


def test_what_is_installed_here_works() -> None:
    done = call("doctor")
    assert done.exit_code == 0, done.stdout
    assert "exported, and right at another size" in done.stdout
    assert done.stdout.isascii()


def test_a_version_that_does_not_fit_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    version = metadata.version

    def other(name: str) -> Any:
        return "0.1.0" if name == "onnxscript" else version(name)

    monkeypatch.setattr(metadata, "version", other)
    done = call("doctor", "--json")
    assert done.exit_code == 1
    (problem,) = [row for row in json.loads(done.stdout) if not row["ok"]]
    assert problem["subject"] == "onnxscript"
    assert problem["advice"].startswith("python -m pip install 'onnxscript")


def test_what_is_missing_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    version = metadata.version

    def other(name: str) -> Any:
        if name in ("onnxruntime", "rich"):
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", other)
    rows = json.loads(call("doctor", "--json").stdout)
    assert [row["subject"] for row in rows if not row["ok"]] == ["onnxruntime"]


def test_an_export_that_fails_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken\nin many ways")

    monkeypatch.setattr("onnx_aot.export", failing)
    done = call("doctor")
    assert done.exit_code == 1
    assert "PROBLEM  RuntimeError: broken" in done.stdout


def test_releases_that_load_a_model(tmp_path: Path) -> None:
    path = str(tmp_path / "model.onnx")
    onnx_aot.export(torch.nn.GELU(), (torch.ones(3),), path, opset_version=20)
    result = call("doctor", path)
    assert result.exit_code == 0
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in result.stdout.splitlines()}
    assert lines["onnxruntime==1.16"] == "does not load opset 20; it loads up to 19"
    assert lines["onnxruntime==1.32"] == "loads"
    shown = json.loads(call("doctor", path, "--json").stdout)
    assert shown[0] == {"target": "onnxruntime==1.16", "reasons": ["opset 20; it loads up to 19"]}


def test_a_model_that_the_installed_release_does_not_load(tmp_path: Path) -> None:
    path = str(tmp_path / "model.onnx")
    x = torch.ones(3, dtype=torch.bfloat16)
    onnx_aot.export(torch.nn.Tanh(), (x,), path, target=None)
    result = call("doctor", path)
    assert result.exit_code == 1
    assert "no kernel for Tanh of BFLOAT16 (1x, first " in result.stdout


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"not a model")
    for given in (path, tmp_path / "missing.onnx"):
        result = call("doctor", str(given))
        assert result.exit_code == 2
        assert "Traceback" not in result.output
        assert given.name in result.output
