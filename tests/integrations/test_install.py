"""Callers of ``torch.onnx.export`` use this package, and torch gets its function back."""

from __future__ import annotations

import inspect
import io
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
import torch.onnx
import torch.utils._pytree as pytree

import onnx_aot
from onnx_aot.errors import CaptureError, InferenceError, InvalidOptionError

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
        return x.long() if x.sum() > 0 else x

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


class Counting(torch.nn.Module):
    """Writes to a buffer and to its second input."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor, cache: Tensor) -> Tensor:
        self.count += 1
        cache[0] = x
        return x * 2 + cache.sum()


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_outputs_are_those_of_the_model() -> None:
    """Callers that count outputs, or read the last ones, get the same as from torch."""
    inputs = (torch.randn(4), torch.randn(2, 4))
    with (
        onnx_aot.installed(),
        pytest.warns(
            onnx_aot.OnnxExporterWarning, match=r"writes to count, cache; .* are not outputs"
        ),
    ):
        program = torch.onnx.export(Counting().eval(), inputs, output_names=["y"])
    theirs = ORIGINAL(Counting().eval(), inputs, output_names=["y"], verbose=False)
    assert [v.name for v in theirs.model.graph.outputs] == ["y"]
    assert [v.name for v in program.outputs] == ["y"]
    torch.testing.assert_close(program(*inputs)[0], Counting().eval()(inputs[0], inputs[1].clone()))
    with onnx_aot.installed():
        replaced: Any = torch.onnx.export
    with pytest.warns(onnx_aot.OnnxExporterWarning, match="extra outputs"):
        program = replaced(Counting().eval(), inputs, state="outputs")
    assert len(program.outputs) == 3


def test_calls_as_libraries_write_them(tmp_path: Path) -> None:
    """All data goes into a file object; options of both exporters are passed together."""
    model, x = torch.nn.Conv2d(3, 8, 3).eval(), torch.randn(1, 3, 16, 16)
    buffer = io.BytesIO()
    with onnx_aot.installed():
        torch_export: Any = torch.onnx.export
        program = torch_export(
            model,
            x,
            buffer,
            export_params=True,
            opset_version=17,
            do_constant_folding=True,
            input_names=["images"],
            output_names=["features"],
            dynamic_axes={"images": {0: "batch", 2: "h"}, "features": {0: "batch"}},
            keep_initializers_as_inputs=False,
            verbose=False,
            dynamo=True,
            report=True,
            optimize=True,
            verify=True,
            artifacts_dir=tmp_path,
        )
    saved = onnx.load_from_string(buffer.getvalue())
    onnx.checker.check_model(saved, full_check=True)
    assert all(not tensor.external_data for tensor in saved.graph.initializer)
    assert [str(v) for v in program.inputs] == ["images: float32[batch, 3, h, 16]"]
    assert [path.suffix for path in tmp_path.iterdir()] == [".md"]
    x = torch.randn(3, 3, 20, 16)
    torch.testing.assert_close(program(x)[0], model(x))


class Dropping(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout())

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return y


@pytest.mark.filterwarnings("error")
def test_defaults_of_the_older_exporter_ask_for_nothing() -> None:
    """Libraries that serve several releases of torch give all options, also those of the older."""
    model, x = Dropping().eval(), torch.randn(2, 4)
    older = {
        "training": torch.onnx.TrainingMode.EVAL,
        "operator_export_type": torch.onnx.OperatorExportTypes.ONNX,
        "do_constant_folding": True,
        "autograd_inlining": True,
        "keep_initializers_as_inputs": None,
    }
    with onnx_aot.installed():
        torch_export: Any = torch.onnx.export
        program = torch_export(model, (x,), **older)
        torch_export(model, (x,), training=torch.onnx.TrainingMode.PRESERVE)
    torch.testing.assert_close(program(x)[0], model(x))
    with onnx_aot.installed(), pytest.warns(onnx_aot.OnnxExporterWarning, match="use optimize"):
        torch_export(model, (x,), do_constant_folding=False)


def test_training_mode_as_the_model_has_it() -> None:
    x = torch.randn(2, 4)
    training = torch.onnx.TrainingMode.TRAINING
    with onnx_aot.installed():
        torch_export: Any = torch.onnx.export
        with pytest.warns(onnx_aot.OnnxExporterWarning, match="captured in training mode"):
            torch_export(Dropping().train(), (x,), training=training)
        with pytest.raises(InvalidOptionError, match=r"call model\.eval\(\) or model\.train\(\)"):
            torch_export(Dropping().eval(), (x,), training=training)


def test_an_opset_below_the_lowest() -> None:
    with onnx_aot.installed():
        torch_export: Any = torch.onnx.export
        with pytest.warns(onnx_aot.OnnxExporterWarning, match="is 9, and the model has opset 11"):
            program = torch_export(torch.nn.Linear(4, 3), torch.randn(2, 4), opset_version=9)
        for wrong in (0, 99, "17"):
            with pytest.raises(InvalidOptionError):
                torch_export(torch.nn.Linear(4, 3), torch.randn(2, 4), opset_version=wrong)
    assert program.model.opset_imports[""] == 11


@pytest.mark.filterwarnings("error")
def test_dynamic_shapes_and_dynamic_axes_for_both_exporters() -> None:
    """torch.onnx reads the first; with ``dynamic_shapes=None`` it reads the second."""
    model, x = torch.nn.Linear(4, 3).eval(), torch.randn(2, 4)
    axes = {"x": {0: "rows"}, "y": {0: "rows"}}
    with onnx_aot.installed():
        torch_export: Any = torch.onnx.export
        for shapes, name in ((({0: "n"},), "n"), (None, "rows")):
            program = torch_export(
                model,
                (x,),
                input_names=["x"],
                output_names=["y"],
                dynamic_axes=axes,
                dynamic_shapes=shapes,
            )
            assert str(program.inputs[0]) == f"x: float32[{name}, 4]"


# --- dynamo=False --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
def test_calls_of_the_older_exporter(tmp_path: Path) -> None:
    """The model is exported in evaluation mode, with its weights in one file, as they expect."""
    model, path = Dropping().train(), tmp_path / "m.onnx"
    model.layers[0].eval()
    with onnx_aot.installed(torchscript=True):
        torch.onnx.export(
            model,
            torch.randn(2, 4),
            str(path),
            dynamo=False,
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": {0: "n"}, "y": {0: "n"}},
        )
    assert torch.onnx.export is ORIGINAL
    assert onnx.load(path).producer_name == "onnx_aot"
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.onnx"]
    assert [module.training for module in model.modules()] == [True, True, False, True]
    x = torch.randn(5, 4)
    (got,) = onnx_aot.ONNXProgram.load(path)(x)
    torch.testing.assert_close(got, model.eval()(x))


def test_the_mode_that_the_older_exporter_is_asked_for() -> None:
    x, modes = torch.randn(2, 4), torch.onnx.TrainingMode
    with onnx_aot.installed(torchscript=True):
        torch_export: Any = torch.onnx.export
        for model, mode in ((Dropping(), modes.PRESERVE), (Dropping().eval(), modes.TRAINING)):
            before = model.training
            with pytest.warns(onnx_aot.OnnxExporterWarning, match="captured in training mode"):
                torch_export(model, (x,), io.BytesIO(), dynamo=False, training=mode)
            assert model.training is before
        doubled = torch_export(lambda x: x * 2, (x,), io.BytesIO(), dynamo=False)
    torch.testing.assert_close(doubled(x)[0], x * 2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_install_serves_can_change(tmp_path: Path) -> None:
    model, x, path = Dropping().eval(), torch.randn(2, 4), str(tmp_path / "m.onnx")
    producers = []
    onnx_aot.install()
    with onnx_aot.installed(torchscript=True):
        torch.onnx.export(model, x, path, dynamo=False)
        producers.append(onnx.load(path).producer_name)
    for torchscript in (False, True):
        onnx_aot.install(torchscript=torchscript)
        torch.onnx.export(model, x, path, dynamo=False)
        producers.append(onnx.load(path).producer_name)
    onnx_aot.uninstall()
    assert torch.onnx.export is ORIGINAL
    assert producers == ["onnx_aot", "pytorch", "onnx_aot"]


# --- key-value caches ----------------------------------------------------------------------------


def _with_cache(name: str) -> tuple[onnx_aot.ONNXProgram, Any]:
    """Returns a program with a cache input, whose class is new in each call, and a cache."""

    class Cache:
        def __init__(self) -> None:
            self.key_cache, self.value_cache = [torch.ones(2, 3)], [torch.ones(2, 3)]

    Cache.__qualname__ = name

    def total(cache: Cache) -> Tensor:
        return cache.key_cache[0] + cache.value_cache[0]

    return onnx_aot.export(total, (Cache(),)), Cache()


def test_caches_are_left_to_the_library_meanwhile() -> None:
    program, cache = _with_cache("Forgotten")
    assert type(cache) in pytree.SUPPORTED_NODES
    with onnx_aot.installed():
        assert type(cache) not in pytree.SUPPORTED_NODES
        with onnx_aot.installed():
            pass
        assert type(cache) not in pytree.SUPPORTED_NODES
    torch.testing.assert_close(program(cache)[0], torch.full((2, 3), 2.0))


def test_what_a_library_registers_stays() -> None:
    program, cache = _with_cache("Registered")
    with onnx_aot.installed():
        pytree.register_pytree_node(type(cache), lambda c: (c.key_cache, None), lambda c, _: cache)
    leaves = pytree.tree_leaves(cache)
    assert len(leaves) == 1
    with pytest.raises(InferenceError, match="structured differently"):
        program(cache)
