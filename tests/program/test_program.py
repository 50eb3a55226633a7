"""``ONNXProgram``: running, inspecting and modifying a model."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch

import onnx_aot
from onnx_aot.errors import InferenceError, InvalidOptionError, OnnxExporterWarning
from onnx_aot.program import program as program_module
from tests.tolerances import assert_close

Tensor = torch.Tensor
X = torch.randn(4, 3)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, x: Tensor, scale: float = 2.0) -> tuple[Tensor, Tensor]:
        y = self.linear(x)
        return y.relu() * scale, y.argmax(1)


@pytest.fixture(scope="module")
def net() -> Net:
    return Net()


@pytest.fixture
def program(net: Net) -> onnx_aot.ONNXProgram:
    return onnx_aot.export(net, (X,), dynamic_shapes=({0: "batch"},))


def test_attributes(program: onnx_aot.ONNXProgram) -> None:
    assert isinstance(program, onnx_aot.ONNXProgram)
    assert isinstance(program.model, ir.Model)
    assert isinstance(program.exported_program, torch.export.ExportedProgram)
    assert isinstance(program.model_proto, onnx.ModelProto)
    assert program.model.producer_name == "onnx_aot"
    assert program.model.producer_version == onnx_aot.__version__


def test_repr(program: onnx_aot.ONNXProgram) -> None:
    assert repr(program).splitlines() == [
        f"ONNXProgram(opset 20, {len(program.model.graph)} nodes, 3 initializers, 36 bytes)",
        "  in   x: FLOAT[batch,3]",
        "  out  mul: FLOAT[batch,2]",
        "  out  argmax: INT64[batch]",
    ]


def test_call_and_reference(program: onnx_aot.ONNXProgram, net: Net) -> None:
    for size in (1, 4, 9):
        x = torch.randn(size, 3)
        for run in (program, program.call_reference):
            for actual, expected in zip(run(x), net(x), strict=True):
                assert actual.dtype == expected.dtype
                assert_close(actual, expected)


def test_inputs_that_are_constants_of_the_capture(net: Net) -> None:
    program = onnx_aot.export(net, (X, 3.0))
    torch.testing.assert_close(program(X, 3.0)[0], net(X, 3.0)[0])
    program = onnx_aot.export(net, (X,), kwargs={"scale": 0.5})
    torch.testing.assert_close(program(X, scale=0.5)[0], net(X, 0.5)[0])


def test_weights_are_the_module_s_until_the_program_is_saved(net: Net, tmp_path: Path) -> None:
    changing = copy.deepcopy(net)
    program = onnx_aot.export(changing, (X,))
    independent = onnx_aot.export(copy.deepcopy(changing), (X,))
    program.save(tmp_path / "before.onnx")
    before = program(X)[0]
    with torch.no_grad():
        changing.linear.weight.add_(1)
    after = changing(X)[0]
    assert not torch.allclose(before, after)
    for kept in (program, independent, onnx_aot.ONNXProgram.load(tmp_path / "before.onnx")):
        torch.testing.assert_close(kept(X)[0], before)
    program.save(tmp_path / "after.onnx")
    program.release()
    for changed in (program, onnx_aot.ONNXProgram.load(tmp_path / "after.onnx")):
        torch.testing.assert_close(changed(X)[0], after)


@pytest.mark.parametrize("scale", [2.0, None, torch.ones(2)])
def test_a_constant_that_differs_from_the_captured_one(net: Net, scale: Any) -> None:
    program = onnx_aot.export(net, (X, 3.0))
    with pytest.raises(InferenceError, match=r"scale was 3\.0 when the model was captured"):
        program(X, scale)


def test_compute_values(program: onnx_aot.ONNXProgram, net: Net) -> None:
    weight, linear, relu = program.compute_values(["linear.weight", "linear", "relu"], (X,))
    torch.testing.assert_close(weight, net.linear.weight.data)
    torch.testing.assert_close(linear, net.linear(X))
    torch.testing.assert_close(relu, net.linear(X).relu())
    assert [value.name for value in program.model.graph.outputs] == ["mul", "argmax"]
    with pytest.raises(InvalidOptionError, match="no value 'nothing'"):
        program.compute_values(["nothing"], (X,))


def test_compute_values_gives_memory_of_its_own(program: onnx_aot.ONNXProgram, net: Net) -> None:
    names = ["x", "mul", "x", "linear.weight", "mul"]
    x, mul, again, weight, _ = program.compute_values(names, (X.clone(),))
    assert torch.equal(x, X)
    assert torch.equal(again, X)
    torch.testing.assert_close(mul, net(X)[0])
    weight.zero_()
    torch.testing.assert_close(program(X)[0], net(X)[0])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((), r"was captured with \(x\); it was called with \(\)"),
        ((X, X, X), r"was captured with \(x\); it was called with \(\.\.\., \.\.\., \.\.\.\)"),
        (("a",), "x was a tensor .*; 'a' was given"),
        ((X.to(torch.float64),), "input x is torch.float32 .*; torch.float64 was given"),
        ((X[0],), r"input x .*\[batch,3\] .*; \[3\] was given"),
        ((X[:, :2],), r"input x .*\[batch,3\] .*; \[4, 2\] was given"),
    ],
)
def test_inputs_that_do_not_fit(program: onnx_aot.ONNXProgram, inputs: Any, message: str) -> None:
    for run in (program, program.call_reference):
        with pytest.raises(InferenceError, match=message):
            run(*inputs)


def test_sessions(program: onnx_aot.ONNXProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    made = []

    def make(model: str | bytes) -> onnxruntime.InferenceSession:
        made.append(model)
        return onnxruntime.InferenceSession(model)

    program.initialize_inference_session(make)
    program(X)
    assert isinstance(made[-1], bytes)
    monkeypatch.setattr(program_module, "EXTERNAL_THRESHOLD", -1)
    program.initialize_inference_session(make)
    program(X)
    path = made[-1]
    assert isinstance(path, str)
    onnx.load(path)
    program.release()
    with pytest.raises(FileNotFoundError):
        onnx.load(path)


def test_edits_of_the_model_count_after_release(program: onnx_aot.ONNXProgram) -> None:
    before = program(X)[0]
    relu = next(node for node in program.model.graph if node.op_type == "Relu")
    relu.op_type = "Neg"
    torch.testing.assert_close(program(X)[0], before)
    program.release()
    assert not torch.equal(program(X)[0], before)


def test_apply_weights(program: onnx_aot.ONNXProgram) -> None:
    other = Net()
    program(X)
    program.apply_weights(other.state_dict())
    torch.testing.assert_close(program(X)[0], other(X)[0])
    with pytest.warns(OnnxExporterWarning, match="no weight 'nothing'; not applied"):
        program.apply_weights({"nothing": X})
    with pytest.raises(
        InvalidOptionError, match=r"linear.weight is FLOAT\[2,3\] .*FLOAT\[3,3\] was"
    ):
        program.apply_weights({"linear.weight": torch.zeros(3, 3), "linear.bias": torch.ones(2)})
    torch.testing.assert_close(program(X)[0], other(X)[0])  # nothing was replaced


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 3, bias=False)
        self.second = torch.nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x) + 2 * self.second(x)


def test_apply_tied_weights() -> None:
    program = onnx_aot.export(Tied(), (X,))
    assert len(program.model.graph.initializers) == 2  # the weight and the number 2
    with pytest.raises(InvalidOptionError, match=r"first.weight are one weight .*two different"):
        program.apply_weights({"first.weight": torch.eye(3), "second.weight": torch.ones(3, 3)})
    weights = {"first.weight": torch.eye(3), "second.weight": torch.eye(3)}
    program.apply_weights(weights)
    torch.testing.assert_close(program(X)[0], 3 * X)
    program.apply_weights({"second.weight": 2 * torch.eye(3)})
    torch.testing.assert_close(program(X)[0], 6 * X)


def test_apply_weights_goes_by_the_names_in_the_module() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))
            self.weight_1 = torch.nn.Parameter(torch.ones(3))

        def forward(self, weight: Tensor) -> Tensor:
            return weight * self.weight + 10 * self.weight_1

    program = onnx_aot.export(Net(), (torch.ones(3),))
    program.apply_weights({"weight": torch.full((3,), 5.0), "weight_1": torch.full((3,), 7.0)})
    assert program(torch.ones(3))[0].tolist() == [75.0] * 3


class Gated(torch.nn.Module):
    """Reads numbers from its weights, which decide what it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = torch.nn.Parameter(torch.tensor([1.0]))
        self.scale = torch.nn.Parameter(torch.tensor([2.0]))
        self.register_buffer("power", torch.tensor(2))

    def forward(self, x: Tensor) -> Tensor:
        return x ** self.power.item() * self.scale if self.gate > 0 else x


@pytest.mark.parametrize("name", ["gate", "power"])
def test_apply_weights_refuses_others_than_the_code_of_the_module_read(name: str) -> None:
    program = onnx_aot.export(Gated(), (X,))
    weights = {**Gated().state_dict(), "scale": torch.tensor([5.0])}
    program.apply_weights(weights)
    assert_close(program(X)[0], X**2 * 5)
    with pytest.raises(InvalidOptionError, match=f"reads numbers from {name}, so"):
        program.apply_weights({"scale": torch.tensor([7.0]), name: weights[name] - 3})
    assert_close(program(X)[0], X**2 * 5)


def test_apply_weights_passes_over_what_the_model_does_not_use() -> None:
    module = torch.nn.BatchNorm1d(3).eval()
    program = onnx_aot.export(module, (X,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program.apply_weights(module.state_dict())


def test_optimize_is_what_export_does(net: Net) -> None:
    class Repeats(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x + 1).relu() + (x + 1).relu()

    program = onnx_aot.export(Repeats(), (X,), optimize=False)
    assert len(program.model.graph) == 5
    program(X)
    program.optimize()
    assert len(program.model.graph) == 3
    torch.testing.assert_close(program(X)[0], Repeats()(X))


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.float64,
        torch.float16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
        torch.bfloat16,
        torch.float8_e4m3fn,
    ],
)
def test_every_type_goes_in_and_comes_out(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 1, 0]).to(dtype)
    program = onnx_aot.export(lambda value: value.clone(), (x,))
    (result,) = program(x)
    assert result.dtype == dtype
    assert torch.equal(result.view(torch.uint8), x.view(torch.uint8))


def test_transposed_weights_are_saved_in_order() -> None:
    class Transposed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(3, 50).t())

        def forward(self, x: Tensor) -> Tensor:
            return self.weight + x

    module = Transposed()
    assert not module.weight.is_contiguous()
    program = onnx_aot.export(module, (torch.zeros(3),))
    torch.testing.assert_close(program(torch.zeros(3))[0], module.weight.data)


def test_no_warning_in_ordinary_use(net: Net) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        onnx_aot.export(net.eval(), (X,), dynamic_shapes=({0: "batch"},))(X)


class Tagger(torch.nn.Module):
    """A recurrent layer beside a memory, which may be empty."""

    def __init__(self, kind: type[torch.nn.RNNBase]) -> None:
        super().__init__()
        self.layer = kind(4, 3, num_layers=2, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        states: Tensor = self.layer(x)[0]
        return states + memory.sum()


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_an_empty_batch_that_ends_the_process_is_refused(kind: type[torch.nn.RNNBase]) -> None:
    model = Tagger(kind).eval()
    inputs = (torch.randn(2, 5, 4), torch.randn(3, 2))
    shapes = ({0: "batch", 1: "steps"}, {0: "rows"})
    program = onnx_aot.export(model, inputs, dynamic_shapes=shapes)
    given = (torch.randn(3, 2, 4), torch.randn(0, 2))
    assert_close(program(*given)[0], model(*given))
    message = rf"dimension batch \(input x, axis 0\) is 0; .* kernel of {kind.__name__}"
    with pytest.raises(InferenceError, match=message):
        program(torch.randn(0, 5, 4), inputs[1])


def test_an_empty_sequence_that_ends_the_process_is_refused() -> None:
    model = torch.nn.GRU(4, 3, batch_first=True).eval()
    program = onnx_aot.export(
        model, (torch.randn(2, 5, 4),), dynamic_shapes=({0: "batch", 1: "steps"},)
    )
    message = r"dimension steps \(input input, axis 1\) is 0; .* ends the process if the sequence"
    with pytest.raises(InferenceError, match=message):
        program(torch.randn(2, 0, 4))
