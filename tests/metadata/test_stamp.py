"""Metadata on every node, in torch.onnx's formats."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import warnings
from pathlib import Path
from typing import Any

import onnxscript
import pytest
import torch

import onnx_aot
from onnx_aot.metadata.trace_paths import relativize_trace

Tensor = torch.Tensor
NODE_KEYS = (
    "namespace",
    "pkg.torch.onnx.class_hierarchy",
    "pkg.torch.onnx.name_scopes",
    "pkg.torch.onnx.fx_node",
    "pkg.torch.onnx.stack_trace",
)


class Inner(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4))
        self.register_buffer("offset", torch.ones(4))
        self.register_buffer("scale", torch.ones(4), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.offset * self.scale


class Outer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(Inner(), torch.nn.Linear(4, 4, bias=False), Inner())

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.layers(x).relu(), torch.logaddexp(y, y)  # has no translation of its own


def exported(**options: Any) -> onnx_aot.ONNXProgram:
    x = torch.randn(3, 4)
    options.setdefault("dynamic_shapes", ({0: "batch"}, {0: "batch"}))
    return onnx_aot.export(Outer(), (x, x + 1), **options)


def test_every_node_has_everything() -> None:
    program = exported(optimize=False)
    fx_nodes = {str(node.format_node()): node for node in program.exported_program.graph.nodes}
    assert len(program.model.graph) > 5
    for node in program.model.graph:
        for key in NODE_KEYS:
            assert node.metadata_props.get(key), (node, key)
        fx_node = fx_nodes[node.metadata_props["pkg.torch.onnx.fx_node"]]
        trace = relativize_trace(fx_node.meta["stack_trace"], {})
        assert node.metadata_props["pkg.torch.onnx.stack_trace"] == trace
        scopes = ast.literal_eval(node.metadata_props["pkg.torch.onnx.name_scopes"])
        classes = ast.literal_eval(node.metadata_props["pkg.torch.onnx.class_hierarchy"])
        assert scopes[-1] == fx_node.name
        assert classes[-1] == str(fx_node.target)
        assert node.metadata_props["namespace"] == "/".join(
            f"{scope}: {kind}" for scope, kind in zip(scopes, classes, strict=True)
        )


def test_nodes_of_a_decomposition_come_from_the_decomposed_node() -> None:
    program = exported()
    of_expansion = [
        node
        for node in program.model.graph
        if "aten.logaddexp.default" in node.metadata_props["namespace"]
    ]
    assert len(of_expansion) > 1
    for node in of_expansion:
        assert "torch.logaddexp(y, y)" in node.metadata_props["pkg.torch.onnx.stack_trace"]
        assert (
            "target=torch.ops.aten.logaddexp.default"
            in node.metadata_props["pkg.torch.onnx.fx_node"]
        )


def test_module_hierarchy() -> None:
    program = exported()
    add = next(n for n in program.model.graph if n.op_type == "Add")
    hierarchy = ast.literal_eval(add.metadata_props["pkg.torch.onnx.class_hierarchy"])
    assert hierarchy[0] == f"{__name__}.Outer"
    assert hierarchy[1] == "torch.nn.modules.container.Sequential"
    assert hierarchy[2] == f"{__name__}.Inner"
    scopes = ast.literal_eval(add.metadata_props["pkg.torch.onnx.name_scopes"])
    assert scopes[:3] == ["", "layers", "layers.0"]


def test_graph_inputs_outputs_and_initializers() -> None:
    program = exported(input_names=["a"], output_names=["first"], optimize=False)
    graph = program.model.graph
    signature = graph.metadata_props["pkg.torch.export.ExportedProgram.graph_signature"]
    assert signature == str(program.exported_program.graph_signature)
    constraints = graph.metadata_props["pkg.torch.export.ExportedProgram.range_constraints"]
    assert constraints == str(program.exported_program.range_constraints)
    kind = "pkg.torch.export.graph_signature.InputSpec.kind"
    persistent = "pkg.torch.export.graph_signature.InputSpec.persistent"
    original = "pkg.torch.onnx.original_node_name"
    a, y = graph.inputs
    assert (a.name, a.metadata_props[kind], a.metadata_props[original]) == ("a", "USER_INPUT", "x")
    assert (y.name, y.metadata_props[persistent]) == ("y", "None")
    assert original not in y.metadata_props
    first, second = graph.outputs
    assert first.metadata_props["pkg.torch.export.graph_signature.OutputSpec.kind"] == "USER_OUTPUT"
    assert first.metadata_props[original] == "relu"
    assert original not in second.metadata_props
    weight = graph.initializers["layers.0.weight"]
    assert weight.metadata_props[kind] == "PARAMETER"
    assert weight.metadata_props[original] == "p_layers_0_weight"
    assert graph.initializers["layers.0.offset"].metadata_props[persistent] == "True"
    assert graph.initializers["layers.0.scale"].metadata_props[persistent] == "False"


def test_python_functions_are_named_without_their_address() -> None:
    def longer(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.zeros(torch.sym_max(x.shape[0], y.shape[0]))

    inputs = (torch.ones(2), torch.ones(3))
    program = onnx_aot.export(longer, inputs, dynamic_shapes=({0: "n"}, {0: "m"}))
    written = [str(node.metadata_props) for node in program.model.graph]
    assert any("torch.sym_max" in properties for properties in written)
    assert not any("0x" in properties for properties in written)


def test_levels() -> None:
    light = exported(metadata="light")
    for node in light.model.graph:
        assert set(node.metadata_props) == set(NODE_KEYS[:3])
    none = exported(metadata="none")
    for node in none.model.graph:
        assert not node.metadata_props
    assert none.model.graph.inputs[0].metadata_props  # describes the input; negligible in size


def test_stack_traces_relative_to_a_folder() -> None:
    folder = Path(__file__).parent
    program = exported(stack_trace_root=folder)
    traces = [n.metadata_props["pkg.torch.onnx.stack_trace"] for n in program.model.graph]
    here = os.path.basename(__file__)
    assert any(f'File "{here}"' in trace for trace in traces)
    assert not any(str(folder) in trace for trace in traces)


def test_bodies_of_local_functions_have_metadata() -> None:
    opset = onnxscript.opset18
    domain = onnxscript.values.Opset("test.domain", 1)

    @onnxscript.script(domain)
    def Doubled(x):  # noqa: N802
        return opset.Add(x, x)

    program = onnx_aot.export(
        torch.nn.ReLU(),
        (torch.randn(3),),
        custom_translation_table={torch.ops.aten.relu.default: Doubled},
    )
    (function,) = program.model.functions.values()
    for node in function:
        assert set(node.metadata_props) == set(NODE_KEYS)
        assert "aten.relu.default" in node.metadata_props["namespace"]


def test_same_as_torch_onnx() -> None:
    """All five properties agree where both exporters emit a node for an FX node."""
    module, x = Outer().eval(), torch.randn(3, 4)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        theirs = torch.onnx.export(module, (x, x), dynamo=True, optimize=False)
    ours = onnx_aot.export(module, (x, x))

    def by_fx_node(program: Any) -> dict[str, dict[str, str]]:
        found = {}
        for node in program.model.graph:
            scopes = ast.literal_eval(node.metadata_props["pkg.torch.onnx.name_scopes"])
            found[scopes[-1]] = dict(node.metadata_props)
        return found

    left, right = by_fx_node(ours), by_fx_node(theirs)
    both = left.keys() & right.keys()
    assert {"mul", "linear", "relu"} <= both
    for name in both:
        for key in NODE_KEYS:
            if key == "pkg.torch.onnx.fx_node":
                # their decomposition renames nodes, so only the format is compared
                assert left[name][key].startswith(f"%{name} : [num_users=")
                assert right[name][key].startswith(f"%{name} : [num_users=")
                continue
            assert left[name][key] == relativize_trace(right[name][key], {}), (name, key)
    assert ours.model.graph.metadata_props.keys() == theirs.model.graph.metadata_props.keys()
    for a, b in zip(ours.model.graph.inputs, theirs.model.graph.inputs, strict=True):
        assert a.metadata_props == b.metadata_props
    for name, value in theirs.model.graph.initializers.items():
        if name in ours.model.graph.initializers:
            assert ours.model.graph.initializers[name].metadata_props == value.metadata_props


@pytest.mark.parametrize("level", ["everything", None, 1])
def test_unknown_level_is_refused(level: Any) -> None:
    with pytest.raises(onnx_aot.OnnxExporterError, match=r"metadata is .*; expected one of 'full'"):
        exported(metadata=level)
