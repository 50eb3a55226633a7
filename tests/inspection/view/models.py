"""Models to display."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot import ONNXProgram
from onnx_aot.metadata.keys import CLASS_HIERARCHY, NAME_SCOPES


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 8)
        self.down = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.sigmoid(self.up(x)))


class Net(nn.Module):
    """Two blocks, and operators outside of them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Block()
        self.second = Block()

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.second(self.first(torch.exp(x))))


class Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        outer = torch.exp(x)
        return torch.cond(x.sum() > 0, lambda y: torch.sin(y + outer), torch.cos, (x,))


X = torch.arange(12.0).reshape(3, 4) / 10


def net() -> ONNXProgram:
    torch.manual_seed(0)
    return onnx_aot.export(Net(), (X,), dynamic_shapes=({0: "rows"},))


def branch() -> ONNXProgram:
    return onnx_aot.export(Branch(), (X,))


def net_of_functions() -> ONNXProgram:
    torch.manual_seed(0)
    return onnx_aot.export(Net(), (X,), export_modules_as_functions=[Block])


def chain(length: int, layers: int = 0) -> ONNXProgram:
    """A chain of operators, in modules ``layer.0``, ``layer.1``, ... if there are layers."""
    x = ir.val("x", ir.DataType.FLOAT, [3])
    nodes: list[ir.Node] = []
    value: ir.Value = x
    for number in range(length):
        node = ir.node("Relu", [value], name=f"relu_{number}")
        value = node.outputs[0]
        value.name, value.shape, value.type = f"v{number}", x.shape, x.type
        if layers:
            layer = f"layer.{number * layers // length}"
            node.metadata_props[NAME_SCOPES] = str(["", layer, f"fx_{number}"])
            node.metadata_props[CLASS_HIERARCHY] = str(["m.Net", "m.Layer", "aten.relu.default"])
        nodes.append(node)
    graph = ir.Graph([x], [value], nodes=nodes, opset_imports={"": 20}, name="chain")
    return ONNXProgram(ir.Model(graph, ir_version=10))


NASTY = "</script><script>document.title='hit'</script><img src=x onerror=alert(1)>\"'`&#1;"


def named(name: str = NASTY) -> ONNXProgram:
    """Two nodes in a module; everything that can have an arbitrary name has this one."""
    x = ir.val(name, ir.DataType.FLOAT, [name, 3])
    nodes = [
        ir.node(name, [x], domain=name, name=name, attributes={name: name}, overload=name)
        for _ in range(2)
    ]
    for node in nodes:
        node.metadata_props[NAME_SCOPES] = str(["", name, "fx"])
        node.metadata_props[CLASS_HIERARCHY] = str(["m.Net", name, "aten"])
        node.metadata_props["pkg.torch.onnx.stack_trace"] = name
        node.outputs[0].name = name
    outputs = [node.outputs[0] for node in nodes]
    graph = ir.Graph([x], outputs, nodes=nodes, opset_imports={"": 20, name: 1}, name=name)
    graph.metadata_props[name] = name
    return ONNXProgram(ir.Model(graph, ir_version=10))


@dataclasses.dataclass(frozen=True)
class ViewedValue:
    """The part of a comparison's row that the view uses."""

    onnx_value: str | None
    within: bool | None
    max_absolute: float | None = 0.0
    max_relative: float | None = 0.0
    remark: str = ""
    origin: str = ""


@dataclasses.dataclass(frozen=True)
class ViewedComparison:
    rows: tuple[ViewedValue, ...]
    first: ViewedValue | None = None
