"""Constructs that only scripted models have: lists of tensors, branches and loops."""

from __future__ import annotations

import onnx
import pytest
import torch

import onnx_aot
from onnx_aot.inspection.differences import compare_outputs
from onnx_aot.inspection.verification import format_differences
from onnx_aot.torch_ops import scripted_ops as so
from tests.capture.scripted import sequences as f
from tests.ops.rows import Row, parametrize

ROWS = [
    Row(so.sequence_construct, (), call=f.chosen_of_two),
    Row(so.sequence_construct, (), call=f.steps_stacked, name="empty"),
    Row(so.sequence_append, (), call=f.steps_stacked),
    Row(so.sequence_stack, (), call=f.steps_stacked),
    Row(so.sequence_stack, (), call=f.stacked_last, name="last dimension"),
    Row(so.sequence_cat, (), call=f.pieces_joined),
    Row(so.sequence_insert, (), call=f.inserted_first),
    Row(so.sequence_erase, (), call=f.popped),
    Row(so.sequence_at, (), call=f.popped),
    Row(so.sequence_length, (), call=f.counted),
    Row(so.sequence_split, (), call=f.pieces_joined, name="pieces"),
    Row(so.sequence_split, (), call=f.rows, name="rows"),
    Row(so.branch, (), call=f.doubled_or_less),
    Row(so.repeat, (), call=f.steps_stacked),
]


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@parametrize(ROWS)
def test_row(row: Row) -> None:
    scripted = torch.jit.script(row.call)
    inputs = [(torch.randn(5, 3), torch.tensor(n)) for n in (3, 2, 6)]
    inputs.append((torch.randn(4, 3), torch.tensor(2)))
    for opset in (17, 25):
        program = onnx_aot.export(
            scripted, inputs[0], dynamic_shapes=({0: "n"}, None), opset_version=opset
        )
        graphs = [
            module.graph
            for module in program.exported_program.graph_module.modules()
            if isinstance(module, torch.fx.GraphModule)
        ]
        assert row.target in {node.target for graph in graphs for node in graph.nodes}
        onnx.checker.check_model(program.model_proto, full_check=True)
        for given in inputs:
            expected = [scripted(*given)]
            differences = compare_outputs(["result"], expected, program(*given))
            assert all(d.within for d in differences), format_differences(differences)
