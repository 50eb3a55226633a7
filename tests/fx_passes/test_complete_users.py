"""Graphs of torch that lack users of a value can be edited all the same."""

from __future__ import annotations

import torch

import onnx_aot
from onnx_aot.fx_passes.complete_users import complete_users

Tensor = torch.Tensor


class Unused(torch.nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        chosen = x[x != 0]
        with torch.no_grad():
            y * 2
        return chosen


def test_every_argument_knows_its_users() -> None:
    program = torch.export.export(Unused(), (torch.eye(3), torch.ones(2)))
    graph = program.graph_module.graph
    size = next(iter(graph.find_nodes(op="call_function", target=torch.ops.aten.sym_size.int)))
    size.args[0].users.pop(size, None)  # as torch 2.13 leaves it
    complete_users(program)
    assert size in size.args[0].users
    assert all(node in given.users for node in graph.nodes for given in node.all_input_nodes)


def test_a_region_without_gradients_beside_a_size_of_data() -> None:
    x = torch.eye(3)
    program = onnx_aot.export(Unused(), (x, torch.ones(2)))
    torch.testing.assert_close(program(x, torch.ones(2))[0], torch.ones(3))
