"""Graphs are mutated and judged; ``nox -s conformance`` tries many of the zoo's."""

from __future__ import annotations

import os
import random
import signal

import onnx_ir as ir
import pytest
import torch
from torch.export import ExportedProgram

import onnx_aot
from conformance import mutated_graphs
from conformance.judging import judge_export
from conformance.mutated_graphs import (
    choose_calls,
    find_alike,
    merge_results,
    mutate_graph,
    mutate_row,
)
from onnx_aot import sweep
from onnx_aot.errors import ConversionError

X = torch.linspace(-2, 2, 12).reshape(3, 4)


class Net(torch.nn.Module):
    """Takes and returns ``[batch, 4]``."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul(2.0).relu().sum(1, keepdim=True) + x


def capture() -> ExportedProgram:
    return torch.export.export(Net(), (X,), dynamic_shapes=({0: torch.export.Dim.AUTO},))


def node_of(program: ExportedProgram, name: str) -> torch.fx.Node:
    return next(node for node in program.graph.nodes if node.name == name)


def test_operators_of_one_signature() -> None:
    program = capture()
    found = {str(operator) for operator in find_alike(node_of(program, "relu"))}
    assert {"aten.tanh.default", "aten.cumsum.default"} & found == {"aten.tanh.default"}
    assert not {"aten.relu.default", "aten.relu_.default", "aten.bernoulli.default"} & found
    reductions = {str(operator) for operator in find_alike(node_of(program, "sum_1"))}
    assert {"aten.mean.dim", "aten.amax.default", "aten.all.dims"} <= reductions
    assert not {"aten.sum.default", "aten.max.dim"} & reductions


def test_mutations_change_one_node() -> None:
    seen = set()
    for seed in range(40):
        program = capture()
        before = [(node.target, node.args, node.kwargs) for node in program.graph.nodes]
        text = mutate_graph(program.graph, random.Random(seed))
        after = [(node.target, node.args, node.kwargs) for node in program.graph.nodes]
        assert sum(a != b for a, b in zip(before, after, strict=True)) == bool(text)
        seen.add(text)
    assert len(seen) > 15
    assert any("instead of" in text for text in seen)


def test_right_exports() -> None:
    assert judge_export(capture(), (X,), {}) == ("right", "")


class Cancelling(torch.nn.Module):
    """Rounds to multiples of 8 in float32, which float64 shows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + 1e8 - 1e8).relu()


@pytest.mark.parametrize(("shift", "outcome"), [(1.0, "explained"), (1000.0, "wrong")])
def test_a_value_is_explained_if_pytorch_s_own_is_as_far_from_float64(
    shift: float, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = onnx_aot.export

    def export_shifted(program: ExportedProgram) -> onnx_aot.ONNXProgram:
        exported = export(program)
        sub = next(n for n in exported.model.graph if n.op_type == "Sub")
        relu = next(n for n in exported.model.graph if n.op_type == "Relu")
        value = ir.Value(name="shift", const_value=ir.tensor(torch.tensor(shift).numpy()))
        exported.model.graph.register_initializer(value)
        moved = ir.node("Add", [sub.outputs[0], value])
        relu.prepend(moved)
        relu.replace_input_with(0, moved.outputs[0])
        return exported

    monkeypatch.setattr(onnx_aot, "export", export_shifted)
    captured = torch.export.export(Cancelling(), (X + 3,))
    found, text = judge_export(captured, (X + 3,), {})
    assert found == outcome
    assert ("relu: elements beyond the tolerance" in text) == (outcome == "explained")


def test_wrong_translations_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    export = onnx_aot.export

    def export_wrongly(program: ExportedProgram) -> onnx_aot.ONNXProgram:
        exported = export(program)
        next(n for n in exported.model.graph if n.op_type == "Relu").op_type = "Abs"
        return exported

    monkeypatch.setattr(onnx_aot, "export", export_wrongly)
    outcome, text = judge_export(capture(), (X,), {})
    assert outcome == "wrong"
    assert "own aten.relu.default relu" in text


def test_refused_and_unexpected_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(program: ExportedProgram) -> None:
        raise ConversionError("no form\nmore")

    monkeypatch.setattr(onnx_aot, "export", refuse)
    assert judge_export(capture(), (X,), {}) == ("refused", "ConversionError: no form more")

    def fail(program: ExportedProgram) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(onnx_aot, "export", fail)
    outcome, text = judge_export(capture(), (X,), {})
    assert outcome == "wrong"
    assert "KeyError: 'oops'" in text


def test_a_row_of_the_zoo() -> None:
    result = mutate_row("lstm_cells", 3, 2)
    assert not result["failures"]
    assert sum(result["outcomes"].values()) - result["outcomes"].get("invalid", 0) == 2


def test_calls_and_results_are_added() -> None:
    calls = list(choose_calls(25, 4, ["a", "b"]))
    assert sum(trials for _, _, trials in calls) == 25
    assert {row for row, _, _ in calls} == {"a", "b"}
    assert len({seed for _, seed, _ in calls}) == len(calls)
    assert list(choose_calls(10, 4, ["a", "b"], done=2)) == [(calls[0][0], 400_002, 10)]
    one = {"outcomes": {"right": 2, "invalid": 5}, "refused": [], "explained": [], "failures": []}
    two = {"outcomes": {"wrong": 1, "refused": 1}, "refused": ["E"], "explained": []}
    two |= {"failures": ["f"], "calls": {"4": 1}}
    merged = merge_results([{**one, "calls": {"4": 1}}, two])
    assert merged["calls"] == {"4": 2}
    assert merged["trials"] == 4
    assert merged["refused"] == {"E": 1}
    assert merged["failures"] == ["f"]
    assert merge_results([merged]) == merged
    assert merge_results([merged, two])["refused"] == {"E": 2}


def test_a_crash_is_a_failure() -> None:
    ended = sweep.Result("bert, seed 100001", "crashed", reason="the process ended by SIGSEGV")
    result = mutated_graphs.result_of(ended)
    assert result["calls"] == {"1": 1}
    assert result["failures"] == ["bert, seed 100001: the process ended by SIGSEGV"]


def test_a_mutant_that_crashes_pytorch_is_left_out() -> None:
    assert mutated_graphs._survives(lambda: None)
    assert mutated_graphs._survives(lambda: 1 / 0)
    assert not mutated_graphs._survives(lambda: os.kill(os.getpid(), signal.SIGKILL))


def test_mutants_do_not_share_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer that is mutated to train writes to its running statistics."""
    x = torch.randn(4, 3)
    program = torch.export.export(torch.nn.BatchNorm1d(3).eval(), (x,))
    before = program.state_dict["running_mean"].clone()

    def train(graph: torch.fx.Graph, _: random.Random) -> str:
        (node,) = (n for n in graph.nodes if n.target is torch.ops.aten.batch_norm.default)
        node.args = (*node.args[:5], True, *node.args[6:])
        return "trains"

    monkeypatch.setattr(mutated_graphs, "mutate_graph", train)
    monkeypatch.setattr(mutated_graphs, "_capture_row", lambda *_: (program, (x,), {}, None))
    mutate_row("row", 0, 2)
    assert torch.equal(program.state_dict["running_mean"], before)
