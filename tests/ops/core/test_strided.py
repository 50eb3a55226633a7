"""Strides and storage: ``onnx_aot/ops/core/strided.py``."""

from __future__ import annotations

import pytest
import torch

import onnx_aot
from onnx_aot.errors import TranslationError
from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, bools, check, floats, ints, parametrize


def pairs(x: torch.Tensor) -> torch.Tensor:
    """Windows of two adjacent elements along the last axis."""
    n, m = x.shape
    return x.as_strided((n, m - 1, 2), (m, 1, 1))


def windows(x: torch.Tensor) -> torch.Tensor:
    """Overlapping windows of four rows, with the strides of the tensor."""
    outer, row, inner = x.stride()
    return x.as_strided((x.shape[0], x.shape[1] - 3, 4, 3), (outer, row, row, inner))


def stride_in_another_order(x: torch.Tensor) -> torch.Tensor:
    return x + 10 * x.permute(2, 0, 1).stride(1)


ROWS = [
    *(
        Row(target, args, name=name)
        for target in (aten.as_strided.default, aten.as_strided_copy.default)
        for name, args in (
            ("diagonal", (floats(4, 5), (4,), (6,))),
            ("offset", (floats(4, 5), (2, 3), (5, 1), 6)),
            ("repeated", (ints(4), (3, 2), (1, 0), 1)),
            ("none", (floats(4), (0, 2), (1, 1))),
            ("scalar", (bools(4), (), (), 2)),
            ("many", (floats(40, 40), (40, 39, 2), (40, 1, 1))),
            ("rank0", (floats(), (1,), (1,))),
        )
    ),
    Row(aten.as_strided.default, (floats("n", "m"),), call=pairs, name="dynamic"),
    Row(aten.sym_stride.int, (floats("n", "m", 3),), call=windows, name="windows"),
    Row(aten.sym_stride.int, (floats("n", "m", 3),), call=stride_in_another_order, name="order"),
    Row(
        aten.as_strided.default,
        (floats(3, 4),),
        call=lambda x: x.t().as_strided((2, 5), (1, 2), 1),
        name="transposed",
    ),
    *(
        Row(aten.as_strided_scatter.default, args, name=name)
        for name, args in (
            ("diagonal", (floats(4, 5), floats(4), (4,), (6,))),
            ("offset", (floats(4, 5), floats(2, 3), (2, 3), (5, 1), 6)),
            ("scalar", (floats(4), floats(), (), (), 2)),
            ("rank0", (floats(), floats(1), (1,), (1,))),
        )
    ),
    Row(
        aten.as_strided_scatter.default,
        (floats(3, 4), floats(2, 5)),
        call=lambda x, y: torch.as_strided_scatter(x.t(), y, (2, 5), (1, 2), 1),
        name="transposed",
    ),
    *(
        Row(aten.resize.default, args, name=name)
        for name, args in (
            ("same", (floats(4, 6), (8, 3))),
            ("fewer", (floats(4, 6), (2, 3))),
            ("scalar", (floats(), (1, 1))),
        )
    ),
    Row(aten.resize_as.default, (floats("n", 6), floats("n", 3, 2))),
    Row(
        aten.as_strided_copy.default,
        (floats("n", 6),),
        call=lambda x: aten.as_strided_copy(x, (x.shape[0], 2), (6, 3), 0),
        name="of any size",
    ),
    Row(
        aten.as_strided_scatter.default,
        (floats("n", 6), floats("n", 2)),
        call=lambda x, y: torch.as_strided_scatter(x, y, (x.shape[0], 2), (6, 3), 0),
        name="of any size",
    ),
    Row(
        aten.resize.default,
        (floats("n", 6),),
        call=lambda x: aten.resize(x, (x.shape[0], 3)),
        name="of any size",
    ),
]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)


@pytest.mark.parametrize(
    ("whole", "offset"), [(torch.ones(4, 6)[:, :3], 0), (torch.ones(24)[12:], 0)]
)
def test_storage_that_is_not_the_tensors_own(whole: torch.Tensor, offset: int) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.as_strided((2, 2), (1, 1), offset)

    with pytest.raises(TranslationError, match="as_strided reads"):
        onnx_aot.export(Model(), (whole,))


class Frames(torch.nn.Module):
    """Overlapping frames of a wave that is mirrored at its ends, as speech features take them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        frames = (x.shape[1] + 2) // 4
        missing = 4 * frames + 4 - x.shape[1]
        ends = torch.flip(x[:, :3], (1,)), torch.flip(x[:, -(missing - 3) :], (1,))
        x = torch.cat((ends[0], x, ends[1]), dim=1)
        return x.as_strided((x.shape[0], frames, 8), (x.stride(0), 4 * x.stride(1), x.stride(1)))


@pytest.mark.parametrize("batch", [1, 2])
def test_frames_of_a_tensor_whose_size_has_no_hint(batch: int) -> None:
    shapes = ({0: "batch", 1: "time"},)
    program = onnx_aot.export(Frames(), (torch.randn(batch, 21),), dynamic_shapes=shapes)
    for size in ((1, 21), (3, 34), (2, 23)):
        x = torch.randn(size)
        assert torch.equal(program(x)[0], Frames()(x))
