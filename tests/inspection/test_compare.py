"""``compare``: the first value that is wrong, and the explanation of it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import InferenceError, InvalidOptionError, OnnxExporterWarning
from onnx_aot.inspection import compare as comparing
from onnx_aot.inspection import exact_values
from onnx_aot.inspection.compared_values import Source
from tests.inspection import one_wrong_layer
from tests.inspection.one_wrong_layer import GELU, Tower, X, blamed, row_of, wrong_in_one


def test_a_wrong_translation_in_one_of_64_layers() -> None:
    comparison = one_wrong_layer.in_one_of_64()
    first = blamed(comparison)
    assert first.fx_node == "gelu_37"
    assert first.origin == "own"
    assert first.module == "layers.37.act"
    assert first.operator == "aten.gelu.default"
    assert first.onnx_operators == ("Gelu", "Mul")
    assert first.expected == first.actual == "float32[2, 3]"
    assert "one_wrong_layer.py:" in first.location
    assert "self.act(self.linear(self.norm(x)))" in first.location
    assert 0 < first.max_absolute < 0.1
    position = comparison.rows.index(first)
    assert len(comparison.rows) == 4 * 64
    assert all(row.within for row in comparison.rows[:position])
    assert not comparison.ok
    assert "wrong by itself: gelu_37\n" in str(comparison)


class Cancelling(nn.Module):
    """Normalizes what a convolution gives, which is its mean but for rounding.

    ``last`` is the operator that the result goes through.
    """

    def __init__(self, last: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.last = nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4), last
        with torch.no_grad():
            self.conv.weight.normal_()
            assert self.norm.running_mean is not None
            assert self.norm.running_var is not None
            self.norm.running_mean.copy_(1000 * self.conv.weight.sum((1, 2, 3)))
            self.norm.running_var.fill_(1e-2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.conv(x)))


def test_rounding_in_a_fused_normalization_is_no_error_of_its_own() -> None:
    x = 1000 + 0.01 * torch.rand(1, 8, 12, 12)
    comparison = onnx_aot.export(Cancelling(torch.relu).eval(), (x,)).compare()
    row = row_of(comparison, "batch_norm")
    assert not row.within
    assert row.onnx_operators == ("Conv",)
    assert row.origin == "inherited"
    assert "as near to PyTorch's result in float64 as PyTorch's is" in row.remark


def test_a_step_is_not_explained_by_large_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    x = 1000 + 0.01 * torch.rand(1, 8, 12, 12)
    model = Cancelling(lambda y: torch.floor(8 * y)).eval()
    program = onnx_aot.export(model, (x,))
    source = Source(program, program._bind_inputs((x,), {}))
    pair = next(pair for pair in source.pairs() if pair.name == "floor")
    found = model(x), program(x)[0], source, {}, ()
    assert not exact_values.explain_by_rounding(pair, *found)
    monkeypatch.setattr(exact_values, "STEPS", frozenset())
    assert exact_values.explain_by_rounding(pair, *found)


def test_a_wrong_weight_is_an_error_of_its_own_beside_rounding() -> None:
    x = 1000 + 0.01 * torch.rand(1, 8, 12, 12)
    program = onnx_aot.export(Cancelling(torch.relu).eval(), (x,), optimize=False)
    weight = next(v for v in program.model.graph.initializers.values() if v.name == "norm.bias")
    weight.const_value = ir.tensor(torch.full((4,), 3.0).numpy(), name=weight.name)
    row = row_of(program.compare(), "batch_norm")
    assert row.origin == "own"


def test_values_that_inherit_a_difference_are_not_to_blame() -> None:
    program = onnx_aot.export(
        Tower(4),
        (X,),
        dynamic_shapes=({0: "rows"},),
        custom_translation_table={GELU: wrong_in_one(1, 4)},
    )
    for comparison in (program.compare(), program.compare((torch.randn(5, 3),))):
        deviating = [row for row in comparison.rows if not row.within]
        assert deviating[0] is blamed(comparison)
        assert deviating[0].fx_node == "gelu_1"
        assert [row.origin for row in deviating[1:]] == [""] * (len(deviating) - 1)
    assert blamed(comparison).expected == "float32[5, 3]"


class Chaotic(nn.Module):
    """Each step makes small differences ten times as large."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(12):
            x = torch.sin(x * 3.7) * 2.9
        return x


def test_differences_that_add_up_blame_no_operator() -> None:
    comparison = onnx_aot.export(Chaotic(), (torch.linspace(-2, 2, 64),)).compare()
    assert not comparison.ok
    assert {row.origin for row in comparison.rows if not row.within} == {"inherited"}
    assert "right from PyTorch's inputs" in blamed(comparison).remark
    assert "differences add up" in str(comparison)


def test_differences_that_do_not_reach_an_output() -> None:
    def function(x: Tensor) -> Tensor:
        return Chaotic()(x) * 1e-6

    comparison = onnx_aot.export(function, (torch.linspace(-2, 2, 64),)).compare()
    assert comparison.ok
    assert comparison.first is None
    drifting = sum(row.drifts for row in comparison.rows)
    assert drifting > 5
    assert f": all agree\n  {drifting} drift: rounding" in str(comparison)


def test_a_weight_that_was_changed_in_a_file(tmp_path: Path) -> None:
    model = Tower(8)
    program = onnx_aot.export(model, (X,), dynamic_shapes=({0: "rows"},))
    weight = program.model.graph.initializers["layers.5.linear.weight"]
    assert weight.const_value is not None
    changed = weight.const_value.numpy().copy()
    changed[1, 2] += 1
    weight.const_value = ir.tensor(changed, name=weight.name)
    program.save(tmp_path / "model.onnx")
    for given in (model, program):
        comparison = onnx_aot.compare(tmp_path / "model.onnx", given, X)
        first = blamed(comparison)
        assert (first.fx_node, first.module) == ("linear_5", "layers.5.linear")
        assert "layers.5.linear.weight is not PyTorch's" in first.remark
        assert len(comparison.rows) == 4 * 8


def padded_maximum(x: Tensor) -> Tensor:
    """Max pooling that ONNX Runtime computes incorrectly before version 1.32."""
    return nn.functional.max_pool2d(nn.functional.pad(-x.abs() - 1, (1, 1, 1, 1)), 3, 2)


def transposed_times_vector(x: Tensor) -> Tensor:
    return x[0, 0].t() @ x[0, 0, :, 0]


@pytest.mark.parametrize("function", [padded_maximum, transposed_times_vector])
def test_what_onnx_runtime_fuses_wrongly(function: Callable[[Tensor], Tensor]) -> None:
    program = onnx_aot.export(function, (X[None, None],), target=None)
    comparison = program.compare()
    if comparison.ok:
        torch.testing.assert_close(program(X[None, None])[0], function(X[None, None]))
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} fuses {function.__name__} rightly")
    first = blamed(comparison)
    assert first.operator in ("aten.max_pool2d.default", "aten.matmul.default")
    assert first.origin == "runtime"
    assert "keeps ONNX Runtime from fusing" in first.remark
    assert sum(not row.within for row in comparison.rows) == 1


def test_values_survive_fusion() -> None:
    def gelu(x: Tensor) -> Tensor:
        return (x * 0.5 * (1 + torch.erf(x / 2**0.5))).exp()

    program = onnx_aot.export(gelu, (X,))
    comparison = program.compare()
    assert [row.onnx_operators for row in comparison.rows] == [("Gelu",), ("Exp",)]
    assert comparison.ok
    assert comparison.left_out[comparing.FUSED] == 4
    assert "2 values compared: all agree\n  not compared: 4 without" in str(comparison)


def test_names_that_the_user_gave_to_other_values() -> None:
    def two(x: Tensor) -> Tensor:
        return (x + 1) * (x + 2)

    names = {"input_names": ["add"], "output_names": ["add_1"]}
    comparison = onnx_aot.export(two, (X,), **names).compare()
    assert [row.fx_node for row in comparison.rows] == ["add", "add_1", "mul"]
    assert row_of(comparison, "mul").onnx_value == "add_1"
    assert comparison.ok


def test_complex_numbers() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        inner = torch.fft.fft(x * (1 + 2j))
        return inner.abs(), inner * 2

    comparison = onnx_aot.export(function, (torch.complex(X, -X),)).compare()
    assert comparison.ok
    assert row_of(comparison, "fft_fft").onnx_value == "fft_fft.real"
    assert row_of(comparison, "fft_fft").expected == "complex64[2, 3]"
    assert [r.onnx_value for r in comparison.rows if r.fx_node == "mul_1"] == [
        "mul_1.real",
        "mul_1",
    ]


def test_only_types_of_random_values_are_compared() -> None:
    def noisy(x: Tensor) -> Tensor:
        return torch.rand_like(x).mul(2) + x.exp()

    comparison = onnx_aot.export(noisy, (X,)).compare()
    assert [row.random for row in comparison.rows] == [True, True, False, True]
    assert comparison.ok
    assert "  3 random: only type and shape" in str(comparison)


def test_types_that_the_target_lacks_several_results_and_sizes() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor, int]:
        largest, at = x.max(1)
        halves = torch.softmax(x.bfloat16(), 1).erf()
        return largest + at, halves, x.shape[0] * 2

    comparison = onnx_aot.export(function, (X,), dynamic_shapes=({0: "n"},)).compare()
    assert comparison.ok
    assert {row.module for row in comparison.rows} == {""}
    assert row_of(comparison, "erf").expected == "bfloat16[2, 3]"
    assert row_of(comparison, "getitem").operator == "aten.max.dim"
    assert row_of(comparison, "getitem_1").expected == "int64[2]"
    assert row_of(comparison, "mul").expected == "int64[]"


def test_values_computed_from_less_precise_ones_have_their_tolerance() -> None:
    """One value rounds to the next bfloat16 number; its float32 conversion is as far away."""

    def function(x: Tensor) -> Tensor:
        return x.exp().bfloat16().float() * 3

    def exp(op: Any, self: Any) -> Any:
        return op.Mul(op.Exp(self), op.constant(1.0005))

    x = torch.linspace(-1, 0.5, 64)
    table = {torch.ops.aten.exp.default: exp}
    comparison = onnx_aot.export(function, (x,), custom_translation_table=table).compare()
    assert comparison.ok
    last = comparison.rows[-1]
    assert last.max_absolute > 2e-3
    assert "within the tolerance of torch.bfloat16" in last.remark


def test_an_edited_model_is_compared_as_it_is() -> None:
    program = onnx_aot.export(lambda x: x.exp().sin(), (X,))
    program(X)
    (sin,) = [node for node in program.model.graph if node.op_type == "Sin"]
    sin.op_type = "Cos"
    assert blamed(program.compare()).fx_node == "sin"


def test_branches_are_compared_by_their_results() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos(), (x,)) + 1

    comparison = onnx_aot.export(function, (X,)).compare()
    assert comparison.ok
    assert row_of(comparison, "getitem").onnx_operators == ("If",)
    assert comparison.left_out[comparing.IN_BODIES] == 3


@torch.library.custom_op("compared::abroad", mutates_args=())
def abroad(x: Tensor) -> Tensor:
    """An operator of another device."""
    raise NotImplementedError("there is no kernel here")


abroad.register_fake(torch.empty_like)


def test_what_pytorch_cannot_run_is_read_from_the_model() -> None:
    program = onnx_aot.export(
        lambda x: abroad(x).exp() + x,
        (X,),
        custom_translation_table={torch.ops.compared.abroad.default: lambda op, x: op.Abs(x)},
    )
    comparison = program.compare()
    assert comparison.ok
    (said,) = [why for why in comparison.left_out if why.startswith(comparing.TAKEN)]
    assert comparison.left_out[said] == 1
    assert "(abroad: " in said
    assert {"exp", "add"} <= {row.fx_node for row in comparison.rows}


def test_scripted_loops_run_node_by_node() -> None:
    @torch.jit.script  # type: ignore[untyped-decorator]
    def repeated(x: Tensor) -> Tensor:
        y = x
        for i in range(int(x.sum().abs().item())):
            y = y + x * i
        return y.exp() + y

    comparison = onnx_aot.export(repeated, (X,)).compare()
    assert comparison.ok
    assert not [why for why in comparison.left_out if why.startswith(comparing.TAKEN)]
    assert {"exp_default", "add_tensor"} <= {row.fx_node for row in comparison.rows}


def test_state_and_weights_that_are_inputs() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            self.seen += 1
            return self.linear(x) * self.seen

    program = onnx_aot.export(Counts(), (X,), state="io", weights_as_inputs=True)
    program(X)
    comparison = program.compare((X + 1,))
    assert comparison.ok
    assert {"seen_out", "mul"} <= {row.onnx_value for row in comparison.rows}
    assert program.state["seen"].item() == 1


def test_values_are_compared_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {GELU: wrong_in_one(2, 4)}
    program = onnx_aot.export(Tower(4), (X,), custom_translation_table=table)
    whole = program.compare()
    monkeypatch.setattr(comparing, "HELD", 0)
    pieces = program.compare()
    assert [r.fx_node for r in pieces.rows] == [r.fx_node for r in whole.rows]
    assert [r.within for r in pieces.rows] == [r.within for r in whole.rows]
    assert blamed(pieces).fx_node == blamed(whole).fx_node == "gelu_2"


def test_a_module_that_the_model_is_not_of(tmp_path: Path) -> None:
    class One(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x.exp() * 2 + 1) * 3

    class Other(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x.exp() * 4 * 2 + 1) * 3

    onnx_aot.export(One(), (X,), dynamic_shapes=({0: "n"},)).save(tmp_path / "model.onnx")
    assert onnx_aot.compare(tmp_path / "model.onnx", One(), X).ok
    comparison = onnx_aot.compare(tmp_path / "model.onnx", Other(), X)
    assert comparison.left_out[comparing.OTHERWISE] == 3
    assert [(row.fx_node, row.within) for row in comparison.rows] == [
        ("exp", True),
        ("mul_2", False),
    ]


def test_a_file_that_torch_onnx_wrote(tmp_path: Path) -> None:
    model, path = Tower(2).eval(), tmp_path / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (X,), path, dynamo=True, verbose=False)
    stored = onnx.load(path)
    (weight,) = [w for w in stored.graph.initializer if w.name == "layers.1.linear.bias"]
    changed = onnx.numpy_helper.to_array(weight) + 1
    weight.CopyFrom(onnx.numpy_helper.from_array(changed, weight.name))
    onnx.save(stored, path)
    comparison = onnx_aot.compare(path, model, X)
    assert blamed(comparison).fx_node == "linear_1"
    assert "layers.1.linear.bias is not PyTorch's" in blamed(comparison).remark
    assert row_of(comparison, "gelu").within


def test_as_json_and_as_text() -> None:
    table = {GELU: wrong_in_one(17, 24)}
    comparison = onnx_aot.export(Tower(24), (X,), custom_translation_table=table).compare()
    read = json.loads(comparison.to_json())
    assert read["schema"] == 1
    assert not read["ok"]
    assert read["rows"][read["first"]]["fx_node"] == "gelu_17"
    assert read["rows"][0]["onnx_operators"] == ["LayerNormalization"]
    text = str(comparison)
    assert text.isascii()
    lines = text.splitlines()
    assert lines[0].startswith("96 values compared: ")
    assert sum(line.startswith("... ") for line in lines) == 2
    assert [line.split()[:2] for line in lines if "gelu_17" in line][-1] == ["FAIL", "gelu_17"]


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    onnx_aot.export(Tower(1), (X,)).save(tmp_path / "model.onnx")
    loaded = onnx_aot.ONNXProgram.load(tmp_path / "model.onnx")
    with pytest.raises(InvalidOptionError, match=r"pass its module: onnx_aot.comp"):
        loaded.compare((X,))
    with onnx_aot.enable_fake_mode():
        program = onnx_aot.export(nn.Linear(3, 3), (torch.randn(2, 3),))
    program.apply_weights(nn.Linear(3, 3).state_dict())
    with pytest.raises(InvalidOptionError, match="has no values for weight"):
        program.compare((X,))


def test_a_value_of_another_type() -> None:
    program = onnx_aot.export(lambda x: x.exp() + 1, (X,))
    (exp,) = [node for node in program.model.graph if node.op_type == "Exp"]
    exp.outputs[0].shape = ir.Shape([3, 2])
    transposed = ir.node("Transpose", [exp.inputs[0]])
    transposed.outputs[0].name = "turned"
    program.model.graph.insert_before(exp, transposed)
    exp.replace_input_with(0, transposed.outputs[0])
    one = blamed(program.compare())
    assert (one.fx_node, one.actual) == ("exp", "float32[3, 2]")
    assert "type or shape differs" in one.remark


def test_the_session_and_the_warnings_are_the_user_s() -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            self.seen += 1
            return x * 2

    with pytest.warns(OnnxExporterWarning, match="writes to buffers"):
        program = onnx_aot.export(Writes(), (X,))
    assert program.compare().ok
    assert torch.equal(program(X)[0], X * 2)


def test_without_example_inputs() -> None:
    program = onnx_aot.export(Tower(1), (X,))
    assert program.exported_program is not None
    program.exported_program.example_inputs = None
    with pytest.raises(InvalidOptionError, match=r"no example inputs .*; give inputs"):
        program.compare()
    assert program.compare((X,)).ok


def test_a_file_that_the_runtime_refuses(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 3)
    onnx_aot.export(model, (torch.ones(1, 3),)).save(tmp_path / "model.onnx")
    proto = onnx.load(tmp_path / "model.onnx")
    proto.graph.node[0].attribute.add(name="transB", i=5, type=onnx.AttributeProto.INT)
    del proto.opset_import[:]
    onnx.save(proto, tmp_path / "model.onnx")
    with pytest.raises(InferenceError, match="ONNX Runtime cannot run the model"):
        onnx_aot.compare(tmp_path / "model.onnx", model, (torch.ones(1, 3),))


def test_branches_that_write_are_compared() -> None:
    def forward(x: Tensor, state: Tensor) -> Tensor:
        if x.sum() > 0:
            state *= 2
        return x + state

    with pytest.warns(OnnxExporterWarning, match="writes to buffers or inputs"):
        program = onnx_aot.export(forward, (torch.ones(3), torch.ones(3)))
    comparison = program.compare()
    assert comparison.ok
    assert row_of(comparison, "getitem").onnx_operators == ("If",)
    assert not [why for why in comparison.left_out if why.startswith(comparing.TAKEN)]
