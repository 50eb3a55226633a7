"""Modules as local functions: their nodes and sharing, and that nothing else changes."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Collection
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.ir_passes.module_functions import modules_as_functions
from onnx_aot.metadata.module_calls import ModuleCall
from tests.tolerances import assert_close

DIMS = ({0: "batch", 1: "seq"},)


class Block(nn.Module):
    """Attention, sizes and a branch: typical contents of a model's blocks."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.attention = nn.TransformerEncoderLayer(width, 2, 16, batch_first=True)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, _ = x.shape
        return self.out(self.attention(x)).reshape(batch * seq, -1).view(batch, seq, -1) + x


class Net(nn.Module):
    def __init__(self, count: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(count))
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.norm(self.blocks[0](x + 1))


def exported(
    model: nn.Module,
    modules: bool | Collection[type[Any] | str],
    x: Tensor | None = None,
    **options: Any,
) -> onnx_aot.ONNXProgram:
    """Exports a model and checks it at the example's size and at another one."""
    x = torch.randn(2, 5, 8) if x is None else x
    program = onnx_aot.export(
        model, (x,), dynamic_shapes=DIMS, export_modules_as_functions=modules, **options
    )
    onnx.checker.check_model(program.model_proto, full_check=True)
    right(program, model, x)
    return program


def right(program: onnx_aot.ONNXProgram, model: nn.Module, x: Tensor) -> None:
    for given in (x, torch.cat([x, x, x])[:, :3]):
        with torch.no_grad():
            assert_close(program(given)[0], model(given))


def functions(program: onnx_aot.ONNXProgram) -> list[str]:
    return sorted(
        f"{f.domain.rpartition('.')[2]}.{f.name}" for f in program.model.functions.values()
    )


def calls(program: onnx_aot.ONNXProgram, name: str) -> list[str]:
    return [str(node.name) for node in program.model.graph if node.op_type == name]


def test_calls_share_a_function_and_weights_are_its_inputs() -> None:
    program = exported(Net().eval(), {Block})
    assert functions(program) == ["test_module_functions.Block"]
    assert calls(program, "Block") == [
        "node_blocks.0",
        "node_blocks.1",
        "node_blocks.2",
        "node_blocks.0@1",
    ]
    (function,) = program.model.functions.values()
    inputs = [value.name for value in function.inputs]
    assert {"attention.linear1.weight_folded", "out.weight_folded", "out.bias"} <= set(inputs)
    second = next(node for node in program.model.graph if node.name == "node_blocks.1")
    given = [value.name for value in second.inputs if value is not None]
    assert given[inputs.index("out.weight_folded")] == "blocks.1.out.weight_folded"
    assert ast.literal_eval(second.metadata_props["pkg.torch.onnx.name_scopes"])[-1] == "blocks.1"
    scopes = [n.metadata_props["pkg.torch.onnx.name_scopes"] for n in function if n.metadata_props]
    assert any(
        ast.literal_eval(scope)[:2] == ["attention", "attention.self_attn"] for scope in scopes
    )
    assert not any("blocks." in scope for scope in scopes)


def test_without_the_option_there_are_none() -> None:
    assert functions(exported(Net().eval(), False)) == []


def test_true_takes_the_blocks_that_repeat() -> None:
    program = exported(Net().eval(), True)
    assert functions(program) == ["test_module_functions.Block"]


def test_functions_inside_functions() -> None:
    classes = {Block, nn.TransformerEncoderLayer, "torch.nn.modules.linear.Linear"}
    program = exported(Net().eval(), classes)
    found = functions(program)
    assert found == [
        "linear.Linear",
        "test_module_functions.Block",
        "transformer.TransformerEncoderLayer",
    ]
    assert {node.op_type for node in program.model.graph} & {
        "Linear",
        "TransformerEncoderLayer",
    } == set()
    inner = {f.name: {node.op_type for node in f} for f in program.model.functions.values()}
    assert {"TransformerEncoderLayer", "Linear"} <= inner["Block"]
    assert "Linear" in inner["TransformerEncoderLayer"]


@pytest.mark.parametrize("modules", [True, {Block, nn.TransformerEncoderLayer}])
def test_inline_flattens(modules: Any) -> None:
    model = Net().eval()
    program = exported(model, modules)
    program.inline()
    assert functions(program) == []
    assert set(program.model.opset_imports) == {""}
    onnx.checker.check_model(program.model_proto, full_check=True)
    right(program, model, torch.randn(2, 5, 8))


@pytest.mark.parametrize(
    "options", [{"optimize": False}, {"opset_version": 17}, {"metadata": "none"}]
)
def test_with_other_options(options: dict[str, Any]) -> None:
    assert functions(exported(Net().eval(), {Block}, **options)) == ["test_module_functions.Block"]


def test_calls_that_differ_have_functions_of_their_own() -> None:
    class Scale(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(x * self.factor)

    model = nn.Sequential(Scale(2.0), Scale(3.0), Scale(2.0))
    program = exported(model, {Scale})
    assert [node.op_type for node in program.model.graph] == ["Scale", "Scale_2", "Scale"]


def test_several_results_and_a_result_that_is_read_inside() -> None:
    class Pair(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = x.relu()
            return y, (y + 1).exp()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pair = Pair()

        def forward(self, x: Tensor) -> Tensor:
            first, second = self.pair(x)
            return first * second

    program = exported(Model(), {Pair})
    (call,) = [node for node in program.model.graph if node.op_type == "Pair"]
    assert len(call.outputs) == 2


def test_a_result_of_the_model() -> None:
    program = exported(nn.Sequential(nn.Linear(8, 4), nn.ReLU()), {nn.ReLU})
    (output,) = program.model.graph.outputs
    assert output.producer().op_type == "ReLU"
    assert [str(dim) for dim in output.shape] == ["batch", "seq", "4"]


def test_a_type_that_the_target_lacks() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).bfloat16()
    x = torch.randn(2, 5, 8).bfloat16()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", onnx_aot.OnnxExporterWarning)
        program = onnx_aot.export(model, (x,), export_modules_as_functions={nn.Linear})
    assert len(calls(program, "Linear")) == 2
    assert functions(program) == ["linear.Linear"]
    with torch.no_grad():
        assert_close(program(x)[0], model(x))


def test_a_module_that_is_called_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(self.linear(x) * 2)

    program = exported(Twice(), {nn.Linear})
    assert calls(program, "Linear") == ["node_linear", "node_linear@1"]
    assert functions(program) == ["linear.Linear"]


def graph_of(*nodes: tuple[str, str, list[str]]) -> ir.Model:
    """Makes a node per (module, result, inputs); ``x`` is the input, the last result the output."""
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2]))
    values = {"x": x}
    made = []
    for module, name, inputs in nodes:
        value = ir.Value(name=name, type=x.type, shape=x.shape)
        values[name] = value
        made.append(ir.Node("", "Sum", [values[i] for i in inputs], outputs=[value], name=name))
        made[-1].meta["fx_node"] = module
    graph = ir.Graph([x], [value], nodes=made, opset_imports={"": 20}, name="g")
    return ir.Model(graph, ir_version=9)


def outlined(model: ir.Model) -> tuple[list[str], list[str]]:
    """Returns the remaining calls, and the operators of the graph afterwards."""
    calls = {"m": (ModuleCall("m", "package.M"),)}
    left = modules_as_functions(model, calls, frozenset({"package.M"}))
    onnx.checker.check_model(ir.serde.serialize_model(model), full_check=True)
    return left, [node.op_type for node in model.graph]


def test_what_leaves_a_module_and_comes_back_stays() -> None:
    model = graph_of(("m", "a", ["x"]), ("", "b", ["a"]), ("m", "c", ["a", "b"]))
    assert outlined(model) == (["m"], ["Sum", "Sum", "Sum"])


def test_what_stands_between_and_reads_comes_after_the_call() -> None:
    model = graph_of(
        ("m", "a", ["x"]),
        ("", "b", ["a"]),
        ("", "c", ["x"]),
        ("", "d", ["b"]),
        ("m", "e", ["a", "c"]),
        ("", "f", ["d", "e"]),
    )
    left, operators = outlined(model)
    assert (left, operators) == ([], ["Sum", "M", "Sum", "Sum", "Sum"])
    assert [node.name for node in model.graph if node.op_type == "Sum"] == ["c", "b", "d", "f"]
