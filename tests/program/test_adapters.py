"""Adapter files: weights that are model inputs, for ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch

import onnx_aot
from onnx_aot.errors import InferenceError, InvalidOptionError, SaveError
from tests.program.lora import Lora, X
from tests.tolerances import assert_close


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
    assert_close(program(X)[0], lora(X))  # unchanged


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
