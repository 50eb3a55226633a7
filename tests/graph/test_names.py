"""Names of inputs, outputs and weights are unique and match the names that the user gave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnx.checker
import onnx_ir as ir
import pytest
import torch

import onnx_aot
from onnx_aot.errors import InvalidOptionError
from onnx_aot.graph.names import Names
from onnx_aot.metadata.keys import INPUT_KIND
from tests.translate.two_layers import Tensor, X, inputs_of, names, two_layers


def outputs_of(program: onnx_aot.ONNXProgram) -> list[str]:
    return names(program.model.graph.outputs)


def every_name(model: ir.Model) -> Iterator[str]:
    for graph in model.graphs():
        yield from names((*graph.inputs, *graph.initializers.values()))
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        yield str(node.name)
        yield from names(node.outputs)
    for function in model.functions.values():
        yield str(function.name)
        yield from names([*function.inputs, *(v for node in function for v in node.outputs)])


def test_names_are_unique_and_what_is_reserved_stays() -> None:
    found = Names(reserved=("x", "x_1"))
    assert [found.unique(name) for name in ("x", "x", "y", "x_2", "y")] == [
        "x_2",
        "x_3",
        "y",
        "x_2_1",
        "y_1",
    ]


# --- collisions ----------------------------------------------------------------------------------


class EveryKind(torch.nn.Module):
    """Values of every kind: parts of complex numbers, nested loops, constants, weights."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.phase = torch.nn.Parameter(torch.randn(3, dtype=torch.complex64))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, z: Tensor) -> tuple[Any, ...]:
        self.count += 1
        y = torch.softmax(self.linear(x), -1)
        return y, z * self.phase, torch.linalg.qr(y)[1].abs(), y + self.count, x, 3


KINDS = (torch.randn(4, 3), torch.randn(3, dtype=torch.complex64))


@pytest.fixture(scope="module")
def every_kind() -> tuple[EveryKind, onnx_aot.ONNXProgram]:
    model = EveryKind()
    return model, onnx_aot.export(model, KINDS, state="io")


def taken_names(program: onnx_aot.ONNXProgram) -> dict[str, str]:
    """Returns one name of each kind of value in the model."""
    graph = program.model.graph
    loops = [node for node in graph if node.op_type in ("Loop", "Scan", "If")]
    bodies = [
        a.as_graph() for a in loops[0].attributes.values() if a.type == ir.AttributeType.GRAPH
    ]
    weights = {n: v for n, v in graph.initializers.items() if INPUT_KIND in v.metadata_props}
    return {
        "input": str(graph.inputs[0].name),
        "state": "count",
        "state output": "count_out",
        "output": outputs_of(program)[2],
        "output that is an input": outputs_of(program)[4],
        "weight": next(iter(weights)),
        "constant": next(n for n in graph.initializers if n not in weights),
        "part": next(n for n in every_name(program.model) if n.endswith(".real")),
        "inner value": str(loops[0].inputs[0].name),
        "subgraph input": str(bodies[0].inputs[0].name),
        "subgraph value": str(bodies[0][-1].outputs[0].name),
        "node": str(loops[0].name),
    }


def test_a_name_that_something_else_has_is_the_user_s(
    every_kind: tuple[EveryKind, onnx_aot.ONNXProgram],
) -> None:
    model, reference = every_kind
    reference.reset_state()
    expected = reference(*KINDS)
    taken = taken_names(reference)
    assert len(set(taken.values())) == len(taken)
    kinds = list(taken)
    for kind, other in zip(kinds, [*kinds[1:], kinds[0]], strict=True):
        given, returned = ["i", taken[kind]], ["o", taken[other]]
        program = onnx_aot.export(
            model, KINDS, state="io", input_names=given, output_names=returned
        )
        assert inputs_of(program)[:2] == given, kind
        assert outputs_of(program)[:2] == returned, other
        onnx.checker.check_model(program.model_proto, full_check=True)
        for actual, wanted in zip(program(*KINDS), expected, strict=True):
            torch.testing.assert_close(actual, wanted)


def test_the_names_of_values_are_unique_over_all_graphs(
    every_kind: tuple[EveryKind, onnx_aot.ONNXProgram],
) -> None:
    _, program = every_kind
    found = [
        *inputs_of(program),
        *(n for graph in program.model.graphs() for n in graph.initializers),
        *(n for graph in list(program.model.graphs())[1:] for n in names(graph.inputs)),
        *(
            name
            for node in ir.traversal.RecursiveGraphIterator(program.model.graph)
            for name in names(node.outputs)
            if name
        ),
    ]
    assert len(found) == len(set(found))


def test_names_are_the_same_in_every_export(
    every_kind: tuple[EveryKind, onnx_aot.ONNXProgram],
) -> None:
    model, program = every_kind
    again = onnx_aot.export(model, KINDS, state="io")
    assert list(every_name(again.model)) == list(every_name(program.model))


# --- outputs -------------------------------------------------------------------------------------


class OddOutputs(torch.nn.Module):
    """Outputs that are inputs, weights, constants, duplicates, numbers and nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3))
        self.register_buffer("table", torch.arange(3))

    def forward(self, x: Tensor) -> dict[str, Any]:
        y = x + self.weight
        return {
            "none": None,
            "x": [x, x],
            "weight": self.weight,
            "table": (self.table, self.table),
            "constant": torch.tensor([1.5, 2.5]),
            "numbers": [3, 2.5, True, 3],
            "size": x.shape[0],
            "half": x.shape[0] / 2,
            "many": x.shape[0] > 1,
            "y": (y, None, y),
        }


def test_outputs_of_every_kind_are_delivered_with_names_of_their_own() -> None:
    model = OddOutputs()
    x = torch.randn(4, 3)
    shapes = ({0: torch.export.Dim("rows", min=2)},)
    program = onnx_aot.export(model, (x,), dynamic_shapes=shapes)
    onnx.checker.check_model(program.model_proto, full_check=True)
    found = outputs_of(program)
    assert len(set(found)) == len(found) == 15
    assert set(found).isdisjoint(inputs_of(program))
    for rows in (2, 4, 7):
        given = torch.randn(rows, 3)
        leaves, _ = torch.utils._pytree.tree_flatten(model(given))
        expected = [leaf for leaf in leaves if leaf is not None]
        for actual, wanted in zip(program(given), expected, strict=True):
            if isinstance(wanted, Tensor):
                assert torch.equal(actual, wanted)
            else:
                assert actual.item() == wanted
                assert actual.dtype.is_floating_point == isinstance(wanted, float)
                assert (actual.dtype == torch.bool) == isinstance(wanted, bool)
        restored = program(given, structured=True)
        assert restored["none"] is None
        assert restored["y"][1] is None


def test_names_for_outputs_of_every_kind() -> None:
    given = [f"output_{index}" for index in range(15)]
    program = onnx_aot.export(OddOutputs(), (torch.randn(4, 3),), output_names=given)
    assert outputs_of(program) == given
    onnx.checker.check_model(program.model_proto, full_check=True)


def test_an_output_that_would_be_called_as_a_named_one() -> None:
    def both(x: Tensor) -> tuple[Tensor, ...]:
        y = x + 1
        return y, x, x, y

    program = onnx_aot.export(both, (torch.randn(3),), output_names=["x", "add"])
    found = outputs_of(program)
    assert found[:2] == ["x", "add"]
    assert len({*found, *inputs_of(program)}) == 5
    x = torch.randn(3)
    for actual, wanted in zip(program(x), both(x), strict=True):
        assert torch.equal(actual, wanted)


# --- names beyond the user's inputs --------------------------------------------------------------


def test_names_go_on_to_the_weights(tmp_path: Path) -> None:
    model, path = two_layers(), tmp_path / "model.onnx"
    given = ["data", "w1", "b1", "scale", "shift", "b2", "w2"]
    program = onnx_aot.export(
        model, (X,), path, input_names=given, keep_initializers_as_inputs=True
    )
    graph = onnx.load(path).graph
    listed = [value.name for value in graph.input]
    assert listed == [*given, "norm.running_mean", "norm.running_var"]
    assert inputs_of(program) == ["data"]
    torch.testing.assert_close(program(X)[0], model(X))
    other = two_layers()
    program.apply_weights(other.state_dict())  # under the module's names, as always
    torch.testing.assert_close(program(X)[0], other(X))


@pytest.mark.parametrize("optimize", [True, False])
def test_more_names_than_weights(optimize: bool) -> None:
    message = (
        r"11 names, .* 1 inputs: data\. .* 8 weights, .*first\.weight, .*norm\.running_var\nSee"
    )
    given = ["data", *"abcdefghij"]
    with pytest.raises(InvalidOptionError, match=message):
        onnx_aot.export(two_layers(), (X,), input_names=given, optimize=optimize)
