"""``onnx-aot export``, called as by a user."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch

from tests.cli.conftest import run


def test_export_with_inputs_on_the_command_line(folder: Path) -> None:
    done = run(
        folder,
        "export",
        "my_models:encoder",
        "--input",
        "ids:int64[batch,seq]",
        "--input",
        "mask:float32[batch,seq]",
        "-o",
        "model.onnx",
        "--verify",
        "--opset",
        "18",
        "--report",
        "reports",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "in   ids: INT64[batch,seq]" in done.stdout
    assert "saved to model.onnx" in done.stdout
    assert done.stderr == ""  # no progress, color or logging without a terminal
    model = onnx.load(folder / "model.onnx")
    assert model.opset_import[0].version == 18
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    ids, mask = torch.randint(0, 100, (4, 5)), torch.rand(4, 5)
    (output,) = session.run(None, {"ids": ids.numpy(), "mask": mask.numpy()})
    assert output.shape == (4, 5, 8)
    (report,) = (folder / "reports").iterdir()
    assert report.name.endswith("_success.md")


def test_options_about_sizes_state_and_weights(folder: Path) -> None:
    arguments = ["export", "my_models:counter", "--input", "x:float32[rows,3]", "-o", "m.onnx"]
    arguments += ["--state", "io", "--weight-as-input", "sc*", "--runtime-checks"]
    refused = run(folder, *arguments)
    assert refused.returncode == 1
    assert "x, axis 0" in refused.stderr
    assert "my_models.py" in refused.stderr
    done = run(folder, *arguments, "--on-specialized", "warn")
    assert done.returncode == 0, done.stderr
    assert "x, axis 0" in done.stderr
    model = onnx.load(folder / "m.onnx")
    assert [value.name for value in model.graph.input] == ["x", "count", "scale"]
    assert model.graph.output[1].name == "count_out"


@pytest.mark.parametrize("factory", ["with_inputs", "with_keywords"])
def test_export_with_inputs_from_the_factory(folder: Path, factory: str) -> None:
    arguments = ["export", f"my_models:{factory}", "-o", "model.onnx", "--strategy", "strict"]
    arguments += ["--module-as-function", "torch.nn.modules.sparse.Embedding"]
    done = run(folder, *arguments)
    assert done.returncode == 0, done.stderr
    onnx.checker.check_model(str(folder / "model.onnx"), full_check=True)
    assert [f.name for f in onnx.load(folder / "model.onnx").functions] == ["Embedding"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["my_models", "-o", "m.onnx"], "'my_models' is not of the form"),
        (["my_model:encoder", "-o", "m.onnx"], "there is no module 'my_model'"),
        (["my_models:decoder", "-o", "m.onnx"], "my_models has no 'decoder'"),
        (["my_models:nothing", "-o", "m.onnx"], "my_models:nothing returns int"),
        (["my_models:encoder", "-o", "m.onnx"], "do not fit forward(ids, mask=None)"),
        (["my_models:encoder", "--input", "ids", "-o", "m.onnx"], "NAME:DTYPE[SIZES]"),
        (
            ["my_models:encoder", "--input", "ids:int[n]", "-o", "m.onnx", "--opset", "3"],
            "11 to 28",
        ),
    ],
)
def test_wrong_usage_exits_with_2(folder: Path, arguments: list[str], message: str) -> None:
    done = run(folder, "export", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "m.onnx").exists()


def test_a_failed_export_exits_with_1(folder: Path) -> None:
    done = run(
        folder, "export", "my_models:branches", "--input", "x:float32[n]", "-o", "m.onnx",
        "--report", "."
    )  # fmt: skip
    assert done.returncode == 1
    assert "onnx-aot: the model could not be captured" in done.stderr
    assert "Traceback" not in done.stderr
    (path,) = folder.glob("onnx_export_*_pt_export.md")
    assert f"\nThe report is in ./{path.name}\nSee: onnx-aot explain OA101\n" in done.stderr
    for said in ("return x.long() if x.sum() > 0 else x", "with the same dtype"):
        assert said in done.stderr
        assert said in path.read_text(encoding="utf-8")


def test_a_report_that_is_printed_is_in_no_file(folder: Path) -> None:
    done = run(folder, "report", "my_models:branches", "--input", "x:float32[n]")
    assert done.returncode == 1
    assert done.stdout.startswith("# ONNX export of my_models.Branches: failed\n")
    assert "needs values of its data" in done.stdout
    assert "The report is in" not in done.stderr
