"""Models quantized with PT2E: integer weights and activations, and integer arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
import torch

import onnx_aot
from tests.models.quantized_models import Net, kernels, mlp, needs_torchao, pt2e

pytestmark = [needs_torchao, pytest.mark.filterwarnings("ignore::UserWarning:torchao.*")]

BATCH = ({0: "batch"},)


def net(x86: bool) -> torch.nn.Module:
    torch.manual_seed(0)
    model: torch.nn.Module = pt2e(Net(), (torch.randn(2, 3, 8, 8),), x86)
    return model


def weights(program: onnx_aot.ONNXProgram) -> list[ir.DataType]:
    """Types of the module's tensors that DequantizeLinear reads, in the order of the nodes."""
    return [
        node.inputs[0].const_value.dtype
        for node in program.model.graph
        if node.op_type == "DequantizeLinear"
        and node.inputs[0] is not None
        and node.inputs[0].const_value is not None
    ]


@pytest.mark.parametrize("opset", [17, 20, 21, 25])
@pytest.mark.parametrize("x86", [True, False])
def test_answers(x86: bool, opset: int) -> None:
    """Integer kernels may round a sum to the adjacent step, which propagates to later layers."""
    model, x = net(x86), torch.randn(2, 3, 8, 8)
    program = onnx_aot.export(model, (x,), dynamic_shapes=BATCH, opset_version=opset)
    assert weights(program) == [ir.DataType.INT8] * 4
    for batch in (1, 2, 7):
        x = torch.randn(batch, 3, 8, 8)
        expected = model(x).detach()
        step = float(expected.abs().max()) / 127
        assert float((program(x)[0] - expected).abs().max()) <= 2 * step


def test_kernels_for_integers(tmp_path: Path) -> None:
    program = onnx_aot.export(net(x86=False), (torch.randn(2, 3, 8, 8),), dynamic_shapes=BATCH)
    found = kernels(program.save, tmp_path)
    assert (found["QLinearConv"], found["QLinearAdd"], found["QGemm"]) == (2, 1, 2)
    assert not {"Conv", "FusedConv", "Gemm", "FusedGemm", "Add"} & set(found)


@pytest.mark.parametrize("x86", [True, False])
def test_linear_layers(x86: bool, tmp_path: Path) -> None:
    """The linear kernels are used even if the next operator is not quantized."""
    torch.manual_seed(0)
    x = torch.randn(4, 64)
    program = onnx_aot.export(pt2e(mlp(), (x,), x86), (x,), dynamic_shapes=BATCH)
    assert kernels(program.save, tmp_path)["QGemm"] == 3


def test_biases_and_parameters() -> None:
    """Biases stay floats; ONNX Runtime itself converts them to integers."""
    program = onnx_aot.export(net(x86=False), (torch.randn(2, 3, 8, 8),), dynamic_shapes=BATCH)
    held = program.model.graph.initializers.values()
    types = {str(v.name): v.const_value.dtype for v in held if v.const_value is not None}
    assert {t for n, t in types.items() if "bias" in n} == {ir.DataType.FLOAT}
    assert {t for n, t in types.items() if "zero_point" in n} == {ir.DataType.INT8}
    assert ir.DataType.INT64 not in {t for n, t in types.items() if n.startswith("_")}


def test_other_targets_keep_signed_activations() -> None:
    x = torch.randn(2, 3, 8, 8)
    model = net(x86=False)
    for target, dtype in (("onnxruntime", ir.DataType.UINT8), (None, ir.DataType.INT8)):
        program = onnx_aot.export(model, (x,), target=target)  # type: ignore[arg-type]
        types = [n.outputs[0].dtype for n in program.model.graph if n.op_type == "QuantizeLinear"]
        assert types
        assert set(types) == {dtype}


class Quantizes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        decomposed, grid = torch.ops.quantized_decomposed, (0.1, 0, -128, 127, torch.int8)
        result: torch.Tensor = decomposed.dequantize_per_tensor(
            decomposed.quantize_per_tensor(x, *grid), *grid
        )
        return result


def test_halves_are_no_fault_of_a_translation() -> None:
    """A quotient within rounding error of a half may be rounded in either direction."""
    scale = torch.tensor(0.1)
    halves = torch.nextafter((torch.arange(-120, 120) + 0.5) * scale, torch.tensor(99.0))
    other = halves[(halves / scale).round() != (halves * (1 / 0.1)).round()]
    assert len(other) > 0
    x = torch.linspace(-12, 12, 5000)
    x[7] = other[0]
    comparison = onnx_aot.export(Quantizes(), (x,)).compare()
    (row,) = [row for row in comparison.rows if row.output]
    assert (row.within, row.origin) == (False, "inherited")
    assert "next step of their grid" in row.remark


def one_step_off(
    op: Any, input: Any, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: Any
) -> Any:
    return op.QuantizeLinear(input, op.constant(scale), op.constant(torch.tensor(1).to(dtype)))


def test_steps_of_all_elements_are_a_fault() -> None:
    table = {torch.ops.quantized_decomposed.quantize_per_tensor.default: one_step_off}
    x = torch.linspace(-12, 12, 5000)
    program = onnx_aot.export(Quantizes(), (x,), custom_translation_table=table)
    first = program.compare().first
    assert first is not None
    assert first.origin == "own"
