"""What the report of an export holds, as a dataclass, as JSON and as text."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import CaptureError, InvalidOptionError, OnnxExporterWarning, OpsetError
from onnx_aot.reporting.failures import failure_of
from onnx_aot.reporting.markdown import fenced, table
from onnx_aot.reporting.record import ExportRecord, resident_memory
from onnx_aot.reporting.repro_script import inputs_as_python
from onnx_aot.torch_compat import aten
from tests.inspection.broken_models import UnknownOperator


class Block(nn.Module):
    """Every way in which an operator is translated, in a class that a script can import."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(4.0))

    def forward(self, x: Tensor, scale: Tensor | None = None, *, index: Tensor) -> Tensor:
        y = torch.nn.functional.gelu(x * self.weight) if scale is None else x * scale
        return torch.ops.aten.special_xlog1py(y.relu(), x.double()).float()[index]


X, INDEX = torch.rand(3, 4), torch.tensor([2, 0])


def exported(**options: Any) -> onnx_aot.ONNXProgram:
    return onnx_aot.export(
        Block().eval(),
        (X,),
        kwargs={"index": INDEX},
        dynamic_shapes={"x": {0: "rows"}, "index": {0: torch.export.Dim("picked", max=64)}},
        custom_translation_table={aten.relu.default: relu},
        **options,
    )


def relu(op: Any, self: Any) -> Any:
    return op.Relu(self)


def test_what_a_report_holds() -> None:
    report = exported(verify=True, output_names=["y"]).report
    assert report is not None
    assert (report.schema, report.succeeded, report.failure) == (1, True, None)
    assert report.model == "tests.reporting.test_report.Block"
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
    with pytest.raises(CaptureError, match="it fails on the example inputs by itself"):
        onnx_aot.export(model, (x,))
    assert (model.calls, model.seen) == (0, [])


# --- the script ----------------------------------------------------------------------------------


def script_of(text: str) -> str:
    found = re.search(r"^## Repeat it\n.*?^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "repeat.py"
    path.write_text(code, encoding="utf-8")
    command = [sys.executable, str(path)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_script_of_a_success_runs(tmp_path: Path) -> None:
    report = exported(opset_version=21).report
    assert report is not None
    assert "picked = torch.export.Dim('picked', max=64)" in report.script
    done = run(script_of(report.to_markdown()), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ONNXProgram(opset 21" in done.stdout
    assert "in   index: INT64[picked]" in done.stdout


def test_the_script_of_a_failure_fails_alike(tmp_path: Path) -> None:
    with pytest.raises(onnx_aot.errors.UnsupportedOperatorError):
        onnx_aot.export(UnknownOperator(), (X,), artifacts_dir=tmp_path)
    (path,) = tmp_path.iterdir()
    with pytest.raises(onnx_aot.errors.UnsupportedOperatorError, match=r"broken\.sharpen"):
        exec(script_of(path.read_text(encoding="utf-8")), {})


def test_layers_of_torch_are_made_by_what_they_print() -> None:
    report = onnx_aot.export(nn.Linear(4, 3).train(), (X,)).report
    assert report is not None
    assert "model = torch.nn.Linear(in_features=4, out_features=3, bias=True).train()\n" in (
        report.script
    )


def test_a_model_that_cannot_be_made_is_to_be_filled_in() -> None:
    class Local(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 1

    for model, says in (
        (Local(), f"it is {Local.__qualname__}, defined at {__file__}:"),
        (nn.Sequential(nn.ReLU()), "write here how the model is made: Sequential(*args"),
        (torch.export.export(Local(), (X,)), "it is an object of ExportedProgram"),
        (NeedsSize(3), "NeedsSize(size: 'int', bias: 'bool' = True)"),
    ):
        report = onnx_aot.export(model, (X,)).report
        assert report is not None
        assert says in report.script
        (line,) = [line for line in report.script.splitlines() if line.startswith("raise")]
        assert line.startswith("raise SystemExit(")
        assert "It stops at what is to be filled in." in report.to_markdown()


class NeedsSize(nn.Module):
    def __init__(self, size: int, bias: bool = True) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def test_inputs_as_python() -> None:
    args = (
        torch.rand(2, 3),
        [torch.rand(1).half(), torch.tensor([3, 7])],
        {"mask": torch.zeros(2, dtype=torch.bool), "z": torch.zeros(1, dtype=torch.complex64)},
        (2.5, None, "text", True, float("inf")),
        torch.zeros(2, dtype=torch.uint16),
        torch.zeros(0, dtype=torch.int32),
    )
    code = inputs_as_python(args, {"key": torch.float16})
    made: dict[str, Any] = {"torch": torch}
    exec(code, made)
    assert made["kwargs"] == {"key": torch.float16}

    def described(value: Any) -> Any:
        return (value.dtype, value.shape) if isinstance(value, Tensor) else value

    leaves = torch.utils._pytree.tree_leaves
    assert [described(v) for v in leaves(made["args"])] == [described(v) for v in leaves(args)]
    assert set(made["args"][1][1].tolist()) <= {3, 4, 5, 6, 7}
    assert "raise SystemExit('write here how args are made: there is an object of" in (
        inputs_as_python((object(),), None)
    )


# --- pieces --------------------------------------------------------------------------------------


def test_text_of_users_does_not_break_the_markdown() -> None:
    assert fenced("```python\nx\n```") == "````\n```python\nx\n```\n````"
    assert table(("a",), [("x | y\nz",)]).splitlines()[2] == "| x \\| y z |"


def test_memory_of_a_stage() -> None:
    if resident_memory() is None:
        pytest.skip("the system does not say how much memory a process has")
    record = ExportRecord("", "")
    with record.stage("capture"):
        kept = torch.ones(8 << 20)
    memory = record.stages["capture"].memory
    assert memory is not None
    assert memory > 0.9 * kept.nbytes


def test_a_report_that_is_not_asked_for_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any) -> None:
        raise AssertionError("a report was made")

    monkeypatch.setattr("onnx_aot.reporting.report.build_report", never)
    onnx_aot.export(nn.ReLU(), (X,))
    with pytest.warns(OnnxExporterWarning, match="AssertionError: a report was made"):
        onnx_aot.export(nn.ReLU(), (X,), report=True)  # what fails about a report costs no program


def test_a_warning_says_that_the_folder_cannot_be_written(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("")
    with (
        pytest.warns(OnnxExporterWarning, match="could not write the report"),
        pytest.raises(onnx_aot.errors.UnsupportedOperatorError) as caught,
    ):
        onnx_aot.export(UnknownOperator(), (X,), artifacts_dir=taken)
    assert "The report is in" not in str(caught.value)
