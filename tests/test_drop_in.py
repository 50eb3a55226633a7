"""What calls ``torch.onnx.export`` runs on this package, and torch gets its function back."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
import torch.onnx

import onnx_aot
from onnx_aot.errors import CaptureError

Tensor = torch.Tensor
ORIGINAL = torch.onnx.export


class Doubled(torch.onnx.ExportableModule):
    def forward(self, x: Tensor, *, scale: Tensor) -> Tensor:
        return x * 2 * scale

    def example_arguments(self) -> Any:
        return (torch.randn(3, 4),), {"scale": torch.ones(4)}

    def dynamic_shapes(self) -> Any:
        return {"x": {0: "batch"}, "scale": None}

    def input_names(self) -> Any:
        return ("image", "factor")

    def output_names(self) -> Any:
        return ("doubled",)


@pytest.fixture(autouse=True)
def _restored() -> Any:
    yield
    torch.onnx.export = ORIGINAL


def test_a_library_that_calls_torch_onnx(tmp_path: Path) -> None:
    model, x = torch.nn.Linear(40, 30).eval(), torch.randn(2, 40)
    with onnx_aot.installed():
        program = torch.onnx.export(
            model, x, tmp_path / "m.onnx", dynamo=True, dynamic_shapes=({0: "n"},), verbose=False
        )
        assert inspect.signature(torch.onnx.export) == inspect.signature(ORIGINAL)
    assert torch.onnx.export is ORIGINAL
    assert isinstance(program, onnx_aot.ONNXProgram)
    assert onnx.load(tmp_path / "m.onnx").producer_name == "onnx_aot"
    assert (tmp_path / "m.onnx.data").exists()  # torch's default
    torch.testing.assert_close(program(torch.ones(5, 40))[0], model(torch.ones(5, 40)))


def test_install_twice_and_uninstall() -> None:
    onnx_aot.uninstall()
    assert torch.onnx.export is ORIGINAL
    onnx_aot.install()
    replaced = torch.onnx.export
    onnx_aot.install()
    assert torch.onnx.export is replaced is not ORIGINAL
    with onnx_aot.installed():
        pass
    assert torch.onnx.export is replaced  # as before
    onnx_aot.uninstall()
    assert torch.onnx.export is ORIGINAL


def test_a_context_that_ends_with_an_error_restores() -> None:
    with pytest.raises(KeyError), onnx_aot.installed():
        raise KeyError
    assert torch.onnx.export is ORIGINAL


def test_errors_are_torchs_too() -> None:
    def branches(x: Tensor) -> Tensor:
        return x + 1 if x.sum() > 0 else x

    with onnx_aot.installed(), pytest.raises(torch.onnx.OnnxExporterError) as caught:
        torch.onnx.export(branches, (torch.ones(3),))
    assert isinstance(caught.value, CaptureError)
    assert type(caught.value).__name__ == "CaptureError"
    assert __file__ in str(caught.value)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_other_exporter_is_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "m.onnx")
    with onnx_aot.installed():
        torch.onnx.export(torch.nn.Linear(4, 3).eval(), torch.randn(2, 4), path, dynamo=False)
    assert onnx.load(path).producer_name == "pytorch"


def test_an_exportable_module() -> None:
    model, scale = Doubled().eval(), torch.rand(4)
    with onnx_aot.installed():
        installed = model.to_onnx(opset_version=18)
    for program in (installed, onnx_aot.export(model, opset_version=18)):
        assert isinstance(program, onnx_aot.ONNXProgram)
        assert [str(v) for v in program.inputs] == [
            "image: float32[batch, 4]",
            "factor: float32[4]",
        ]
        assert [v.name for v in program.outputs] == ["doubled"]
        x = torch.randn(5, 4)
        torch.testing.assert_close(program(x, scale=scale)[0], model(x, scale=scale))


def test_what_is_given_goes_before_what_the_module_says() -> None:
    given = onnx_aot.export(Doubled(), input_names=["a", "b"], output_names=["c"])
    assert [v.name for v in (*given.inputs, *given.outputs)] == ["a", "b", "c"]
    x, scale = torch.randn(2, 4), torch.ones(4)
    own = onnx_aot.export(Doubled(), (x,), kwargs={"scale": scale})
    assert [str(v) for v in own.inputs] == ["x: float32[2, 4]", "scale: float32[4]"]
