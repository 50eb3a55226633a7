"""The command line, as a user types it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch

from onnx_aot.cli.factory import InputSpec, build_model, example_inputs, parse_input
from onnx_aot.errors import InvalidOptionError

MODELS = """
    import torch

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(100, 8)

        def forward(self, ids, mask=None):
            x = self.embedding(ids)
            return x if mask is None else x * mask.unsqueeze(-1)

    def encoder():
        torch.manual_seed(0)
        return Encoder()

    def with_inputs():
        return encoder(), (torch.zeros(2, 3, dtype=torch.int64),)

    def with_keywords():
        return encoder(), (), {"ids": torch.zeros(2, 3, dtype=torch.int64)}

    def nothing():
        return 3

    class Branches(torch.nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x

    branches = Branches()

    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))
            self.scale = torch.nn.Parameter(torch.ones(3))

        def forward(self, x):
            self.count += 1
            y = x * self.scale + self.count
            return y + 1 if x.shape[0] == 2 else y

    def counter():
        return Counter(), (torch.zeros(4, 3),)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_models.py").write_text(textwrap.dedent(MODELS), encoding="utf-8")
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from onnx_aot.cli import main; main()", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


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
    assert done.stderr == ""  # no progress, colour or logging when nobody watches
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
        (["my_models", "-o", "m.onnx"], "'my_models' is not of the form package.module:factory"),
        (["my_model:encoder", "-o", "m.onnx"], "there is no module 'my_model'"),
        (["my_models:decoder", "-o", "m.onnx"], "my_models has no 'decoder'"),
        (["my_models:nothing", "-o", "m.onnx"], "my_models:nothing gives int"),
        (["my_models:encoder", "-o", "m.onnx"], "do not fit forward(ids, mask=None)"),
        (["my_models:encoder", "--input", "ids", "-o", "m.onnx"], "NAME:DTYPE[SIZES]"),
        (
            ["my_models:encoder", "--input", "ids:int[n]", "-o", "m.onnx", "--opset", "3"],
            "17 to 25",
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
    assert list(folder.glob("onnx_export_*_pt_export.md"))


def test_help(folder: Path) -> None:
    done = run(folder, "--help")
    assert done.returncode == 0
    assert "export" in done.stdout
    done = run(folder, "export", "--help")
    assert "--input" in done.stdout
    assert "--verify" in done.stdout


def test_parse_input() -> None:
    assert parse_input("ids:int64[batch, 128]") == InputSpec("ids", "int64", ("batch", 128), 0, 1)
    assert parse_input("x:float32[]").sizes == ()
    assert parse_input("ids:int64[n]=-3..9")[3:] == (-3, 9)
    for wrong in ("ids", "ids:int64", "ids:int64[n]=3", "ids int64[n]"):
        with pytest.raises(InvalidOptionError, match="is not understood"):
            parse_input(wrong)
    with pytest.raises(InvalidOptionError, match=r"the range 5\.\.2 is empty"):
        parse_input("ids:int64[n]=5..2")


def test_example_inputs() -> None:
    specs = [parse_input(t) for t in ("a:float32[n,m,4]", "b:int32[m]=5..9", "c:bool[k,n]")]
    tensors = example_inputs(specs)
    assert {name: tuple(t.shape) for name, t in tensors.items()} == {
        "a": (2, 3, 4),
        "b": (3,),
        "c": (5, 2),
    }
    assert tensors["b"].dtype == torch.int32
    assert 5 <= int(tensors["b"].min()) <= int(tensors["b"].max()) <= 9
    with pytest.raises(InvalidOptionError, match="torch has no type 'flot32'"):
        example_inputs([parse_input("x:flot32[2]")])


def test_an_import_error_inside_the_user_s_module_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_more.py").write_text("import not_installed_here", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_installed_here"):
        build_model("needs_more:factory")
