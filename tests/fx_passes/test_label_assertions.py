"""Messages of assertions about data name the condition and the line, and are unique."""

from __future__ import annotations

import torch

from onnx_aot.fx_passes.label_assertions import LABELLED, label_assertions

Tensor = torch.Tensor


class Checked(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        torch._check(x.shape[0] > 1)
        for part in (x, x + 1):
            torch._assert_async((part > 0).all(), "positive")
        n = x[0].to(torch.int64).item()
        torch._check(n < 5)
        return x * n


def test_messages() -> None:
    program = torch.export.export(
        Checked(), (torch.ones(3),), dynamic_shapes=({0: torch.export.Dim("n", max=9)},)
    )
    nodes = label_assertions(program).graph.nodes
    messages = [str(node.args[1]) for node in nodes if node.target in LABELLED]
    assert messages[:2] == ["positive", "positive #2"]
    assert "u0 <= 4 (n = x[0].to(torch.int64).item())" in messages
