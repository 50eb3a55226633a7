"""Programs of saved models, and their names."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import onnx_aot
from onnx_aot.errors import InferenceError, InvalidOptionError
from tests.program.lora import Lora, Tensor, X
from tests.tolerances import assert_close


def saved(module: torch.nn.Module, path: Path, external_data: Any = True, **options: Any) -> Path:
    shapes = ({0: "batch"},)
    program = onnx_aot.export(module, (X,), dynamic_shapes=shapes, **options)
    program.save(path, external_data=external_data)
    return path


@pytest.mark.parametrize("external_data", [False, True, "safetensors"])
def test_a_program_of_a_file(external_data: Any, lora: Lora, tmp_path: Path) -> None:
    path = saved(lora, tmp_path / "model.onnx", external_data)
    program = onnx_aot.ONNXProgram.load(path)
    assert program.exported_program is None
    for x in (X, X[:1]):
        assert_close(program(x)[0], lora(x))
    with pytest.raises(InferenceError, match=r"input x has shape \[batch,32\] in the model"):
        program(X[:, :3])
    program.save(tmp_path / "again.onnx", external_data=False)
    whole = onnx_aot.export(lora, (X,), dynamic_shapes=({0: "batch"},))
    whole.save(tmp_path / "direct.onnx", external_data=False)
    written = [(tmp_path / name).read_bytes() for name in ("again.onnx", "direct.onnx")]
    assert written[0] == written[1]
    program.optimize()
    other = Lora()
    program.apply_weights(other.state_dict())
    assert_close(program(X)[0], other(X))


def test_files_that_cannot_be_loaded(lora: Lora, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="there is no file"):
        onnx_aot.ONNXProgram.load(tmp_path / "missing.onnx")
    (tmp_path / "text.onnx").write_text("no model, but text")
    with pytest.raises(InvalidOptionError, match="is not an ONNX model"):
        onnx_aot.ONNXProgram.load(tmp_path / "text.onnx")
    path = saved(lora, tmp_path / "model.onnx")
    data = tmp_path / "model.onnx.data"
    os.truncate(data, 100)
    with pytest.raises(InvalidOptionError, match=r"has 100 bytes; base\.weight in .* ends at byte"):
        onnx_aot.ONNXProgram.load(path)
    data.unlink()
    with pytest.raises(InvalidOptionError, match=r"refers to model\.onnx\.data, which is not"):
        onnx_aot.ONNXProgram.load(path)
    proto = onnx.load(path, load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        entry.value = "../secret" if entry.key == "location" else entry.value
    onnx.save(proto, path)
    with pytest.raises(InvalidOptionError, match=r"\.\./secret, which is not in its folder"):
        onnx_aot.ONNXProgram.load(path)


def test_names_that_the_user_gave(lora: Lora, tmp_path: Path) -> None:
    program = onnx_aot.export(lora, (X,), input_names=["given"], output_names=["result"])
    for of_model in (program, onnx_aot.ONNXProgram.load(_saved(program, tmp_path))):
        names = of_model.names()
        assert names.to_onnx("x") == "given"
        assert names.to_torch("result") == ["add"]
        assert names.to_onnx("base.weight") == "base.weight"


def _saved(program: onnx_aot.ONNXProgram, folder: Path) -> Path:
    program.save(folder / "model.onnx")
    return folder / "model.onnx"


def test_dimensions_get_other_names(lora: Lora) -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return torch.cat([x, x], 1) + y

    program = onnx_aot.export(
        Twice(),
        (torch.ones(2, 3), torch.ones(2, 6)),
        dynamic_shapes=({0: "batch", 1: "time"}, {0: "batch", 1: torch.export.Dim.AUTO}),
    )
    program.rename_axes({"batch": "n", "time": "batch"})
    assert [value.shape for value in program.inputs] == [("n", "batch"), ("n", "2*batch")]
    assert program.outputs[0].shape == ("n", "2*batch")
    with pytest.raises(InferenceError, match="dimension n is"):
        program(torch.ones(2, 3), torch.ones(3, 6))
    assert program(torch.ones(5, 3), torch.ones(5, 6))[0].shape == (5, 6)
    written = program.model.graph.metadata_props["pkg.onnx_aot.dimensions"]
    assert set(json.loads(written)["dimensions"]) <= {"n", "batch"}
    with pytest.raises(InvalidOptionError, match="no dimension 'time'; there are batch, "):
        program.rename_axes({"time": "t"})
    for name in ("2", "n"):
        with pytest.raises(InvalidOptionError, match=f"cannot be called '{name}'"):
            program.rename_axes({"batch": name})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_narrow_types_in_and_out(dtype: torch.dtype, tmp_path: Path) -> None:
    class Cast(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(32).to(dtype), requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            return (x.float() + self.weight.float()).to(dtype)

    model, x = Cast(), torch.randn(4, 32).to(dtype)
    path = tmp_path / "model.onnx"
    onnx_aot.export(model, (x,), path, external_data=True)
    for program in (onnx_aot.export(model, (x,)), onnx_aot.ONNXProgram.load(path)):
        (y,) = program(x)
        assert y.dtype == dtype
        assert np.array_equal(y.float().numpy(), model(x).float().numpy())
