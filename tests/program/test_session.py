"""Sessions: devices, types that torch or NumPy lack, and inputs that do not fit."""

from __future__ import annotations

import types
from typing import Any

import onnx_ir as ir
import onnxruntime
import pytest
import torch

import onnx_aot
from onnx_aot.errors import InferenceError
from onnx_aot.program import session as session_module
from onnx_aot.program.session import device_of, providers_for


def four_bits(kind: ir.DataType, shape: tuple[Any, ...]) -> onnx_aot.ONNXProgram:
    """Takes 4-bit integers; returns them as floats and as 4-bit integers again."""
    x = ir.Value(name="x", type=ir.TensorType(kind), shape=ir.Shape(shape))
    scale = ir.Value(name="scale", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([]))
    scale.const_value = ir.tensor(2.0, name="scale")
    floats = ir.Node("", "DequantizeLinear", [x, scale])
    back = ir.Node("", "QuantizeLinear", [floats.outputs[0], scale])
    back.attributes.add(ir.AttrInt64("output_dtype", int(kind)))
    for node, name, dtype in ((floats, "floats", ir.DataType.FLOAT), (back, "back", kind)):
        node.outputs[0].name, node.outputs[0].dtype = name, dtype
        node.outputs[0].shape = ir.Shape(shape)
    graph = ir.Graph(
        [x],
        [floats.outputs[0], back.outputs[0]],
        nodes=[floats, back],
        initializers=[scale],
        opset_imports={"": 21},
        name="g",
    )
    return onnx_aot.ONNXProgram(ir.Model(graph, ir_version=10))


@pytest.mark.parametrize("shape", [(), (1,), (7,), (8,), (3, 5), (2, 0)])
@pytest.mark.parametrize("signed", [True, False])
def test_integers_of_four_bits(shape: tuple[int, ...], signed: bool) -> None:
    kind, dtype = (ir.DataType.INT4, torch.int8) if signed else (ir.DataType.UINT4, torch.uint8)
    x = torch.randint(-8 if signed else 0, 8 if signed else 16, shape).to(dtype)
    floats, back = four_bits(kind, shape)(x)
    assert torch.equal(floats, x * 2.0)
    assert back.dtype == dtype
    assert torch.equal(back, x)


def test_integers_that_have_more_than_four_bits() -> None:
    program = four_bits(ir.DataType.INT4, (2,))
    with pytest.raises(InferenceError, match="numbers from -8 to 7; -9 to 1 was given"):
        program(torch.tensor([1, -9], dtype=torch.int8))
    message = "x is INT4 .* given as torch.int8, .*; torch.uint8 was given"
    with pytest.raises(InferenceError, match=message):
        program(torch.tensor([1, 2], dtype=torch.uint8))


def test_the_device_of_the_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.zeros(1)
    assert device_of([cpu]) == torch.device("cpu")
    assert device_of([cpu, cpu.to("meta")]) == torch.device("meta")
    has = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: has)
    exact = {"use_tf32": "0"}
    first = ("CUDAExecutionProvider", exact | {"device_id": 1})
    assert providers_for(torch.device("cuda:1")) == [first, "CPUExecutionProvider"]
    assert providers_for(torch.device("cuda"))[0] == ("CUDAExecutionProvider", exact)
    for device in (None, torch.device("cpu"), torch.device("mps")):
        assert providers_for(device) == ["CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: has[1:])
    assert providers_for(torch.device("cuda:1")) == ["CPUExecutionProvider"]


def test_a_session_is_made_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new session is made when the inputs move; outputs are on the device of the inputs."""
    program = onnx_aot.export(torch.nn.Linear(3, 2), (torch.ones(1, 3),))
    made: list[Any] = []
    create = session_module.create_session
    moved = torch.device("meta")  # stands for an accelerator, which test machines lack

    def recorded(model: Any, device: torch.device | None = None, quantizes: bool = False) -> Any:
        assert not quantizes
        made.append(device)
        return create(model)

    monkeypatch.setattr(session_module, "create_session", recorded)
    where = [torch.device("cpu")]
    monkeypatch.setattr(session_module, "device_of", lambda tensors: where[0])
    for device in ("cpu", "cpu", moved, moved, "cpu"):
        where[0] = torch.device(device)
        (y,) = program(torch.ones(1, 3))
        assert y.device == where[0]
    assert made == [torch.device("cpu"), moved, torch.device("cpu")]
    own: list[Any] = []

    def mine(model: str | bytes) -> onnxruntime.InferenceSession:
        own.append(model)
        return create(model)

    program.initialize_inference_session(mine)
    for device in ("cpu", moved):  # the user's own session is kept
        where[0] = torch.device(device)
        program(torch.ones(1, 3))
    assert len(own) == 1
    assert len(made) == 3


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((torch.ones(2, 3),), r"was captured with \(x, y\); it was called with"),
        (
            (torch.ones(2, 3), torch.ones(2, 3)),
            "input y is torch.int64 in the model; torch.float32",
        ),
        ((torch.ones(2, 3, 1), torch.ones(2, 3).long()), r"input x has shape \[n,3\] in the model"),
        ((torch.ones(2, 4), torch.ones(2, 3).long()), r"\[n,3\] in the model; \[2, 4\] was given"),
        ((torch.ones(2, 3), torch.ones(5, 3).long()), "dimension n is 2 in input x, axis 0, and 5"),
    ],
)
def test_inputs_that_do_not_fit(inputs: tuple[Any, ...], message: str) -> None:
    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    shapes = ({0: "n"}, {0: "n"})
    x = torch.ones(2, 3)
    program = onnx_aot.export(add, (x, x.long()), dynamic_shapes=shapes)
    with pytest.raises(InferenceError, match=message):
        program(*inputs)


def test_integers_of_four_bits_are_not_bound_on_a_device() -> None:
    """No type of torch describes their memory."""

    def session(provider: str, kind: str) -> Any:
        values = [types.SimpleNamespace(type=kind)]
        return types.SimpleNamespace(
            get_inputs=lambda: values, get_outputs=lambda: values, get_providers=lambda: [provider]
        )

    cuda = torch.device("cuda")
    assert session_module._may_bind(session("CUDAExecutionProvider", "tensor(int64)"), cuda)
    assert not session_module._may_bind(session("CUDAExecutionProvider", "tensor(int4)"), cuda)
    assert not session_module._may_bind(session("CPUExecutionProvider", "tensor(int64)"), cuda)
