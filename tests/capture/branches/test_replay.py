"""Branches on data are carried out as ``torch.cond``: ``onnx_aot/capture/branches/replay.py``."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

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


def test_what_makes_sizes_equal_on_one_way_says_nothing_of_others() -> None:
    """``stack`` makes both images have 3 points where the first has more; the second may, too."""

    def keep(points: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        if len(points) <= 3:
            return points, scores
        scores, best = torch.topk(scores, 3, dim=0)
        return points[best], scores

    def forward(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        best = torch.where(x > 0.5)
        found = x[best]
        points = [torch.stack(best[1:3], -1)[best[0] == i] for i in range(x.shape[0])]
        scores = [found[best[0] == i] for i in range(x.shape[0])]
        points, scores = list(
            zip(*[keep(*pair) for pair in zip(points, scores, strict=True)], strict=True)
        )
        points = [torch.flip(each, [1]).float() for each in points]
        sampled = [
            functional.normalize(
                functional.grid_sample(
                    map_[None, None], (each[None] / 4).view(1, 1, -1, 2), align_corners=True
                ).reshape(1, 1, -1),
                dim=1,
            )[0]
            for each, map_ in zip(points, x, strict=True)
        ]
        stacked = torch.stack(sampled, 0).transpose(-1, -2).contiguous()
        return torch.stack(points, 0), torch.stack(scores, 0), stacked

    def make(first: int, second: int) -> Tensor:
        x = torch.rand(2, 16) / 2
        x[0, :first] += 0.5
        x[1, :second] += 0.5
        return x.reshape(2, 4, 4)

    program = onnx_aot.export(forward, (make(5, 8),))
    for counts in ((5, 8), (3, 3), (3, 9), (9, 3), (2, 2)):
        x = make(*counts)
        for result, expected in zip(program(x), forward(x), strict=True):
            torch.testing.assert_close(result, expected)
