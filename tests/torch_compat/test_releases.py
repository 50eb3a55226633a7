"""Limitations and bugs of torch releases are reported, and exports continue."""

from __future__ import annotations

import ast
import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import onnx_aot
from onnx_aot import torch_compat
from onnx_aot.capture import patches
from onnx_aot.capture.patches import PATCHES
from onnx_aot.errors import CaptureError
from onnx_aot.torch_compat import Patch, hidden
from onnx_aot.torch_compat.places import Attribute
from tests.cli.conftest import call
from tests.releases import TORCH

X = torch.arange(12.0).reshape(4, 3)

# Translated operators that some releases lack. A misspelled name here would be one that no release
# has.
LACKING = {
    (2, 12): (
        "aten.linalg_matrix_sqrth.default",
        "aten.linalg_polar.default",
        "higher_order.switch",
    ),
    (2, 13): (
        "aten.linalg_matrix_sqrth.default",
        "aten.linalg_polar.default",
        "higher_order.switch",
    ),
    (2, 14): ("aten.cholesky.default",),
    (2, 15): ("aten.cholesky.default",),
}
OFF = {
    (2, 12): {
        "torch._dynamo.config:inline_single_use_invoke_subgraph",
    },
}

# --- operators -----------------------------------------------------------------------------------


@pytest.mark.skipif(TORCH not in LACKING, reason="not a tested release")
def test_nothing_else_is_lacking() -> None:
    # in a separate process, because test tools look up names that no release has
    code = "from onnx_aot.ops.families import import_all_families; "
    code += "from onnx_aot.capture.patches import capabilities; import_all_families(); "
    code += "found = capabilities(); print(found.tested, "
    code += "found.operators, [off.name for off in found.off], sep=';')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    tested, operators, off = map(ast.literal_eval, done.stdout.strip().split(";"))
    assert tested
    assert operators == LACKING[TORCH]
    assert set(off) == OFF.get(TORCH, set())


def test_tested_releases_are_those_of_the_list() -> None:
    assert tuple(f"{major}.{minor}" for major, minor in LACKING) == torch_compat.TESTED


# --- rows that cannot be applied -----------------------------------------------------------------

_ROW = next(row for row in PATCHES if row.name == "torch.export._trace:print")


def test_what_is_switched_off_is_in_the_report_and_in_doctor() -> None:
    with hidden(_ROW.name):
        program = onnx_aot.export(torch.nn.Linear(3, 2).eval(), (X,))
        done = call("doctor")
    assert program.report is not None
    note = f"switched off with this release of torch: {_ROW.name}: it does not exist. "
    assert note + _ROW.without in program.report.to_markdown()
    assert done.exit_code == 0
    assert _ROW.name in done.stdout
    assert _ROW.without in " ".join(done.stdout.split())


def test_a_release_that_is_not_tested_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for release, tested in {"2.13.1+cpu": True, "2.99.0": False}.items():
        with monkeypatch.context() as patched:
            patched.setattr(torch, "__version__", release)
            assert torch_compat.is_tested() == tested
    monkeypatch.setattr(torch_compat.releases, "TESTED", ("2.0", "2.1"))
    program = onnx_aot.export(torch.nn.Linear(3, 2).eval(), (X,))
    assert program.report is not None
    told = f"torch {torch.__version__} is not among the releases"
    assert told in program.report.to_markdown()
    done = call("doctor")
    assert done.exit_code == 0  # it may work nonetheless
    assert told in done.stdout


# --- captures that fail in this package ----------------------------------------------------------


class Host:
    """Stands in for a part of torch that models call during a capture."""

    @staticmethod
    def scale(x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Host.scale(x)


def _broken(original: Any, settings: Any) -> Any:
    """A replacement in this package that no longer works."""
    code = "def replaced(x):\n    raise TypeError('torch has another way now')"
    space: dict[str, Any] = {}
    exec(compile(code, str(Path(patches.__file__)), "exec"), space)
    return space["replaced"]


def _with_broken_row(monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    row = Patch(
        "a place",
        _broken,
        "Nothing.",
        places=lambda settings: [Attribute(Host, "scale")],
        **options,
    )
    monkeypatch.setattr(patches, "PATCHES", (*PATCHES, row))


def test_a_capture_that_fails_in_this_package_is_made_again_without_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _with_broken_row(monkeypatch)
    with pytest.warns(onnx_aot.OnnxExporterWarning, match="bug of onnx_aot; please report it"):
        program = onnx_aot.export(Scaled(), (X,), dynamic_shapes=({0: "n"},))
    torch.testing.assert_close(program(X[:2])[0], X[:2] * 2)
    assert program.report is not None
    assert "TypeError: torch has another way now" in program.report.to_markdown()


def test_a_failure_that_stays_is_a_bug_of_this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_broken_row(monkeypatch, optional=False)
    with pytest.raises(CaptureError) as caught:
        onnx_aot.export(Scaled(), (X,))
    said = str(caught.value)
    assert "captures the model and onnx_aot does not" in said
    assert "onnx_aot.export(torch.export.export(model, args))" in said
    assert "shows the failure without this package" not in said
    assert isinstance(caught.value.__cause__, TypeError)
    # following the advice works
    program = onnx_aot.export(torch.export.export(Scaled(), (X,)))
    torch.testing.assert_close(program(X)[0], X * 2)


def test_a_failure_of_torch_is_shown_to_be_one() -> None:
    class Particular(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.__class__ is not torch.Tensor:
                raise RuntimeError("I take tensors, and nothing else")
            return x

    with pytest.raises(CaptureError) as caught:
        onnx_aot.export(Particular(), (X,), strategies=("non-strict",))
    said = str(caught.value)
    assert "torch.export.export(model, args) shows the failure" in said
    assert "bug of onnx_aot" not in said


def test_a_row_that_is_off_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    row = dataclasses.replace(_ROW, places=None, exists=None, name="torch.nn.functional:relu")
    monkeypatch.setattr(
        patches, "PATCHES", (*PATCHES, dataclasses.replace(row, parameters="input, out"))
    )
    program = onnx_aot.export(torch.nn.ReLU().eval(), (X,))
    assert program.report is not None
    assert "relu: its parameters are (input, inplace)" in program.report.to_markdown()
