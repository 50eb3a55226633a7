"""Programs of saved models, adapters, names and summaries."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import onnx_aot
from onnx_aot.errors import InferenceError, InvalidOptionError, SaveError
from tests.tolerances import assert_close

Tensor = torch.Tensor
X = torch.randn(2, 32)


class Lora(torch.nn.Module):
    """A linear layer with an adapter of low rank."""

    def __init__(self) -> None:
        super().__init__()
        self.base = torch.nn.Linear(32, 32)
        self.lora_a = torch.nn.Linear(32, 4, bias=False)
        self.lora_b = torch.nn.Linear(4, 32, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.lora_b(self.lora_a(x))


@pytest.fixture(scope="module")
def lora() -> Lora:
    torch.manual_seed(0)
    return Lora()


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
    with pytest.raises(InvalidOptionError, match="is no ONNX model"):
        onnx_aot.ONNXProgram.load(tmp_path / "text.onnx")
    path = saved(lora, tmp_path / "model.onnx")
    data = tmp_path / "model.onnx.data"
    os.truncate(data, 100)
    with pytest.raises(InvalidOptionError, match=r"has 100 bytes; base\.weight in .* ends at byte"):
        onnx_aot.ONNXProgram.load(path)
    data.unlink()
    with pytest.raises(InvalidOptionError, match=r"refers to model\.onnx\.data, which is not besi"):
        onnx_aot.ONNXProgram.load(path)
    proto = onnx.load(path, load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        entry.value = "../secret" if entry.key == "location" else entry.value
    onnx.save(proto, path)
    with pytest.raises(InvalidOptionError, match=r"\.\./secret, which is not in its folder"):
        onnx_aot.ONNXProgram.load(path)


@pytest.mark.parametrize("source", ["own", "given", "file"])
def test_adapters(source: str, lora: Lora, tmp_path: Path) -> None:
    program = onnx_aot.export(lora, (X,), weights_as_inputs=["lora_*"])
    program.save(tmp_path / "model.onnx", default_weights=True)
    assert [value.const_value for value in program.model.graph.inputs] == [None] * 3
    other = lora if source == "own" else Lora()
    state = {n: t for n, t in other.state_dict().items() if "lora" in n}
    if source == "file":
        torch.save(state, tmp_path / "adapter.pt")
    given: Any = {"own": None, "given": state, "file": tmp_path / "adapter.pt"}[source]
    program.save_adapter(tmp_path / "adapter", given, version=7)
    adapter = onnxruntime.LoraAdapter()
    adapter.Load(str(tmp_path / "adapter"))
    read = onnxruntime.AdapterFormat.read_adapter(str(tmp_path / "adapter"))
    assert read.get_adapter_version() == 7
    options = onnxruntime.RunOptions()
    options.add_active_adapter(adapter)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (y,) = session.run(None, {"x": X.numpy()})
    assert_close(torch.from_numpy(y), lora(X))
    (y,) = session.run(None, {"x": X.numpy()}, options)
    expected = lora.base(X) + other.lora_b(other.lora_a(X))
    assert_close(torch.from_numpy(y), expected)
    assert_close(program(X)[0], lora(X))  # as it was


def test_adapters_that_cannot_be_written(lora: Lora, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="Export it with weights_as_inputs="):
        onnx_aot.export(lora, (X,)).save_adapter(tmp_path / "adapter")
    program = onnx_aot.export(lora, (X,), weights_as_inputs=["lora_*"])
    with pytest.raises(InvalidOptionError, match=r"missing: lora_b\.weight"):
        program.save_adapter(tmp_path / "adapter", {"lora_a.weight": lora.lora_a.weight})
    with pytest.raises(InvalidOptionError, match=r"lora_a\.weight is FLOAT\[4,32\] in the model"):
        program.save_adapter(tmp_path / "adapter", {"lora_a.weight": X})
    with pytest.raises(SaveError, match="there is no folder"):
        program.save_adapter(tmp_path / "missing" / "adapter")
    with onnx_aot.enable_fake_mode():
        empty = Lora()
    program = onnx_aot.export(empty, (X,), weights_as_inputs=["lora_*"])
    with pytest.raises(InferenceError, match="has no values yet"):
        program.save_adapter(tmp_path / "adapter")
    assert list(tmp_path.iterdir()) == []


class Steps(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(7, 8)
        self.head = torch.nn.Linear(8, 7, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("count", torch.zeros(1))

    def forward(self, ids: Tensor, phase: Tensor) -> tuple[Tensor, Tensor]:
        self.count.add_(1)
        hidden = self.embed(ids)
        return self.head(torch.cat([hidden, hidden], 1)) * self.count, phase * 2


@pytest.fixture(scope="module")
def steps() -> onnx_aot.ONNXProgram:
    inputs = (torch.tensor([[1, 2, 3]]), torch.randn(4, dtype=torch.complex64))
    shapes = ({0: "batch", 1: "time"}, {0: "n"})
    return onnx_aot.export(
        Steps(), inputs, dynamic_shapes=shapes, state="io", weights_as_inputs=["embed*"]
    )


def test_summaries(steps: onnx_aot.ONNXProgram) -> None:
    assert [(str(value), value.role) for value in steps.inputs] == [
        ("ids: int64[batch, time]", "input"),
        ("phase: complex64[n]", "input"),
        ("count: float32[1]", "state"),
        ("head.weight: float32[7, 8]", "weight"),
    ]
    assert [str(value) for value in steps.outputs] == [
        "mul: float32[batch, 2*time, 7]",
        "mul_1: complex64[n]",
        "count_out: float32[1]",
    ]
    assert steps.inputs[0].dtype == torch.int64
    assert steps.inputs[0].shape == ("batch", "time")
    assert all(value.role == "output" for value in steps.outputs)


def test_names_both_ways(steps: onnx_aot.ONNXProgram) -> None:
    names = steps.names()
    assert names.to_onnx("embed.weight") == names.to_onnx("head.weight")
    weight = names.to_onnx("embed.weight")
    assert sorted(names.to_torch(weight)) == ["embed.weight", "head.weight"]
    assert names.to_onnx("count") == "count"
    for node in ("embedding", "linear", "mul"):
        assert names.to_torch(names.to_onnx(node)) == [node]
    assert names.to_onnx("ids") == "ids"
    with pytest.raises(InvalidOptionError, match="no value for 'nothing'"):
        names.to_onnx("nothing")
    with pytest.raises(InvalidOptionError, match="corresponds to 'nothing'"):
        names.to_torch("nothing")


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
    with pytest.raises(InvalidOptionError, match="no dimension is called 'time'; they are batch, "):
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
