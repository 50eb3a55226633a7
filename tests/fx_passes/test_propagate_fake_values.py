"""Nodes without values, and views that share no memory any more, are translated like any other."""

from __future__ import annotations

import io
import operator
from typing import Any

import pytest
import torch
from torch.export import Dim

import onnx_aot
from onnx_aot.errors import ConversionError
from onnx_aot.torch_compat import aten

Tensor = torch.Tensor


def _double(x: Tensor) -> Tensor:
    return x + 1


class Branch(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


def _captured(model: Any, x: Tensor) -> torch.export.ExportedProgram:
    class Module(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return model(x)

    module = model if isinstance(model, torch.nn.Module) else Module()
    return torch.export.export(module, (x,), dynamic_shapes=({0: Dim.DYNAMIC},))


def _replace(graph: torch.fx.Graph, target: Any, make: Any) -> None:
    """Replaces each node of ``target`` by the nodes that ``make`` inserts before it."""
    for node in [node for node in graph.nodes if node.target is target]:
        with graph.inserting_before(node):
            node.replace_all_uses_with(make(graph, node))
        graph.erase_node(node)


def _rows_added(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node:
    """Adds twice the index of each row."""
    rows = graph.call_function(aten.sym_size.int, (node.args[0], 0))
    twice = graph.call_function(operator.mul, (rows, 2))
    numbers = graph.call_function(aten.arange.start_step, (0, twice, 2))
    column = graph.call_function(aten.unsqueeze.default, (numbers, 1))
    return graph.call_function(aten.add.Tensor, (node.args[0], column))


def test_nodes_without_values() -> None:
    program = _captured(_double, torch.randn(3, 4))
    _replace(program.graph, aten.add.Tensor, _rows_added)
    exported = onnx_aot.export(program)
    assert (
        "val"
        not in program.graph.find_nodes(op="call_function", target=aten.arange.start_step)[0].meta
    )
    for rows in (3, 5):
        x = torch.randn(rows, 4)
        expected = x + 2 * torch.arange(rows)[:, None]
        torch.testing.assert_close(exported(x)[0], expected)
    assert len(exported.model.graph.outputs[0].shape) == 2


def test_a_write_to_a_view_that_was_put_in() -> None:
    """Shared memory is detected in the values that the pass computes."""

    def written(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node:
        new = graph.call_function(aten.clone.default, (node.args[0],))
        row = graph.call_function(aten.select.int, (new, 0, 0))
        graph.call_function(aten.zero_.default, (row,))
        return new

    program = _captured(_double, torch.randn(3, 4))
    _replace(program.graph, aten.add.Tensor, written)
    x = torch.randn(5, 4)
    expected = torch.cat([torch.zeros(1, 4), x[1:]])
    torch.testing.assert_close(onnx_aot.export(program)(x)[0], expected)


def test_in_a_branch() -> None:
    program = _captured(Branch(), torch.ones(3, 4))
    body = next(m for n, m in program.graph_module.named_children() if n.startswith("true"))
    _replace(
        body.graph, aten.add.Tensor, lambda g, n: g.call_function(aten.mul.Tensor, (n.args[0], 3))
    )
    exported = onnx_aot.export(program)
    torch.testing.assert_close(exported(torch.ones(5, 4))[0], 3 * torch.ones(5, 4))
    torch.testing.assert_close(exported(-torch.ones(5, 4))[0], -2 * torch.ones(5, 4))


def test_what_cannot_be_computed_names_the_node() -> None:
    program = _captured(_double, torch.randn(3, 4))
    _replace(
        program.graph,
        aten.add.Tensor,
        lambda g, n: g.call_function(aten.mm.default, (n.args[0], n.args[0])),
    )
    with pytest.raises(ConversionError, match=r"mm.*no recorded value.*node.meta\[.val.\]"):
        onnx_aot.export(program)


class Writes(torch.nn.Module):
    """Writes through views of several kinds, to a buffer too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        y[:, 0] = 1
        y.t()[1].mul_(3)
        first, second = y.view(-1, 2, 2).unbind(1)
        first.add_(second)
        second.reshape(-1)[::2].neg_()
        self.last[1:].copy_(y[0, 1:])
        return y, self.last + 0


def test_a_program_that_was_saved_keeps_its_writes() -> None:
    shapes = ({0: Dim.DYNAMIC},)
    program = torch.export.export(Writes(), (torch.randn(3, 4),), dynamic_shapes=shapes)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    exported = onnx_aot.export(torch.export.load(file), state="drop")
    for rows in (3, 5):
        x = torch.randn(rows, 4)
        for value, expected in zip(exported(x), Writes()(x), strict=True):
            torch.testing.assert_close(value, expected)
