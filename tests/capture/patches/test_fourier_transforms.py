"""Fourier transforms of symbolic lengths: ``capture/patches/fourier_transforms.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnx_aot

LENGTHS: dict[str, Callable[[Any], Any]] = {
    "longer": lambda n: 2 * n - 1,
    "shorter": lambda n: n // 2 + 1,
    "either": lambda n: (n * n + 5) // 6,
}
ONE = ("fft", "ifft", "rfft", "ihfft", "irfft", "hfft")
SEVERAL = ("fft2", "ifft2", "rfft2", "fftn", "ifftn", "rfftn", "irfft2", "irfftn")


class Model(nn.Module):
    def __init__(self, compute: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, x: Tensor) -> Tensor:
        result = self.compute(x)
        return torch.view_as_real(result.resolve_conj()) if result.is_complex() else result


def check(compute: Callable[[Tensor], Tensor], sizes: tuple[int, ...] = (6, 1, 2, 3, 9)) -> None:
    model = Model(compute)
    program = onnx_aot.export(model, (torch.randn(3, 6, 4),), dynamic_shapes=({1: "n"},))
    for size in sizes:
        x = torch.randn(3, size, 4)
        torch.testing.assert_close(program(x)[0], model(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", ONE)
def test_along_one_axis(name: str, length: str) -> None:
    transform = getattr(torch.fft, name)
    check(lambda x: transform(x, n=LENGTHS[length](x.shape[1]), dim=1, norm="ortho"))


@pytest.mark.parametrize("name", SEVERAL)
def test_along_several_axes(name: str) -> None:
    transform = getattr(torch.fft, name)
    check(lambda x: transform(x, (x.shape[1] + 2, x.shape[1] // 2 + 1), (1, 2)))


OTHERS: dict[str, Callable[[Tensor], Tensor]] = {
    "last axis": lambda x: torch.fft.rfft(x, x.shape[1]),
    "last axes": lambda x: torch.fft.fft2(x, s=(2 * x.shape[1], 3)),
    "present length": lambda x: torch.fft.fftn(x, (-1, x.shape[1] + 1), dim=(0, 1)),
    "spectrum": lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=1), x.shape[1] + 3, 1),
    "tensor": lambda x: torch.fft.fft(x, torch.tensor(x.shape[1] * 2), 1),  # type: ignore[arg-type]
    "no length": lambda x: torch.fft.fft(x, dim=1),
    "a number": lambda x: torch.fft.rfft(x, 8, 1),
    "numbers": lambda x: torch.fft.irfftn(torch.fft.rfftn(x), s=(4, 4, 4)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_arguments(name: str) -> None:
    check(OTHERS[name])
