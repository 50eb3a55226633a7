"""``onnx-aot inspect`` and ``view``."""

from __future__ import annotations

import json
from pathlib import Path

import onnx

from tests.cli.conftest import call


def test_inspect(saved: Path) -> None:
    done = call("inspect", str(saved))
    assert done.exit_code == 0
    assert done.stdout.isascii()
    lines = done.stdout.splitlines()
    assert "  src: float32[batch, seq, 16]" in lines
    assert "  seq: 0 to 64" in lines
    counts = dict(line.split() for line in lines[lines.index("Operators") + 1 :])
    in_file = onnx.load(saved).graph.node
    assert int(counts["MatMul"]) == sum(node.op_type == "MatMul" for node in in_file)
    assert sum(map(int, counts.values())) == len(in_file)


def test_inspect_by_module(saved: Path) -> None:
    done = call("inspect", str(saved), "--tree", "--depth", "1")
    assert done.exit_code == 0
    lines = [line.split() for line in done.stdout.splitlines()]
    parameters = 3 * 16 * 16 + 3 * 16 + 16 * 16 + 16 + 2 * (16 * 32) + 32 + 16 + 4 * 16
    (layer,) = [line for line in lines if line[:1] == ["layers.1"]]
    assert layer[1] == "TransformerEncoderLayer"
    assert layer[3] == f"{parameters:,}"
    assert "layers.1.self_attn" not in done.stdout
    assert "10 modules lie deeper: --depth 2" in done.stdout
    deeper = call("inspect", str(saved), "--tree")
    assert "    layers.1.self_attn  MultiheadAttention" in deeper.stdout


def test_inspect_as_json(saved: Path) -> None:
    done = call("inspect", str(saved), "--json")
    found = json.loads(done.stdout)
    assert found["inputs"] == [
        {"name": "src", "dtype": "float32", "shape": ["batch", "seq", 16], "role": "input"}
    ]
    assert found["opsets"] == {"": 20}
    assert found["dimensions"]["dimensions"]["seq"] == {"min": 0, "max": 64}
    assert found["modules"]["nodes"] == found["nodes"] == sum(found["operators"].values())


def test_inspect_another_exporters_model(tmp_path: Path) -> None:
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["n"]) for n in "xy")
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="not a list")
    path = tmp_path / "other.onnx"
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y])), path)
    done = call("inspect", str(path), "--tree")
    assert done.exit_code == 0
    assert "Made by  unknown" in done.stdout
    assert "(the model)" in done.stdout


def test_a_file_that_is_not_there_or_no_model(tmp_path: Path) -> None:
    done = call("inspect", str(tmp_path / "missing.onnx"))
    assert done.exit_code == 2
    assert "there is no file" in done.stderr
    (tmp_path / "text.onnx").write_text("not a model at all", encoding="utf-8")
    done = call("inspect", str(tmp_path / "text.onnx"))
    assert done.exit_code == 2
    assert "is not an ONNX model" in done.stderr
