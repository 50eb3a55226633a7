"""Weights as inputs of the model: their selection, names and values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch

import onnx_aot
from onnx_aot.errors import InferenceError, InvalidOptionError, OnnxExporterWarning
from onnx_aot.metadata.keys import INPUT_KIND
from tests.translate.two_layers import Tensor, X, inputs_of, two_layers

# --- weights as inputs ---------------------------------------------------------------------------


def test_every_weight_is_an_input() -> None:
    model = two_layers()
    program = onnx_aot.export(
        model, (X,), weights_as_inputs=True, dynamic_shapes=({0: "rows"},), verify=True
    )
    graph = program.model.graph
    assert inputs_of(program) == [
        "x",
        "first.weight",
        "first.bias",
        "norm.weight",
        "norm.bias",
        "second.bias",
        "third.weight",  # a tied weight counts once; an unused one does not count
        "norm.running_mean",
        "norm.running_var",
    ]
    assert all(INPUT_KIND not in value.metadata_props for value in graph.initializers.values())
    assert "  in   first.bias: FLOAT[4] (weight)" in repr(program).splitlines()
    for rows in (1, 5, 8):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(program(x)[0], model(x))
    zero = torch.zeros(4)
    changed = program(X, **{"first.bias": zero, "norm.bias": zero})
    torch.testing.assert_close(program(X)[0], model(X))  # for a single call
    torch.nn.init.zeros_(model.first.bias)
    torch.nn.init.zeros_(model.norm.bias)
    torch.testing.assert_close(changed[0], model(X))
    other = two_layers()
    program.apply_weights(other.state_dict())
    torch.testing.assert_close(program(X)[0], other(X))
    with pytest.raises(InvalidOptionError, match=r"first\.bias is FLOAT\[4\] in the model"):
        program.apply_weights({"first.bias": torch.zeros(3)})
    with pytest.raises(InferenceError, match=r"input first\.bias has shape \[4\] in the model"):
        program(X, **{"first.bias": torch.zeros(3)})
    bias, product = program.compute_values(["first.bias", "linear"], (X,))
    torch.testing.assert_close(bias, other.first.bias.data)
    torch.testing.assert_close(product, other.first(X))


def test_weights_by_pattern_in_a_plain_session(tmp_path: Path) -> None:
    model, path = two_layers(), tmp_path / "model.onnx"
    program = onnx_aot.export(
        model, (X,), path, weights_as_inputs=["*.bias", "second.weight"], external_data=True
    )
    tied = "third.weight"  # the same tensor
    assert list(program.weights) == ["first.bias", "norm.bias", "second.bias", tied]
    session = onnxruntime.InferenceSession(path)
    feeds = {name: tensor.detach().numpy() for name, tensor in program.weights.items()}
    assert [value.name for value in session.get_inputs()] == ["x", *feeds]
    (result,) = session.run(None, {"x": X.numpy(), **feeds})
    torch.testing.assert_close(torch.from_numpy(result), model(X))
    (result,) = session.run(None, {"x": X.numpy(), **feeds, "first.bias": feeds["first.bias"] + 1})
    with torch.no_grad():
        model.first.bias += 1
    torch.testing.assert_close(torch.from_numpy(result), model(X))


def test_names_for_weights_that_are_inputs() -> None:
    program = onnx_aot.export(
        two_layers(), (X,), weights_as_inputs=["first.*"], input_names=["data", "w", "b", "scale"]
    )
    assert inputs_of(program) == ["data", "w", "b"]
    assert list(program.weights) == ["w", "b"]
    assert "scale" in program.model.graph.initializers  # other weights follow
    program(X, b=torch.zeros(4))
    program.apply_weights({"first.bias": torch.ones(4)})
    assert torch.equal(program.weights["b"], torch.ones(4))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["first.wieght"], r"has 'first.wieght', which matches no .*; did you mean first\.weight"),
        (["bias"], r"'bias', which matches no .*; did you mean .*first\.bias"),
        (["x"], r"'x', which matches no .*: unused, first\.weight, first\.bias"),
        (["first.*", "nothing*"], r"has 'nothing\*', which matches no"),
        ("first.*", r"weights_as_inputs is 'first\.\*'; .*a list of names"),
        ([1], r"weights_as_inputs is \[1\]"),
        (None, "weights_as_inputs is None"),
    ],
)
def test_weights_that_are_not_there(asked: Any, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        onnx_aot.export(two_layers(), (X,), weights_as_inputs=asked)


def test_weights_that_the_graph_does_not_use() -> None:
    model = two_layers()
    program = onnx_aot.export(model, (X,), weights_as_inputs=["norm.*"])
    assert "norm.num_batches_tracked" not in program.weights
    with pytest.warns(OnnxExporterWarning, match="'unused', of which the graph uses nothing"):
        program = onnx_aot.export(model, (X,), weights_as_inputs=["unused"])
    assert inputs_of(program) == ["x"]
    assert program.weights == {}


class Complicated(torch.nn.Module):
    """Complex weights, a written buffer, and weights with the name of an argument."""

    def __init__(self) -> None:
        super().__init__()
        self.x = torch.nn.Parameter(torch.randn(3, dtype=torch.complex64))
        self.scale = torch.nn.Parameter(torch.randn(3))
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Tensor, scale: float = 2.0) -> tuple[Tensor, Tensor]:
        self.total += (x * self.scale).sum(0)
        return x * self.x * scale, self.total * self.scale


def test_complex_weights_beside_state() -> None:
    model = Complicated()
    program = onnx_aot.export(model, (X, 2.0), state="io", weights_as_inputs=True, verify=True)
    assert inputs_of(program) == ["x", "total", "x_1", "scale"]
    assert list(program.state) == ["total"]
    assert program.weights["x_1"].is_complex()
    for step in range(3):
        x = X + step
        actual = program(x, scale=2.0)  # the model's argument, not the weight
        with torch.no_grad():
            expected = model(x)
        torch.testing.assert_close(actual[:2], expected)
        torch.testing.assert_close(program.state["total"], model.total)
    other = Complicated()
    program.apply_weights(other.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(program(X, 2.0)[:2], other(X))


def test_weights_without_values_are_asked_for() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        model = torch.nn.Linear(3, 2)
        x = mode.from_tensor(X)
    program = onnx_aot.export(model, (x,), weights_as_inputs=True)
    with pytest.raises(InferenceError, match=r"input weight has no values yet.*apply_weights"):
        program(X)
    real = torch.nn.Linear(3, 2)
    program.apply_weights(real.state_dict())
    torch.testing.assert_close(program(X)[0], real(X))


def test_written_weights_that_are_inputs_but_not_looped() -> None:
    with pytest.warns(OnnxExporterWarning, match="total_out"):
        program = onnx_aot.export(Complicated(), (X,), weights_as_inputs=["total"])
    assert inputs_of(program) == ["x", "total"]
    assert program.state == {}
    assert torch.equal(program(X)[-1], program(X)[-1])
    given = program(X, total=torch.ones(3))[-1]
    torch.testing.assert_close(given, program(X)[-1] + 1)
