"""Branches on data are carried out as ``torch.cond``: ``onnx_aot/capture/branches/replay.py``."""

from __future__ import annotations

import torch
from torch import Tensor

import onnx_aot


def test_a_size_that_a_way_reads_from_two_tensors() -> None:
    """Torch once named two inputs of the way alike."""

    def mark(x: Tensor, mask: Tensor) -> Tensor:
        rows = mask.any(-1).nonzero(as_tuple=True)
        numbers = torch.arange(x.shape[0])
        for _ in range(2):
            if mask.any():
                x = x + numbers[:, None] + torch.ones(numbers.shape[0], 1)
                x = x.reshape(x.shape[0], -1)
                x[rows] = x[rows] * 2
            else:
                x = x - 1
        return x

    x, mask = torch.rand(3, 5), torch.eye(3, 5) > 0
    program = onnx_aot.export(mark, (x, mask), dynamic_shapes=({0: "n"}, {0: "n"}))
    for count in (3, 1, 4):
        x = torch.rand(count, 5)
        for mask in (torch.rand(count, 5) > 0.5, torch.zeros(count, 5, dtype=torch.bool)):
            torch.testing.assert_close(program(x, mask)[0], mark(x, mask))
