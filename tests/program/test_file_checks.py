"""Models of files that contradict themselves, or refer to what they should not read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from onnx import TensorProto, helper

import onnx_aot
from onnx_aot.errors import InvalidOptionError
from onnx_aot.metadata.keys import DIMENSIONS

FLOATS = TensorProto.FLOAT
OPSETS = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]


def saved(
    folder: Path, weight: TensorProto | None = None, functions: Sequence[Any] = (), **metadata: str
) -> Path:
    """Saves ``y = x + weight``, or ``y = own::F(x)`` if there are functions."""
    x, y = (helper.make_tensor_value_info(name, FLOATS, [8]) for name in "xy")
    node = helper.make_node("Add", ["x", "w"], ["y"])
    if functions:
        node = helper.make_node("F", ["x"], ["y"], domain="own")
    graph = helper.make_graph([node], "g", [x], [y], [] if weight is None else [weight])
    for key, value in metadata.items():
        entry = graph.metadata_props.add()
        entry.key, entry.value = key, value
    model = helper.make_model(graph, functions=functions, opset_imports=OPSETS, ir_version=10)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


def tensor(shape: Sequence[int], data_type: int = FLOATS, **fields: Any) -> TensorProto:
    made = TensorProto(name="w", data_type=data_type, dims=shape)
    for name, value in fields.items():
        if isinstance(value, bytes):
            setattr(made, name, value)
        else:
            getattr(made, name).extend(value)
    return made


def external(location: str, shape: Sequence[int] = (8,), offset: int = 0) -> TensorProto:
    made = TensorProto(name="w", data_type=FLOATS, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", str(offset))):
        entry = made.external_data.add()
        entry.key, entry.value = key, value
    return made


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (tensor([2**20, 2**20]), r"needs 1,099,511,627,776 numbers and has 0"),
        (tensor([2**20, 2**20], raw_data=b"1234"), "needs 4,398,046,511,104 bytes .* has 4"),
        (tensor([8], raw_data=b"1" * 31), "needs 32 bytes of data and has 31"),
        (tensor([-8]), r"has the impossible shape \[-8\]"),
        (tensor([0, 2**62]), "has the impossible shape"),
        (tensor([2**31, 2**31, 2**31]), "has the impossible shape"),
        (tensor([8], int64_data=[1] * 8), "has data of another type than FLOAT"),
        (tensor([8], TensorProto.INT4, int32_data=[1] * 3), "needs 4 numbers and has 3"),
        (tensor([8], TensorProto.STRING, string_data=[b"a"]), "has 1 texts for"),
        (tensor([8], 0), "has no type"),
        (tensor([8], 99), "is not an ONNX model"),
        (external("data", offset=-8), "begins before its data file|is not an ONNX model"),
        (external("data", [2**40]), "has 64 bytes; w in .* ends at byte"),
    ],
)
def test_tensors(weight: TensorProto, message: str, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(64))
    with pytest.raises(InvalidOptionError, match=message):
        onnx_aot.ONNXProgram.load(saved(tmp_path, weight))


@pytest.mark.parametrize(
    "weight",
    [
        tensor([8], float_data=[1.0] * 8),
        tensor([8], raw_data=bytes(32)),
        tensor([0, 3]),
        tensor([5], TensorProto.INT4, int32_data=[1, 1, 1]),
        tensor([2], TensorProto.COMPLEX64, float_data=[1.0] * 4),
        tensor([2], TensorProto.STRING, string_data=[b"a", b"b"]),
        external("data"),
        external("./data"),
    ],
)
def test_valid_tensors(weight: TensorProto, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(64))
    program = onnx_aot.ONNXProgram.load(saved(tmp_path, weight))
    assert program.model.graph.initializers["w"].const_value is not None


@pytest.mark.parametrize("place", ["initializer", "attribute"])
@pytest.mark.parametrize(
    "location", ["../secret", "/etc/passwd", "sub/../../secret", "link", "folder/secret", "a\0b"]
)
def test_data_outside_the_folder(place: str, location: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(64))
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "folder").symlink_to(tmp_path)
    path = saved(folder, external(location))
    if place == "attribute":
        model = onnx.load(path, load_external_data=False)
        del model.graph.initializer[:]
        constant = helper.make_node("Constant", [], ["w"], value=tensor([8], raw_data=bytes(32)))
        constant.attribute[0].t.CopyFrom(external(location))
        model.graph.node.insert(0, constant)
        path.write_bytes(model.SerializeToString())
    with pytest.raises(InvalidOptionError, match=r"not in its folder\. Copy the data into the"):
        onnx_aot.ONNXProgram.load(path)


def test_links_of_a_cache(tmp_path: Path) -> None:
    """Downloads are links to files beside each other, under other names."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    program = onnx_aot.export(torch.nn.Linear(64, 64), (torch.ones(1, 64),))
    program.save(snapshot / "model.onnx", external_data=True)
    for number, name in enumerate(("model.onnx", "model.onnx.data")):
        (snapshot / name).rename(blobs / str(number))
        (snapshot / name).symlink_to(Path("..", "blobs", str(number)))
    loaded = onnx_aot.ONNXProgram.load(snapshot / "model.onnx")
    assert torch.equal(loaded(torch.ones(1, 64))[0], program(torch.ones(1, 64))[0])


def test_data_that_is_not_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # reading it would wait forever
    with pytest.raises(InvalidOptionError, match="refers to pipe, which is not a regular file"):
        onnx_aot.ONNXProgram.load(saved(tmp_path, external("pipe")))


def test_functions_that_call_themselves(tmp_path: Path) -> None:
    def calls(name: str, called: str) -> onnx.FunctionProto:
        node = helper.make_node(called, ["a"], ["b"], domain="own")
        return helper.make_function("own", name, ["a"], ["b"], [node], OPSETS)

    direct = [calls("F", "F")]
    through = [calls("F", "G"), calls("G", "H"), calls("H", "G")]
    for functions, names in ((direct, "own::F"), (through, "own::F, own::G, own::H")):
        path = saved(tmp_path, functions=functions)
        with pytest.raises(InvalidOptionError, match=f"functions call themselves: {names}"):
            onnx_aot.ONNXProgram.load(path)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "{",
        "[" * 100_000,
        "5",
        "{}",
        '{"dimensions": {"n": 5}, "relations": [], "conditions": []}',
    ],
    ids=lambda text: text[:9],
)
def test_metadata_on_dimensions(written: str, tmp_path: Path) -> None:
    path = saved(tmp_path, tensor([8], raw_data=bytes(32)), **{DIMENSIONS: written})
    with pytest.raises(InvalidOptionError, match="remove the entry, or save the model again"):
        onnx_aot.ONNXProgram.load(path)


@pytest.mark.parametrize("where", ["node", "metadata", "value", "dimension"])
def test_texts_that_are_not_utf_8(where: str, tmp_path: Path) -> None:
    path = saved(tmp_path, tensor([8], raw_data=bytes(32)), key="textual")
    model = onnx.load(path)
    model.graph.node[0].name = "textual" if where == "node" else "n"
    model.graph.metadata_props[0].value = "textual" if where == "metadata" else "m"
    shape = model.graph.input[0].type.tensor_type.shape
    shape.dim[0].dim_param = "textual" if where == "dimension" else "d"
    model.graph.input[0].name = "textual" if where == "value" else "x"
    path.write_bytes(model.SerializeToString().replace(b"textual", b"text\xffal"))
    with pytest.raises(InvalidOptionError, match=r"has a text that is not UTF-8|not an ONNX model"):
        onnx_aot.ONNXProgram.load(path)
