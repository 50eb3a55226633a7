"""``onnx_aot.export``: arguments, results, and objects that it leaves unchanged."""

from __future__ import annotations

import inspect
import io
import logging
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch

import onnx_aot
from onnx_aot.errors import (
    CaptureError,
    InvalidOptionError,
    OnnxExporterError,
    OnnxExporterWarning,
    VerificationError,
)
from tests.releases import HIGHEST_OPSET
from tests.tolerances import assert_close

Tensor = torch.Tensor


class Affine(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, x: Tensor, scale: Tensor | None = None, *, bias: Any = None) -> Tensor:
        y = self.linear(x)
        if scale is not None:
            y = y * scale
        return y if bias is None else y + bias


X, SCALE = torch.randn(4, 3), torch.randn(2)


def input_names(program: onnx_aot.ONNXProgram) -> list[str | None]:
    return [value.name for value in program.model.graph.inputs]


def output_names(program: onnx_aot.ONNXProgram) -> list[str | None]:
    return [value.name for value in program.model.graph.outputs]


# --- the signature -------------------------------------------------------------------------------


def test_takes_every_parameter_of_torch_onnx_export() -> None:
    ours = inspect.signature(onnx_aot.export).parameters
    theirs = inspect.signature(torch.onnx.export).parameters
    retired = {
        "training",
        "operator_export_type",
        "do_constant_folding",
        "autograd_inlining",
    }
    assert set(theirs) - set(ours) == retired
    assert list(ours)[:3] == list(theirs)[:3] == ["model", "args", "f"]
    for name in list(ours)[3:-1]:
        assert ours[name].kind is inspect.Parameter.KEYWORD_ONLY
    # passing artifacts_dir requests reports of failures
    same_defaults = set(ours) & set(theirs) - {"external_data", "artifacts_dir"}
    for name in same_defaults:
        assert ours[name].default == theirs[name].default, name


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ({"do_constant_folding": True}, "optimize"),
        ({"training": "EVAL"}, "model.eval"),
        ({"operator_export_type": "ONNX"}, "custom_translation_table"),
        ({"autograd_inlining": True}, "inlined"),
        ({"fallback": True}, "one exporter"),
        ({"dynamo": False}, "one exporter"),
    ],
)
def test_harmless_retired_options_warn(option: dict[str, Any], advice: str) -> None:
    with pytest.warns(OnnxExporterWarning, match=advice) as caught:
        onnx_aot.export(Affine(), (X,), **option)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ({"training": "TRAINING"}, "model.train"),
        ({"operator_export_type": "ONNX_ATEN"}, "custom_translation_table"),
        ({"operator_export_type": "ONNX_FALLTHROUGH"}, "unsupported=.emit"),
        ({"unsupported": "ignore"}, "unsupported is 'ignore'"),
        ({"export_modules_as_functions": "Linear"}, "set of classes"),
        ({"export_modules_as_functions": {"Lime"}}, "calls no module"),
        ({"autograd_inlining": False}, "inlined"),
        ({"opset": 18}, "did you mean opset_version"),
        ({"nonsense": 1}, "no option 'nonsense'"),
        ({"opset_version": 10}, "11 to 28"),
        ({"opset_version": 29}, "11 to 28"),
        ({"external_data": "always"}, "external_data is 'always'"),
    ],
)
def test_other_options_are_refused_by_name(option: dict[str, Any], advice: str) -> None:
    with pytest.raises(InvalidOptionError, match=advice):
        onnx_aot.export(Affine(), (X,), **option)


# --- models and inputs ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "kwargs", "names"),
    [
        (X, None, ["x"]),
        ((X,), None, ["x"]),
        ((X, SCALE), None, ["x", "scale"]),
        ((X,), {"scale": SCALE}, ["x", "scale"]),
        ((X, {"scale": SCALE}), None, ["x", "scale"]),
        ((X, {"bias": SCALE, "scale": SCALE}), None, ["x", "bias", "scale"]),
        ((), {"x": X, "bias": 2.0}, ["x"]),
    ],
)
def test_inputs(args: Any, kwargs: Any, names: list[str]) -> None:
    module = Affine()
    program = onnx_aot.export(module, args, kwargs=kwargs)
    assert input_names(program) == names
    if isinstance(args, Tensor):
        args = (args,)
    if args and isinstance(args[-1], dict):
        args, kwargs = args[:-1], args[-1]
    torch.testing.assert_close(program(*args, **(kwargs or {}))[0], module(*args, **(kwargs or {})))


def test_a_trailing_dict_that_names_no_parameter_is_an_argument() -> None:
    class TakesDict(torch.nn.Module):
        def forward(self, x: Tensor, options: dict[str, Tensor]) -> Tensor:
            return x + options["shift"]

    program = onnx_aot.export(TakesDict(), (X, {"shift": X}))
    assert input_names(program) == ["x", "options_shift"]
    torch.testing.assert_close(program(X, {"shift": X})[0], X + X)


def test_keywords_may_come_in_another_order_when_called() -> None:
    module = Affine()
    program = onnx_aot.export(module, (X,), kwargs={"scale": SCALE, "bias": SCALE + 1})
    torch.testing.assert_close(
        program(X, bias=SCALE + 1, scale=SCALE)[0], module(X, SCALE, bias=SCALE + 1)
    )


def test_inputs_that_do_not_fit_forward() -> None:
    with pytest.raises(InvalidOptionError, match=r"do not fit forward\(x"):
        onnx_aot.export(Affine(), (X, X, X))
    with pytest.raises(InvalidOptionError, match="args is int"):
        onnx_aot.export(Affine(), 3)  # type: ignore[arg-type]


def test_a_function() -> None:
    def doubled(value: Tensor) -> Tensor:
        return value * 2

    program = onnx_aot.export(doubled, (X,), dynamic_shapes={"value": {0: "rows"}})
    assert input_names(program) == ["value"]
    torch.testing.assert_close(program(X[:1])[0], X[:1] * 2)


def test_a_method_keeps_its_module_s_parameters() -> None:
    class TwoWays(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(3))

        def encode(self, x: Tensor) -> Tensor:
            return x * self.weight

    module = TwoWays()
    program = onnx_aot.export(module.encode, (X,))
    (weight,) = program.model.graph.initializers.values()
    assert weight.name == "model.weight"
    torch.testing.assert_close(program(X)[0], module.encode(X))


def test_an_exported_program() -> None:
    module = Affine()
    captured = torch.export.export(module, (X,))
    program = onnx_aot.export(captured)
    torch.testing.assert_close(program(X)[0], module(X))


def test_what_is_no_model() -> None:
    with pytest.raises(InvalidOptionError, match="model is int"):
        onnx_aot.export(3, (X,))  # type: ignore[arg-type]


# --- unchanged objects ---------------------------------------------------------------------------


class Stateful(torch.nn.Module):
    def __init__(self, fail: bool) -> None:
        super().__init__()
        self.fail = fail
        self.calls = 0
        self.cache: list[Tensor] = []
        self.seen: dict[str, Tensor] = {}
        self.nested: dict[str, list[Tensor]] = {"inner": []}
        self.plain = torch.zeros(3)
        self.register_buffer("total", torch.zeros(()))
        self.norm = torch.nn.BatchNorm1d(3)
        self.drop = torch.nn.Dropout()

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.cache.append(x)
        self.seen["x"] = x
        self.nested["inner"].append(x)
        self.last = x
        self.plain.add_(1)
        self.total.add_(1)
        y = self.norm(self.drop(x))
        if self.fail:
            raise ValueError("the model's own error")
        return y


@pytest.mark.parametrize("fail", [False, True])
@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.filterwarnings("ignore::onnx_aot.OnnxExporterWarning")
@pytest.mark.filterwarnings("ignore:The tensor attributes?:UserWarning")
def test_the_module_is_as_before(fail: bool, verify: bool) -> None:
    module = Stateful(fail).train()
    module.drop.eval()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    if fail:
        with pytest.raises(CaptureError, match="the model's own error"):
            onnx_aot.export(module, (X,), verify=verify)
    else:
        onnx_aot.export(module, (X,), verify=verify)
    assert module.training
    assert module.norm.training
    assert not module.drop.training
    assert module.calls == 0
    assert module.cache == []
    assert module.seen == {}
    assert module.nested == {"inner": []}
    assert module.plain.tolist() == [0.0, 0.0, 0.0]
    assert not hasattr(module, "last")
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name]), name
        assert type(tensor) is Tensor


def test_is_in_onnx_export() -> None:
    seen = []

    class Asks(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append((onnx_aot.is_in_onnx_export(), torch.onnx.is_in_onnx_export()))
            return x + 1 if onnx_aot.is_in_onnx_export() else x - 1

    assert not onnx_aot.is_in_onnx_export()
    program = onnx_aot.export(Asks(), (X,))
    assert set(seen) == {(True, True)}
    assert not onnx_aot.is_in_onnx_export()
    assert not torch.onnx.is_in_onnx_export()
    torch.testing.assert_close(program(X)[0], X + 1)


def test_is_in_onnx_export_in_a_model_that_only_strict_capture_takes() -> None:
    class Asks(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if not torch.compiler.is_dynamo_compiling():
                raise ValueError("not this way")
            return x + 1 if onnx_aot.is_in_onnx_export() else x - 1

    program = onnx_aot.export(Asks(), (X,))
    torch.testing.assert_close(program(X)[0], X + 1)


def test_a_tensor_that_is_a_plain_attribute_and_written() -> None:
    class Counts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = torch.zeros(3)

        def forward(self, x: Tensor) -> Tensor:
            self.count.add_(1)
            return x + self.count

    with pytest.warns(OnnxExporterWarning, match="new values are extra outputs"):
        program = onnx_aot.export(Counts(), (X,))
    torch.testing.assert_close(program(X)[0], X + 1)


# --- names ---------------------------------------------------------------------------------------


class ManyValues(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        softmax = torch.softmax(x * self.weight, -1)
        return softmax.exp(), softmax + y


def test_names_may_be_fewer() -> None:
    program = onnx_aot.export(ManyValues(), (X, X), input_names=["a"], output_names=["b"])
    assert input_names(program) == ["a", "y"]
    assert output_names(program) == ["b", "add"]


@pytest.mark.parametrize("taken", ["softmax", "mul", "weight", "exp", "x"])
def test_a_name_that_an_inner_value_has_is_the_user_s(taken: str) -> None:
    module = ManyValues()
    program = onnx_aot.export(module, (X, X), input_names=["i"], output_names=["o", taken])
    onnx.checker.check_model(program.model_proto, full_check=True)
    assert output_names(program) == ["o", taken]
    for actual, expected in zip(program(X, X), module(X, X), strict=True):
        torch.testing.assert_close(actual, expected)
    program = onnx_aot.export(module, (X, X), input_names=[taken], output_names=["o"])
    onnx.checker.check_model(program.model_proto, full_check=True)
    assert input_names(program) == [taken, "y"]
    torch.testing.assert_close(program(X, X)[1], module(X, X)[1])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"input_names": ["a", "b", "c", "d"]}, "4 names, the model has 2 inputs: a, b. .* weight"),
        ({"output_names": ["a", "b", "c"]}, "3 names, the model returns 2 values: a, b"),
        ({"input_names": ["a", "a"]}, "give a name twice: a"),
        ({"output_names": ["a", "a"]}, "give a name twice: a"),
        ({"input_names": ["a"], "output_names": ["a"]}, "both give a.* call the output a_out"),
        ({"input_names": "data"}, "input_names is 'data'; expected a list"),
        ({"input_names": {"a": "b"}}, "input_names is {'a': 'b'}; expected a list"),
        ({"output_names": [1]}, r"output_names is \[1\]; expected a list"),
    ],
)
def test_wrong_names(option: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        onnx_aot.export(ManyValues(), (X, X), **option)


class OddOutputs(torch.nn.Module):
    def forward(self, x: Tensor) -> Any:
        y = x + 1
        return {"same": x, "twice": [y, y], "number": 3, "none": None, "rows": x.shape[0]}


def test_outputs_that_are_inputs_duplicates_numbers_and_none() -> None:
    program = onnx_aot.export(OddOutputs(), (X,), dynamic_shapes=({0: "rows"},))
    onnx.checker.check_model(program.model_proto, full_check=True)
    same, first, second, number, rows = program(X[:2])
    torch.testing.assert_close(same, X[:2])
    torch.testing.assert_close(first, X[:2] + 1)
    torch.testing.assert_close(second, X[:2] + 1)
    assert (int(number), int(rows)) == (3, 2)
    assert len(set(output_names(program))) == 5


# --- opset ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", range(17, 26))
def test_the_opset_asked_for(opset: int) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.LayerNorm(4))
    program = onnx_aot.export(module, (X,), opset_version=opset)
    assert program.model.opset_imports == {"": opset}
    onnx.checker.check_model(program.model_proto, full_check=True)
    if opset <= HIGHEST_OPSET:
        assert_close(program(X)[0], module(X))


def test_the_default_opset() -> None:
    assert onnx_aot.export(Affine(), (X,)).model.opset_imports == {"": 20}


def test_an_operator_that_the_opset_does_not_have() -> None:
    from onnx_aot.errors import OpsetError

    def bits(x: Tensor) -> Tensor:
        return x & 3

    with pytest.raises(OpsetError, match=r"BitwiseAnd does not exist in opset 17: .* opset 18"):
        onnx_aot.export(bits, (torch.arange(4),), opset_version=17)


# --- files, reports, verification ----------------------------------------------------------------


def test_saves_to_a_path_and_to_a_file_object(tmp_path: Path) -> None:
    module = Affine()
    path = tmp_path / "model.onnx"
    onnx_aot.export(module, (X,), path)
    buffer = io.BytesIO()
    onnx_aot.export(module, (X,), buffer)
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]
    for model in (str(path), buffer.getvalue()):
        session = onnxruntime.InferenceSession(model)
        (output,) = session.run(None, {"x": X.numpy()})
        torch.testing.assert_close(torch.from_numpy(output), module(X))


def test_weights_left_out_or_listed_as_inputs(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx_aot.export(Affine(), (X,), path, export_params=False)
    graph = onnx.load(path).graph
    assert [tensor.name for tensor in graph.initializer] == []
    program = onnx_aot.export(Affine(), (X,), path, keep_initializers_as_inputs=True)
    graph = onnx.load(path).graph
    assert [value.name for value in graph.input] == ["x", "linear.weight", "linear.bias"]
    assert [tensor.name for tensor in graph.initializer] == ["linear.weight", "linear.bias"]
    assert input_names(program) == ["x"]


def test_verify(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"the right model")
    onnx_aot.export(Affine(), (X,), verify=True)

    def wrong(op: Any, self: Any) -> Any:
        return op.Neg(self)

    with pytest.raises(VerificationError, match=r"FAIL relu: max abs"):
        onnx_aot.export(
            torch.nn.ReLU(),
            (X,),
            path,
            verify=True,
            custom_translation_table={torch.ops.aten.relu.default: wrong},
        )
    assert path.read_bytes() == b"the right model"


def test_report(tmp_path: Path) -> None:
    onnx_aot.export(Affine(), (X,), report=True, verify=True, profile=True, artifacts_dir=tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("onnx_export_")
    assert path.name.endswith("_success.md")
    text = path.read_text(encoding="utf-8")
    assert text.isascii()
    assert text.startswith("# ONNX export of tests.test_export.Affine: succeeded")
    for part in ("## Stages", "`aten.linear.default`", "| Gemm", "## Verification", "cumulative"):
        assert part in text


def test_a_report_that_cannot_be_written_does_not_cost_the_program(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("")
    with pytest.warns(OnnxExporterWarning, match="could not write the report") as caught:
        program = onnx_aot.export(Affine(), (X,), report=True, artifacts_dir=taken)
    assert len(program.model.graph) > 0
    assert caught[0].filename == __file__
    with pytest.warns(OnnxExporterWarning, match="captured program could not be saved") as caught:
        onnx_aot.export(Affine(), (X,), dump_exported_program=True, artifacts_dir=taken)
    assert caught[0].filename == __file__


def test_the_report_lists_translations_that_nothing_uses(tmp_path: Path) -> None:
    def relu(op: Any, self: Any) -> Any:
        return op.Relu(self)

    aten = torch.ops.aten
    table = {aten.relu.default: relu, aten.selu.default: relu}
    onnx_aot.export(
        torch.nn.ReLU(), (X,), custom_translation_table=table, report=True, artifacts_dir=tmp_path
    )
    (report,) = tmp_path.iterdir()
    text = report.read_text(encoding="utf-8")
    assert "the rewritten graph does not: aten.selu.default (OA010)\n" in text


def test_dynamic_shapes_and_dynamic_axes() -> None:
    with pytest.raises(InvalidOptionError, match="two forms of the same request"):
        onnx_aot.export(Affine(), (X,), dynamic_shapes={"x": {0: "n"}}, dynamic_axes={"x": [0]})


def test_report_of_a_failure(tmp_path: Path) -> None:
    with pytest.raises(CaptureError):
        onnx_aot.export(Stateful(fail=True), (X,), report=True, artifacts_dir=tmp_path / "new")
    (path,) = (tmp_path / "new").iterdir()
    assert path.name.endswith("_pt_export.md")
    text = path.read_text(encoding="utf-8")
    assert "CaptureError: the model could not be captured" in text
    assert "the model's own error" in text


def test_dumps_the_captured_program(tmp_path: Path) -> None:
    module = Affine()
    onnx_aot.export(module, (X,), dump_exported_program=True, artifacts_dir=tmp_path)
    (path,) = tmp_path.iterdir()
    loaded = torch.export.load(path)
    torch.testing.assert_close(loaded.module()(X), module(X))


def test_verbose_prints_plain_lines_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    onnx_aot.export(Affine(), (X,), verbose=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "[onnx_aot] Translate operators to ONNX" in captured.err
    assert captured.err.isascii()
    onnx_aot.export(Affine(), (X,))
    assert capsys.readouterr().err == ""
    assert not logging.getLogger("onnx_aot").handlers


def test_every_error_is_an_exporter_error() -> None:
    from onnx_aot import errors

    for name in errors.__all__:
        kind = getattr(errors, name)
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert issubclass(kind, (OnnxExporterError, OnnxExporterWarning)), name
            assert name in errors.__doc__, name
