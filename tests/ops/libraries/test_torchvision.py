"""torchvision's operators: ``onnx_aot/ops/libraries/torchvision.py``."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import onnx_aot
from benchmarks.models.torchvision_cpu import load_torchvision
from tests.ops.rows import Row, T, check, floats, parametrize

torchvision = load_torchvision()
needs_torchvision = pytest.mark.skipif(torchvision is None, reason="torchvision is not installed")

WIDE = torch.float64


def operator(name: str) -> Any:
    """Returns None without torchvision, in which case the rows are left out."""
    packet = getattr(torch.ops.torchvision, name, None)
    return None if packet is None else packet.default


def boxes(count: int | str, size: float = 20.0, dtype: torch.dtype = torch.float32) -> T:
    def make(n: int, _: int) -> torch.Tensor:
        corners = torch.rand(n, 2) * size
        return torch.cat([corners, corners + torch.rand(n, 2) * size], 1)

    return T((count, 4), dtype, make)


def rois(count: int | str, dtype: torch.dtype = torch.float32, least: float = -4.0) -> T:
    """Regions in two images, some of them beyond the border."""

    def make(n: int, _: int) -> torch.Tensor:
        corners = torch.rand(n, 2) * 16 + least
        image = torch.randint(0, 2, (n, 1))
        return torch.cat([image, corners, corners + torch.rand(n, 2) * 14], 1)

    return T((count, 5), dtype, make)


def images(channels: int, *sizes: int | str, dtype: torch.dtype = torch.float32) -> T:
    return floats(2, channels, *(sizes or (12, 10)), dtype=dtype)


EMPTY = ({"n": 0},)

NMS = [
    Row(
        operator("nms"),
        (boxes("n"), floats("n"), threshold),
        sizes=({"n": 50}, *EMPTY),
        name=f"{threshold}",
    )
    for threshold in (0.0, 0.3, 0.5, 1.0)
] + [
    Row(operator("nms"), (boxes("n", dtype=WIDE), floats("n", dtype=WIDE), 0.3), name="double"),
    Row(
        operator("nms"),
        (
            T((3, 4), torch.float32, lambda *_: torch.tensor([[0.0, 0, 4, 4]]).repeat(3, 1)),
            T((3,), torch.float32, lambda _: torch.ones(3)),
            0.5,
        ),
        name="equal scores",
    ),
]

ALIGN = [
    Row(
        operator("roi_align"),
        (images(3, "h", "w", dtype=dtype), rois("n", dtype), scale, 3, 2, ratio, aligned),
        name=f"{scale} {ratio} {aligned} {dtype}",
        sizes=EMPTY,
    )
    for scale, ratio, aligned, dtype in (
        (1.0, 2, False, torch.float32),
        (0.5, 2, True, torch.float32),
        (1.0, -1, False, torch.float32),
        (0.7, -1, True, torch.float32),
        (0.75, 0, True, WIDE),
    )
]

ALIGN_BY_POSITION = [
    Row(
        operator("ps_roi_align"),
        (images(12, "h", "w", dtype=dtype), rois("n", dtype), scale, 3, 2, ratio),
        name=f"{scale} {ratio} {dtype}",
        sizes=EMPTY,
    )
    for scale, ratio, dtype in (
        (1.0, 2, torch.float32),
        (0.7, -1, torch.float32),
        (1.0, -1, WIDE),
    )
]

POOL = [
    Row(
        operator("roi_pool"),
        (images(3, "h", "w"), rois("n"), scale, 3, 2),
        name=f"{scale}",
        sizes=EMPTY,
    )
    for scale in (1.0, 0.5, 0.3)
]

POOL_BY_POSITION = [
    Row(
        operator("ps_roi_pool"),
        (images(12, "h", "w", dtype=dtype), rois("n", dtype), scale, 3, 2),
        name=f"{scale} {dtype}",
        sizes=EMPTY,
    )
    for scale, dtype in ((1.0, torch.float32), (0.5, torch.float32), (0.3, WIDE))
]

DEFORMABLE = [
    Row(
        operator("deform_conv2d"),
        (
            floats("n", 4, "h", 9, dtype=dtype),
            floats(6, 4 // groups, 3, 2, dtype=dtype),
            floats("n", 2 * offsets * 6, "h", 6, dtype=dtype),
            floats("n", offsets * 6 if masked else 1, "h" if masked else 1, 6, dtype=dtype),
            floats(6, dtype=dtype),
            *(1, 2, 1, 2, 1, 1),
            groups,
            offsets,
            masked,
        ),
        since=19,
        name=f"{groups} {offsets} {masked} {dtype}",
    )
    for groups, offsets, masked, dtype in (
        (1, 1, True, torch.float32),
        (2, 2, True, torch.float32),
        (1, 2, False, WIDE),
    )
]

ALL = [*NMS, *ALIGN, *ALIGN_BY_POSITION, *POOL, *POOL_BY_POSITION, *DEFORMABLE]
ROWS = [] if torchvision is None else ALL


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)


@needs_torchvision
def test_suppression_is_an_input_of_more() -> None:
    """The number of remaining boxes is known only at run time."""

    class Keep(torch.nn.Module):
        def forward(self, x: torch.Tensor, scores: torch.Tensor) -> Any:
            kept = torch.ops.torchvision.nms(x, scores, 0.5)
            return x[kept] * 2, scores[kept]

    torch.manual_seed(0)
    example = (boxes(30).example({}), torch.rand(30))
    program = onnx_aot.export(Keep(), example, dynamic_shapes=({0: "n"}, {0: "n"}))
    for count in (1, 80):
        inputs = (boxes(count).example({}), torch.rand(count))
        for actual, expected in zip(program(*inputs), Keep()(*inputs), strict=True):
            assert torch.equal(actual, expected)


@needs_torchvision
def test_unread_positions_cost_nothing() -> None:
    class Pool(torch.nn.Module):
        def forward(self, x: torch.Tensor, regions: torch.Tensor) -> torch.Tensor:
            pooled: torch.Tensor = torchvision.ops.roi_pool(x, regions, 2)  # type: ignore[union-attr]
            return pooled

    inputs = (images(3).example({}), rois(4).example({}))
    program = onnx_aot.export(Pool(), inputs)
    assert [node.op_type for node in program.model.graph] == ["MaxRoiPool"]


@needs_torchvision
def test_suppression_per_class() -> None:
    """torchvision tests for more than a thousand boxes; the model supports any number."""

    class Keep(torch.nn.Module):
        def forward(self, x: torch.Tensor, scores: torch.Tensor, classes: torch.Tensor) -> Any:
            kept = scores > 0.5
            x, scores, classes = x[kept], scores[kept], classes[kept]
            return torchvision.ops.boxes.batched_nms(x, scores, classes, 0.3)  # type: ignore[union-attr]

    def inputs(count: int) -> tuple[torch.Tensor, ...]:
        return boxes(count).example({}), torch.rand(count), torch.randint(0, 3, (count,))

    torch.manual_seed(0)
    program = onnx_aot.export(Keep(), inputs(30), dynamic_shapes=({0: "n"},) * 3)
    for count in (1, 80, 3000):
        example = inputs(count)
        assert torch.equal(program(*example)[0], Keep()(*example))
    nothing = (boxes(9).example({}), torch.zeros(9), torch.zeros(9, dtype=torch.int64))
    assert program(*nothing)[0].shape == (0,)
