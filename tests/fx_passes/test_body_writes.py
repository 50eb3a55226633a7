"""Writes in bodies of higher-order operators."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as map_slices

import onnx_aot
from onnx_aot.errors import FunctionalizationError, OnnxExporterWarning
from onnx_aot.fx_passes.body_writes import functionalize_bodies
from onnx_aot.fx_passes.nested_graphs import every_body
from onnx_aot.torch_compat import aten
from tests.fx_passes.captured_calls import Tensor, captured


def writing(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Makes the first addition of a body write in place, which torch's own tracing rejects."""
    (body,) = every_body(program.graph_module)
    node = next(node for node in body.graph.nodes if node.target == aten.add.Tensor)
    node.target = aten.add_.Tensor
    node.meta["val"] = node.args[0].meta["val"]
    return program


def test_a_scan_writes_to_what_all_steps_share() -> None:
    def model(x: Tensor, total: Tensor) -> Any:
        def step(state: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            return state * 2, (total + row) * state

        return scan(step, torch.ones(3), x)

    x, total = torch.randn(4, 3), torch.zeros(3)
    program = writing(captured(model, x, total))
    with pytest.warns(OnnxExporterWarning, match="total_out|inputs_1_out"):
        actual = onnx_aot.export(program)(x, total)
    sums = x.cumsum(0)
    powers = 2.0 ** torch.arange(4)[:, None]
    torch.testing.assert_close(actual[0], torch.full((3,), 16.0))
    torch.testing.assert_close(actual[1], sums * powers)
    torch.testing.assert_close(actual[2], sums[-1])


def test_a_map_writes_to_slices() -> None:
    def model(x: Tensor) -> Any:
        y = x.clone()
        return map_slices(lambda row: (row + 1) * 2, y), y

    x = torch.randn(4, 3)
    first, second = onnx_aot.export(writing(captured(model, x)))(x)
    torch.testing.assert_close(first, (x + 1) * 2)
    torch.testing.assert_close(second, x + 1)


def test_other_writes_are_refused() -> None:
    def model(x: Tensor) -> Any:
        return scan(lambda state, row: (state + row, row * 2), torch.zeros(3), x)

    with pytest.raises(FunctionalizationError, match=r"scan writes to its parameter"):
        functionalize_bodies(writing(captured(model, torch.randn(4, 3))))

    def loop(x: Tensor) -> Any:
        return while_loop(lambda x: x.sum() < 3, lambda x: (x + 1,), (x,))

    with pytest.raises(FunctionalizationError, match="write to a clone"):
        functionalize_bodies(writing_last(captured(loop, torch.zeros(3))))


def writing_last(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    _, body = every_body(program.graph_module)
    node = next(node for node in body.graph.nodes if node.target == aten.add.Tensor)
    node.target = aten.add_.Tensor
    node.meta["val"] = node.args[0].meta["val"]
    return program
