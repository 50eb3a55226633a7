"""Nodes are printed in the same form as by FX."""

from __future__ import annotations

import torch
from torch import Tensor

from onnx_aot.metadata.fx_text import FxText


def model(x: Tensor, index: Tensor) -> tuple[Tensor, ...]:
    first, second = x.split([1, 2], dim=1)
    written = x.clone().index_put_((index,), torch.ones(()))[:, index]
    return (
        torch.cat([first, second, x.mean(1, keepdim=True)], 1),
        x.to(torch.float16).to("cpu", torch.float64),
        torch.full((x.shape[0], 2), 1.5, dtype=torch.int32),
        torch.full_like(x, float("inf")),
        torch.einsum("ij,kj->ik", x, second.expand(-1, 2).repeat(1, 2)[:, :3]),
        written[..., ::2],
        torch.nn.functional.pad(x, (1, 0), value=-2.0),
        x.sort(stable=True, descending=True).values,
    )


def test_as_fx_prints_it() -> None:
    shapes = {"x": {0: torch.export.Dim("n")}, "index": None}

    class Module(torch.nn.Module):
        def forward(self, x: Tensor, index: Tensor) -> tuple[Tensor, ...]:
            return model(x, index)

    given = (torch.rand(4, 3), torch.tensor([0, 2]))
    program = torch.export.export(Module(), given, dynamic_shapes=shapes)
    text = FxText()
    for _ in range(2):  # the second time, the results of earlier calls are cached
        for node in program.graph.nodes:
            assert text.format_node(node) == str(node.format_node())
    assert len(text._called) > 10
    assert None not in text._called.values()
