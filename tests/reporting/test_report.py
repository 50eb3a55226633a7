"""Contents of an export's report: as a dataclass, as JSON and as text."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import CaptureError, InvalidOptionError, OnnxExporterWarning, OpsetError
from onnx_aot.reporting.failures import failure_of
from tests.inspection.broken_models import UnknownOperator
from tests.reporting.reported_models import X, exported


def test_what_a_report_holds() -> None:
    report = exported(verify=True, output_names=["y"]).report
    assert report is not None
    assert (report.schema, report.succeeded, report.failure) == (1, True, None)
    assert report.model == "tests.reporting.reported_models.Block"
    how = {use.target: (use.count, use.how) for use in report.operators}
    assert how["aten.relu.default"] == (1, "custom")
    assert how["aten.gelu.default"] == (1, "direct")
    assert how["aten.special_xlog1py.default"] == (1, "decomposed")
    asked = {row.what: (row.asked, row.delivered) for row in report.delivered}
    assert asked["opset_version"] == ("the default", "20")
    assert asked["dynamic dimensions"][1] == "rows, picked"
    assert asked["output_names"] == ("y", "y")
    assert report.dimensions["picked"]["max"] == 64
    assert [value.name for value in report.inputs] == ["x", "index"]
    assert report.contents is not None
    assert report.contents.operators["Gelu"] == 1
    assert ("weight", "FLOAT[4]", 16) in report.largest
    assert report.verification is not None
    assert report.verification.ok
    assert report.versions["torch"] == torch.__version__
    stages = {stage.name: stage for stage in report.stages}
    assert stages["Save"].status == "not reached"
    assert stages["Translate operators to ONNX"].seconds > 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.model = "another"  # type: ignore[misc]


def test_json_and_text_say_the_same(tmp_path: Path) -> None:
    report = exported(verify=True).report
    assert report is not None
    found = json.loads(report.to_json())
    assert set(found) == {field.name for field in dataclasses.fields(report)}
    assert found["verification"]["results"][0]["differences"][0]["within"] is True
    path = report.save(tmp_path / "new")
    assert path == str(tmp_path / "new" / report.file_name)
    text = Path(path).read_text(encoding="utf-8")
    assert text == report.to_markdown()
    for row in ("`aten.relu.default`            | 1     | yours", "## Dynamic dimensions", "rows"):
        assert row in text
    assert text.splitlines()[3].startswith("model     opset 20, ")


def test_programs_from_files_have_none(tmp_path: Path) -> None:
    exported(f=tmp_path / "model.onnx")
    assert onnx_aot.ONNXProgram.load(tmp_path / "model.onnx").report is None


def test_fusions_and_what_the_target_needed() -> None:
    def norm(x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt((x - mean).pow(2).mean(-1, keepdim=True) + 1e-5)

    report = onnx_aot.export(norm, (X,)).report
    assert report is not None
    (fusion,) = report.fusions
    assert (fusion.op_type, fusion.count) == ("LayerNormalization", 1)
    assert fusion.replaced > 5
    assert "| LayerNormalization | 1 " in report.to_markdown()
    report = onnx_aot.export(nn.Sigmoid(), (X.bfloat16(),)).report
    assert report is not None
    (adapted,) = report.adaptations
    assert (adapted.op_type, adapted.surrogate) == ("Sigmoid", "FLOAT")
    assert "| Sigmoid | BFLOAT16 " in report.to_markdown()


# --- failures ------------------------------------------------------------------------------------


def test_a_failure_is_reported_where_a_folder_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(onnx_aot.errors.UnsupportedOperatorError) as caught:
        onnx_aot.export(UnknownOperator(), (X,))
    assert "The report is in" not in str(caught.value)
    assert not list(tmp_path.iterdir())
    with pytest.raises(onnx_aot.errors.UnsupportedOperatorError):
        onnx_aot.export(UnknownOperator(), (X,), report=True)
    (path,) = tmp_path.iterdir()
    assert path.name.endswith("_conversion.md")
    onnx_aot.export(nn.ReLU(), (X,), artifacts_dir=tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_all_that_is_missing_is_listed(tmp_path: Path) -> None:
    with pytest.raises(onnx_aot.errors.UnsupportedOperatorError) as caught:
        onnx_aot.export(UnknownOperator(), (X,), artifacts_dir=tmp_path)
    (detail,) = failure_of(caught.value, "", "").details
    assert detail.what == "broken.sharpen.default (2x)"
    assert [(place.module, place.node) for place in detail.places] == [
        ("blocks.0", "sharpen"),
        ("blocks.1", "sharpen_1"),
    ]
    (path,) = tmp_path.iterdir()
    assert f"```python\n{detail.stub}\n```" in path.read_text(encoding="utf-8")


def test_several_things_that_an_opset_lacks() -> None:
    def forward(x: Tensor) -> Tensor:
        return x & 3

    with pytest.raises(OpsetError) as caught:
        onnx_aot.export(forward, (torch.arange(4),), opset_version=17)
    failure = failure_of(caught.value, "", "")
    assert failure.fix == "pass opset_version=18 or higher"
    assert failure.places[0].code == "return x & 3"
    (detail,) = failure.details
    assert detail.what == "aten.__and__.Scalar (1x)"


def test_wrong_options_are_reported_too(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="The report is in"):
        onnx_aot.export(nn.ReLU(), (X,), opset_version=3, artifacts_dir=tmp_path)
    (path,) = tmp_path.iterdir()
    assert "cause  InvalidOptionError: opset_version is 3" in path.read_text(encoding="utf-8")


def test_a_bug_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*args: Any) -> None:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr("onnx_aot.translate.translate", breaks)
    with pytest.raises(ZeroDivisionError) as caught:
        onnx_aot.export(nn.ReLU(), (X,), artifacts_dir=tmp_path)
    (path,) = tmp_path.iterdir()
    if sys.version_info >= (3, 11):
        assert caught.value.__notes__ == [f"The report is in {path}"]
    text = path.read_text(encoding="utf-8")
    assert "cause  ZeroDivisionError: on purpose\nfix    this may be a bug of onnx_aot" in text
    assert "in breaks" in text


def test_a_model_that_fails_by_itself_is_as_before() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))
            self.seen: list[int] = []

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            self.seen.append(1)
            return x @ x

    model, x = Counts(), torch.rand(2, 3)
    with pytest.raises(CaptureError, match="fails on the example inputs by itself"):
        onnx_aot.export(model, (x,))
    assert (model.calls, model.seen) == (0, [])


# --- pieces --------------------------------------------------------------------------------------


def test_a_report_that_is_not_asked_for_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any) -> None:
        raise AssertionError("a report was made")

    monkeypatch.setattr("onnx_aot.reporting.report.build_report", never)
    onnx_aot.export(nn.ReLU(), (X,))
    with pytest.warns(OnnxExporterWarning, match="AssertionError: a report was made"):
        onnx_aot.export(nn.ReLU(), (X,), report=True)  # a failing report does not lose the program


def test_a_warning_says_that_the_folder_cannot_be_written(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("")
    with (
        pytest.warns(OnnxExporterWarning, match="could not write the report"),
        pytest.raises(onnx_aot.errors.UnsupportedOperatorError) as caught,
    ):
        onnx_aot.export(UnknownOperator(), (X,), artifacts_dir=taken)
    assert "The report is in" not in str(caught.value)
