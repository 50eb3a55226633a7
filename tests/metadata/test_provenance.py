"""Selects the user's line from a recorded stack."""

from __future__ import annotations

import os

import pytest
import torch
from torch.export import Dim

from onnx_aot.metadata.provenance import location

TORCH = os.path.dirname(torch.__file__)
USER = '  File "/home/me/model.py", line 7, in forward\n    return self.inner(x)\n'
TORCHS = f'  File "{TORCH}/nn/modules/linear.py", line 3, in forward\n    return F.linear(x)\n'
GENERATED = '  File "<eval_with_key>.26", line 9, in forward\n    cond = torch.ops.cond(x)\n'
ADDED = '  File "torch/fx/passes/runtime_assert.py", line 24, in insert_deferred_runtime_asserts'
PROMPT = '  File "<stdin>", line 1, in <module>\n'
RELATIVE = '  File "torch_models/model.py", line 2, in forward\n    return x + 1\n'


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (USER, "/home/me/model.py:7 in forward: return self.inner(x)"),
        (USER + TORCHS, "/home/me/model.py:7 in forward: return self.inner(x)"),
        (USER + GENERATED, "/home/me/model.py:7 in forward: return self.inner(x)"),
        (ADDED + "\n" + USER, "/home/me/model.py:7 in forward: return self.inner(x)"),
        (PROMPT + TORCHS, "<stdin>:1 in <module>"),
        (RELATIVE, "torch_models/model.py:2 in forward: return x + 1"),
        (TORCHS, f"{TORCH}/nn/modules/linear.py:3 in forward: return F.linear(x)"),
        (GENERATED, "None"),
        (ADDED, "None"),
        ("", "None"),
    ],
)
def test_the_innermost_line_of_the_user(trace: str, expected: str) -> None:
    node = torch.fx.Graph().placeholder("x")
    node.meta["stack_trace"] = trace
    found = location(node)
    assert ("None" if found is None else found.with_code) == expected


class ReadsSize(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.relu()
        return y.reshape(x.shape[0] * 2, -1)


def test_a_size_is_where_it_is_read() -> None:
    program = torch.export.export(
        ReadsSize(), (torch.ones(4, 4),), dynamic_shapes=({0: Dim.DYNAMIC},)
    )
    size = next(n for n in program.graph.nodes if n.target == torch.ops.aten.sym_size.int)
    where = location(size)
    assert where is not None
    assert (where.file, where.code) == (__file__, "return y.reshape(x.shape[0] * 2, -1)")
