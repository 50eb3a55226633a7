"""Modules that ``forward`` moves: ``onnx_aot/capture/patches/module_moves.py``."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import onnx_aot
from onnx_aot.errors import CaptureError


class Moved(nn.Module):
    def __init__(self, move: Callable[[nn.Module, torch.Tensor], nn.Module]) -> None:
        super().__init__()
        self.layer = nn.BatchNorm1d(3)
        self.move = move

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.move(self.layer, x)(x)


@pytest.mark.parametrize(
    "move",
    [
        lambda layer, x: layer.to(x.device),
        lambda layer, x: layer.to("cpu", non_blocking=True),
        lambda layer, x: layer.to(device="cpu", dtype=torch.float32),
        lambda layer, x: layer.to(torch.float32),
        lambda layer, x: layer.to(x),
    ],
)
def test_a_move_to_where_the_module_is_does_nothing(
    move: Callable[[nn.Module, torch.Tensor], nn.Module],
) -> None:
    model = Moved(move).eval()
    program = onnx_aot.export(model, (torch.randn(1, 3),), dynamic_shapes=({0: "batch"},))
    for size in (1, 5):
        x = torch.randn(size, 3)
        torch.testing.assert_close(program(x)[0], model(x))


def test_another_type_is_not_ignored() -> None:
    model = Moved(lambda layer, x: layer.to(x)).eval()
    x = torch.randn(2, 3, dtype=torch.float64)
    with pytest.raises(CaptureError):
        onnx_aot.export(model, (x,))
