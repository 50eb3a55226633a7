"""Functions of torch that take sizes as plain integers: ``capture/patches/size_functions.py``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.onnx.operators import shape_as_tensor

import onnx_aot
from tests.tolerances import assert_close

THETA = torch.tensor([[[0.9, 0.1, 0.2], [-0.2, 1.1, -0.3]]])
SOLID = torch.tensor([[[0.9, 0.1, 0.0, 0.2], [-0.2, 1.1, 0.3, 0.1], [0.2, 0.0, 0.8, -0.3]]])


def write_to_windows(x: Tensor) -> Tensor:
    """Doubles the elements at odd rows of the windows."""
    y = x.repeat(1, 3)
    y.unfold(1, x.shape[1], x.shape[1])[1::2] *= 2
    return y


def resynthesize(x: Tensor, **options: Any) -> Tensor:
    """The signal of its own spectrum, as denoisers compute it."""
    signal = x.repeat_interleave(9, -1)
    spectrum = torch.stft(signal, 16, return_complex=True, **options)
    return torch.istft(2 * spectrum, 16, length=signal.shape[-1], **options)


CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "sqrt of a product": lambda x: x * math.sqrt(x.shape[0] * x.shape[1]),
    "sqrt, as a size": lambda x: x[:, : int(math.sqrt(x.shape[0] * x.shape[1]))],
    "shape as a tensor": lambda x: shape_as_tensor(x)[1:] * 2,
    "shape as a tensor, limits": lambda x: x.new_zeros((12 - shape_as_tensor(x)[1]).clamp(min=0)),
    "linspace, dtype": lambda x: torch.linspace(-1, 2, steps=x.shape[1], dtype=torch.float64),
    "linspace, ints": lambda x: torch.linspace(0, 10, x.shape[1], dtype=torch.int64),
    "linspace, dynamic bounds": lambda x: torch.linspace(0, x.shape[1] - 1, 5),
    "linspace, all dynamic": lambda x: torch.linspace(1 / x.shape[1], x.shape[1], x.shape[1]),
    "linspace, tensors": lambda x: torch.linspace(x.sum(), -x.sum(), x.shape[1]),
    "linspace, steps of a tensor": lambda x: torch.cat(
        [torch.linspace(0.5, n - 0.5, n) for n in torch.as_tensor([x.shape[1], x.shape[0]])]  # type: ignore[call-overload]
    ),
    "logspace, base": lambda x: torch.logspace(0, 3, x.shape[1], base=2.0),
    "affine_grid": lambda x: F.affine_grid(THETA, [1, 1, x.shape[0], x.shape[1]], False),
    "affine_grid, corners": lambda x: F.affine_grid(THETA, [1, 1, x.shape[1] + 1, 5], True),
    "affine_grid, 3-D": lambda x: F.affine_grid(SOLID, [1, 1, x.shape[1], 2, 3], False),
    **{
        f"{name}_window, periodic={periodic}": lambda x, name=name, periodic=periodic: getattr(
            torch, f"{name}_window"
        )(x.shape[1], periodic=periodic)
        for name in ("hann", "hamming", "blackman", "bartlett", "kaiser")
        for periodic in (True, False)
    },
    "hamming_window, numbers": lambda x: torch.hamming_window(x.shape[1], True, 0.6, 0.3),
    "one_hot": lambda x: F.one_hot(x.argmax(1), num_classes=x.shape[1]),
    "one_hot, of the largest": lambda x: F.one_hot(x.argmax(1)),
    "one_hot, of data": lambda x: F.one_hot(x.argmax(1), x.argmax(1).max() + 1),  # type: ignore[arg-type]
    "one_hot, of a size and data": lambda x: F.one_hot(
        x.argmax(1),
        max(x.argmax(1).max() + 1, x.shape[1]),  # type: ignore[arg-type]
    ),
    "one_hot, of a known number": lambda x: F.one_hot(
        x.argmax(1) * 0,
        torch.tensor(3),  # type: ignore[arg-type]
    ),
    "tril_indices": lambda x: torch.tril_indices(x.shape[1], 4, 1, dtype=torch.int32),
    "triu_indices": lambda x: torch.triu_indices(3, x.shape[1], -1),
    "combinations": lambda x: torch.combinations(x[0], with_replacement=True),
    "vander": lambda x: torch.vander(x[0], increasing=True),
    "vander, ints": lambda x: torch.vander(torch.arange(3), x.shape[1]),
    "fftfreq": lambda x: torch.fft.fftfreq(x.shape[1], 0.25),
    "rfftfreq": lambda x: torch.fft.rfftfreq(x.shape[1]),
    "unfold, side by side": lambda x: x.repeat(1, 3).unfold(-1, x.shape[1], x.shape[1]),
    "unfold, overlapping": lambda x: x.repeat(1, 3).unfold(1, size=x.shape[1] + 1, step=1),
    "unfold, written to": write_to_windows,
    "istft": lambda x: resynthesize(x, window=torch.hann_window(16)),
    "istft, one signal": lambda x: resynthesize(x[0], normalized=True),
    "istft, short window": lambda x: resynthesize(
        x, hop_length=3, win_length=12, window=torch.hamming_window(12)
    ),
    "istft, not centered": lambda x: torch.istft(
        torch.stft(x.repeat(1, 16), 16, 4, center=False, return_complex=True),
        16,
        4,
        center=False,
        length=4 * x.shape[1],
    ),
    "istft, method": lambda x: torch.stft(x.repeat(1, 16), 16, return_complex=True).istft(
        16, length=15 * x.shape[1]
    ),
    "istft, longer": lambda x: torch.istft(
        torch.stft(x.repeat(1, 16), 16, return_complex=True), 16, length=20 * x.shape[1]
    ),
    # right without a patch
    "eye": lambda x: torch.eye(x.shape[1], 3),
    "full": lambda x: torch.full((x.shape[1], 2), 1 / x.shape[1]),
    "meshgrid": lambda x: torch.meshgrid(torch.arange(2), torch.arange(x.shape[1]))[1],
    "cartesian_prod": lambda x: torch.cartesian_prod(x[0], x[:, 0]),
    "repeat_interleave": lambda x: x.repeat_interleave(x.shape[1], 0),
    "bincount": lambda x: torch.bincount(torch.tensor([0, 1, 1]), minlength=x.shape[1]),
    "tile": lambda x: torch.tile(x, (x.shape[1], 2)),
    "block_diag": lambda x: torch.block_diag(x, x[:, :2]),
    "fold": lambda x: F.fold(F.unfold(x[None, None], 1), (x.shape[0], x.shape[1]), 1),
    "replicated": lambda x: F.pad(x[None], (x.shape[1] // 2, 1), mode="replicate"),
}


def rows(count: int) -> Tensor:
    return torch.rand(4, count, generator=torch.Generator().manual_seed(count))


def wrap(call: Callable[[Tensor], Any]) -> torch.nn.Module:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Any:
            return call(x), x + 1

    return Model()


@pytest.mark.parametrize("name", CALLS)
def test_dynamic_size(name: str) -> None:
    model = wrap(CALLS[name])
    program = onnx_aot.export(model, (rows(6),), dynamic_shapes=({1: "n"},))
    for count in (6, 9, 1, 2):
        x = rows(count)
        assert_close(program(x)[0], model(x)[0])


@pytest.mark.parametrize("mode", ["circular", "reflect"])
def test_padding_by_sizes(mode: str) -> None:
    model = wrap(lambda x: F.pad(x[None], (1, x.shape[1] - 2), mode=mode))
    program = onnx_aot.export(model, (rows(6),), dynamic_shapes=({1: "n"},))
    for count in (6, 9, 4):
        assert_close(program(rows(count))[0], model(rows(count))[0])


@pytest.mark.filterwarnings("error")
def test_static_shapes_as_tensors() -> None:
    model = wrap(lambda x: (x / shape_as_tensor(x)[1:].max().to(x.dtype), shape_as_tensor(x.sum())))
    program = onnx_aot.export(model, (rows(6),))
    scaled, shape, _ = program(rows(6))
    assert_close(scaled, model(rows(6))[0][0])
    assert shape.dtype == torch.int64
    assert shape.shape == (0,)


def test_plain_numbers_are_left_to_torch() -> None:
    program = onnx_aot.export(
        wrap(lambda x: x * torch.hann_window(6) + torch.linspace(0, 1, 6)),
        (rows(6),),
        dynamic_shapes=({0: "rows"},),
    )
    targets = {str(node.target) for node in program.exported_program.graph.nodes}
    assert "aten.linspace.default" in targets
    assert "aten.hann_window.default" in targets
