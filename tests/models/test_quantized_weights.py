"""Weights that torchao stores in a few bits: in ONNX, in files, and when they are replaced."""

from __future__ import annotations

import collections
import copy
import re
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch

import onnx_aot
from onnx_aot.errors import OpsetError
from tests.models.quantized_models import kernels, mlp, needs_torchao, quantize
from tests.tolerances import assert_close

pytestmark = [needs_torchao, pytest.mark.filterwarnings("ignore::UserWarning:torchao.*")]

BITS4 = {"config": "IntxWeightOnlyConfig", "weight_dtype": torch.int4}
WEIGHTS = [64 * 128, 128 * 128, 128 * 32]

# configuration, integer type, kernels of ONNX Runtime, minimal factor by which float32 is larger
WAYS = {
    "int8": ({"config": "Int8WeightOnlyConfig"}, "INT8", "MatMulNBits", 3.6),
    "int8 groups": (
        {"config": "IntxWeightOnlyConfig", "weight_dtype": torch.int8, "group": 32},
        "INT8",
        "MatMulNBits",
        3.2,
    ),
    "int4 rows": (BITS4, "INT4", "MatMulNBits", 5.5),
    "int4 groups of 32": ({**BITS4, "group": 32}, "INT4", "MatMulNBits", 5.0),
    "int4 groups of 64": ({**BITS4, "group": 64}, "INT4", "MatMulNBits", 5.5),
    "int3 groups": (
        {"config": "IntxWeightOnlyConfig", "weight_dtype": torch.int3, "group": 32},
        "INT4",
        "MatMulNBits",
        5.0,
    ),
    "int8 activations": (
        {"config": "Int8DynamicActivationInt8WeightConfig"},
        "INT8",
        "MatMulInteger",
        3.5,
    ),
    "int8 activations, int4": (
        {"config": "Int8DynamicActivationIntxWeightConfig", "weight_dtype": torch.int4},
        "INT4",
        "MatMulNBits",
        5.0,
    ),
    "float8": ({"config": "Float8WeightOnlyConfig"}, "FLOAT8E4M3FN", "of floats", 3.6),
}


def made(way: str, seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    options: dict[str, Any] = dict(WAYS[way][0])
    if way == "int8 activations, int4":
        import torchao.quantization as ao

        options["weight_granularity"] = ao.PerGroup(32)
    return quantize(mlp(), options.pop("config"), **options)


def exported(model: torch.nn.Module, opset: int = 21, **options: Any) -> onnx_aot.ONNXProgram:
    shapes = ({0: "batch"},)
    x = torch.randn(3, 64)
    return onnx_aot.export(model, (x,), dynamic_shapes=shapes, opset_version=opset, **options)


def products(program: onnx_aot.ONNXProgram, folder: Path) -> collections.Counter[str]:
    """Counts ONNX Runtime's matrix products; all of float inputs are added up under one name."""
    found = kernels(program.save, folder)
    found["of floats"] = sum(found[name] for name in ("Gemm", "FusedGemm", "MatMul"))
    return found


def integers(program: onnx_aot.ONNXProgram) -> dict[str, list[int]]:
    """Sizes of the tensors that have as many elements as a weight, by type."""
    found: dict[str, list[int]] = {}
    for value in program.model.graph.initializers.values():
        tensor = value.const_value
        assert tensor is not None
        if tensor.size in WEIGHTS:
            found.setdefault(tensor.dtype.name, []).append(tensor.size)
    return found


@pytest.mark.parametrize("way", WAYS)
def test_weights_stay_narrow(way: str, tmp_path: Path) -> None:
    model = made(way)
    program = exported(model, verify=True)
    _, dtype, kernel, times = WAYS[way]
    assert integers(program) == {dtype: WEIGHTS}
    assert products(program, tmp_path)[kernel] == 3
    onnx.checker.check_model(str(tmp_path / "model.onnx"), full_check=True)
    report = program.report
    assert report is not None
    assert report.contents is not None
    rows = {row.dtype: row for row in report.contents.storage}
    assert rows[dtype].in_float32 == 4 * sum(WEIGHTS)
    held = sum(row.bytes for row in rows.values())
    assert sum(row.in_float32 for row in rows.values()) / held > times
    assert f"| {dtype}" in report.to_markdown()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("optimize", ["safe", False])
def test_without_optimizations(way: str, optimize: Any) -> None:
    exported(made(way), verify=True, optimize=optimize)


@pytest.mark.parametrize("opset", [17, 20, 23, 25])
@pytest.mark.parametrize("way", ["int8", "int8 groups"])
def test_opsets(way: str, opset: int) -> None:
    program = exported(made(way), opset, verify=True)
    assert integers(program) == {"INT8": WEIGHTS}


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("way", ["int4 groups of 32", "int4 rows"])
def test_four_bits_take_a_byte_before_opset_21(way: str, opset: int) -> None:
    program = exported(made(way), opset, verify=True)
    assert any(
        re.match(r"3 weight\(s\) .* opset_version=21 stores two", n) for n in program.report.notes
    )
    assert integers(program) == {"INT8": WEIGHTS}


def test_float8_needs_opset_21() -> None:
    with pytest.raises(OpsetError, match=r"FLOAT8E4M3FN in opset 20.*Opset 21 takes it"):
        exported(made("float8"), 20)


@pytest.mark.parametrize("way", ["int8", "int4 groups of 32", "float8"])
@pytest.mark.parametrize("data", [False, True, "safetensors"])
def test_files(way: str, data: Any, tmp_path: Path) -> None:
    model, x = made(way), torch.randn(5, 64)
    program = exported(model)
    for name in ("a.onnx", "b.onnx"):  # the second one is saved from a loaded program
        program.save(tmp_path / name, external_data=data)
        loaded = onnx_aot.ONNXProgram.load(tmp_path / name)
        assert_close(loaded(x)[0], model(x))
        program = loaded
    assert integers(program) == {WAYS[way][1]: WEIGHTS}


@pytest.mark.parametrize("way", ["int8", "int4 groups of 32", "int8 activations", "float8"])
def test_weights_are_replaced(way: str, tmp_path: Path) -> None:
    program, other, x = exported(made(way)), made(way, seed=1), torch.randn(5, 64)
    program.apply_weights(other.state_dict())
    assert_close(program(x)[0], other(x))
    third = made(way, seed=2)
    torch.save(third.state_dict(), tmp_path / "weights.pt")
    program.apply_weights(tmp_path / "weights.pt")
    assert_close(program(x)[0], third(x))


@pytest.mark.parametrize("way", ["int8", "int4 groups of 32", "float8"])
def test_an_exported_program_keeps_its_weights(way: str) -> None:
    model, x = made(way), torch.randn(3, 64)
    captured = torch.export.export(model, (x,))
    before = copy.copy(captured.state_dict)
    program = onnx_aot.export(captured, opset_version=21)
    assert_close(program(x)[0], model(x))
    assert list(captured.state_dict) == list(before)
    assert all(captured.state_dict[name] is tensor for name, tensor in before.items())


@pytest.mark.parametrize("way", ["int8", "int4 groups of 32", "float8"])
def test_every_value_agrees(way: str) -> None:
    comparison = exported(made(way)).compare()
    assert comparison.ok, str(comparison)


def test_weights_of_two_layers() -> None:
    """Tied weights are a single tensor in the file, which ONNX Runtime dequantizes."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 64))
    quantize(model, **BITS4, group=32)
    model[2].weight = model[0].weight
    program = exported(model, verify=True)
    sizes = [v.const_value.size for v in program.model.graph.initializers.values() if v.const_value]
    assert sizes.count(64 * 64) == 1


def test_more_axes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = made("int4 groups of 32"), torch.randn(2, 3, 64)
    shapes = ({0: "batch", 1: "length"},)
    program = onnx_aot.export(model, (x,), dynamic_shapes=shapes, opset_version=21, verify=True)
    assert kernels(program.save, tmp_path)["MatMulNBits"] == 3


def test_half_precision() -> None:
    torch.manual_seed(0)
    model = quantize(mlp().to(torch.float16), **BITS4, group=32)
    x = torch.randn(3, 64, dtype=torch.float16)
    program = onnx_aot.export(model, (x,), opset_version=21, verify=True)
    assert integers(program) == {"INT4": WEIGHTS}


class Float8Buffer(torch.nn.Module):
    """A plain model that does not use torchao."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(rows, 8).to(torch.float8_e4m3fn))
        self.register_buffer("scale", torch.rand(rows, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (self.weight.to(torch.float32) * self.scale).T


@pytest.mark.parametrize("rows", [3, 5000, 20000])  # size of a constant, a small weight, larger
def test_float8_buffers_stay(rows: int) -> None:
    torch.manual_seed(0)
    program = onnx_aot.export(Float8Buffer(rows), (torch.randn(2, 8),), verify=True)
    types = {
        v.const_value.dtype
        for v in program.model.graph.initializers.values()
        if v.const_value is not None and v.const_value.size == rows * 8
    }
    assert types == {ir.DataType.FLOAT8E4M3FN}
