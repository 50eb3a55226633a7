"""``onnx-aot doctor``."""

from __future__ import annotations

import json
from importlib import metadata
from typing import Any

import pytest

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
