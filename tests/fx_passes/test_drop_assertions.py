"""Assertions are dropped, with the nodes that only they need."""

from __future__ import annotations

import torch

from onnx_aot.fx_passes.drop_assertions import ASSERTIONS, drop_assertions

Tensor = torch.Tensor


class Checked(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        torch._check(x.shape[0] > 1)
        return x.to(torch.float32) + x.shape[0]


def test_assertions_and_what_only_they_need_are_dropped() -> None:
    program = torch.export.export(
        Checked(), (torch.randn(3, 4),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
    )
    assert any(node.target in ASSERTIONS for node in program.graph.nodes)
    targets = [node.target for node in drop_assertions(program).graph.nodes]
    assert not ASSERTIONS.intersection(targets)
    calls = [t for t in targets if not isinstance(t, str)]
    assert calls == [
        torch.ops.aten.sym_size.int,
        torch.ops.aten.to.dtype,
        torch.ops.aten.add.Tensor,
    ]
