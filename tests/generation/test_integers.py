"""Products with stored factors in int8 and int4, compared with ONNX Runtime's own tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper

import onnx_aot
from onnx_aot.generation import integers
from onnx_aot.generation.bundles import FOR_INTEGERS, NOT_FOR_INTEGERS
from onnx_aot.generation.integers import BLOCK, to_int4, to_int8
from onnx_aot.ir_passes import names_of_passes


class Products(torch.nn.Module):
    """Two products of one value, one of several matrices, and one of two values."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(80, 48)
        self.second = torch.nn.Linear(80, 16, bias=False)
        self.several = torch.nn.Parameter(torch.randn(2, 16, 24))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first, second = self.first(x), self.second(x)
        return second @ self.several, first @ first.transpose(-1, -2)


def export(module: torch.nn.Module) -> tuple[onnx_aot.ONNXProgram, torch.Tensor]:
    x = torch.randn(2, 5, 80)
    rules = {*names_of_passes(), *FOR_INTEGERS} - NOT_FOR_INTEGERS
    return onnx_aot.export(module.eval(), (x,), dynamic_shapes=({1: "rows"},), optimize=rules), x


def run(path: Path, x: torch.Tensor) -> list[np.ndarray[Any, Any]]:
    return onnxruntime.InferenceSession(path).run(None, {"x": x.numpy()})


def arrays(path: Path, *types: int) -> list[np.ndarray[Any, Any]]:
    """Stored arrays of these element types, by their contents."""
    stored = onnx.load(path).graph.initializer
    return sorted(
        (numpy_helper.to_array(t) for t in stored if t.data_type in types),
        key=lambda a: a.tobytes(),
    )


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def test_int8_is_what_onnxruntime_makes(tmp_path: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    program, x = export(Products())
    program.save(tmp_path / "float.onnx")
    quantize_dynamic(
        tmp_path / "float.onnx",
        tmp_path / "theirs.onnx",
        op_types_to_quantize=["MatMul"],
        weight_type=QuantType.QInt8,
    )
    assert to_int8(program) == 3
    ours = tmp_path / "ours.onnx"
    program.save(ours)
    int8 = onnx.TensorProto.INT8
    theirs = [a for a in arrays(tmp_path / "theirs.onnx", int8) if a.ndim]  # less zero points
    assert [a.tolist() for a in arrays(ours, int8)] == [a.tolist() for a in theirs]
    assert operators(ours).count("DynamicQuantizeLinear") == 2  # of x, and of a result
    assert operators(ours).count("MatMulInteger") == 3
    for left, right in zip(run(ours, x), run(tmp_path / "theirs.onnx", x), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)
    onnx.checker.check_model(ours, full_check=True)


def test_int4_is_what_onnxruntime_makes(tmp_path: Path) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    module = Products()
    with torch.no_grad():
        module.first.weight[3, :BLOCK] = 0  # a block without any
    program, x = export(module)
    program.save(tmp_path / "float.onnx")
    quantizer = MatMulNBitsQuantizer(
        onnx.load(tmp_path / "float.onnx"), block_size=BLOCK, is_symmetric=True, accuracy_level=4
    )
    quantizer.process()
    quantizer.model.save_model_to_file(str(tmp_path / "theirs.onnx"), False)
    assert to_int4(program) == 2  # the several matrices stay
    ours = tmp_path / "ours.onnx"
    program.save(ours)
    whole = slice(80 // BLOCK)  # padding of the last block of a column is theirs to choose
    uint8 = onnx.TensorProto.UINT8
    kept = [
        [a[:, whole].tolist() for a in arrays(p, uint8)] for p in (ours, tmp_path / "theirs.onnx")
    ]
    assert sorted(kept[0]) == sorted(kept[1])
    for left, right in zip(run(ours, x), run(tmp_path / "theirs.onnx", x), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("quantize", [to_int8, to_int4])
def test_weights_are_quantized_in_parts(quantize: Any, monkeypatch: Any) -> None:
    program, x = export(Products())
    quantize(program)
    expected = program(x)
    monkeypatch.setattr(integers, "PART", 100)
    program.release()
    for left, right in zip(program(x), expected, strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize(("quantize", "error"), [(to_int8, 0.03), (to_int4, 0.2)])
def test_weights_replaced_afterwards(quantize: Any, error: float) -> None:
    module, other = Products(), Products()
    program, x = export(module)
    quantize(program)
    program.apply_weights(other.state_dict())
    for left, right in zip(program(x), other(x), strict=True):
        assert torch.linalg.norm(left - right) < error * torch.linalg.norm(right)


class Steps(torch.nn.Module):
    """A product in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def step(state: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            state = torch.tanh(self.layer(state) + row)
            return state, state.clone()

        return torch._higher_order_ops.scan(step, torch.zeros(32), x)[1]


@pytest.mark.parametrize(("quantize", "error"), [(to_int8, 0.05), (to_int4, 0.3)])
def test_products_in_loops(quantize: Any, error: float) -> None:
    module, x = Steps().eval(), torch.randn(4, 32)
    rules = {*names_of_passes(), *FOR_INTEGERS} - NOT_FOR_INTEGERS
    program = onnx_aot.export(module, (x,), optimize=rules)
    assert quantize(program) == 1
    assert torch.linalg.norm(program(x)[0] - module(x)) < error * torch.linalg.norm(module(x))


def test_other_products_stay() -> None:
    class Others(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide = torch.nn.Parameter(torch.randn(80, 4, dtype=torch.float64))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x.double() @ self.wide, x @ x.mT

    program, x = export(Others())
    before = program(x)
    assert (to_int8(program), to_int4(program)) == (0, 0)
    assert all(map(torch.equal, program(x), before))
