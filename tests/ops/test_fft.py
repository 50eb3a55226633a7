from __future__ import annotations

import pytest
import torch

from tests.ops.rows import Row, T, check, floats, parametrize, positive

aten = torch.ops.aten


def numbers(*sizes: int | str, dtype: torch.dtype = torch.complex64) -> T:
    return T(sizes, dtype, lambda *s: torch.randn(s, dtype=torch.complex128))


C = numbers("n", 6)
REAL = floats("n", 7)

ROWS = [
    *(
        Row(target, (C,), {"norm": norm})
        for target in (aten.fft_fft.default, aten.fft_ifft.default, aten.fft_hfft.default)
        for norm in (None, "ortho", "forward")
    ),
    *(
        Row(target, (REAL,), {"norm": norm})
        for target in (aten.fft_rfft.default, aten.fft_ihfft.default)
        for norm in (None, "ortho", "forward")
    ),
    *(Row(aten.fft_irfft.default, (C, size)) for size in (None, 9, 4, 1)),
    Row(aten.fft_fft.default, (REAL,), name="of real numbers"),
    Row(aten.fft_fft.default, (C, 9, 1), name="padded"),
    Row(aten.fft_fft.default, (C, 4, 1), name="cut off"),
    Row(aten.fft_fft.default, (numbers(5, "n"), None, 0), name="first axis"),
    Row(aten.fft_fft.default, (numbers(5, dtype=torch.complex128),), name="double"),
    Row(aten.fft_fft2.default, (numbers("n", 4, 5),)),
    Row(aten.fft_ifft2.default, (numbers("n", 4, 5),)),
    Row(aten.fft_fftn.default, (numbers(2, 3, 4),)),
    Row(aten.fft_ifftn.default, (numbers(2, 3, 4),), {"norm": "ortho"}),
    Row(aten.fft_rfft2.default, (floats("n", 4, 5),)),
    Row(aten.fft_irfft2.default, (numbers("n", 4, 5),)),
    Row(aten.fft_rfftn.default, (floats(2, 3, 4),)),
    Row(aten.fft_irfftn.default, (numbers(2, 3, 4),)),
    Row(aten.fft_fftshift.default, (C,)),
    Row(aten.fft_ifftshift.default, (REAL,)),
    Row(aten.fft_rfft.default, (floats(1),), name="one element"),
]

STFT = [
    {"n_fft": 8},
    {"n_fft": 8, "hop_length": 3},
    {"n_fft": 9, "hop_length": 2, "win_length": 6},
    {"n_fft": 8, "normalized": True},
    {"n_fft": 8, "onesided": False},
    {"n_fft": 8, "center": False},
]


@parametrize(ROWS)
def test_rows(row: Row) -> None:
    check(row)


@pytest.mark.filterwarnings("ignore:A window was not provided")
@pytest.mark.parametrize("options", STFT, ids=str)
@pytest.mark.parametrize("windowed", [True, False])
def test_stft(options: dict[str, int], windowed: bool) -> None:
    length = options.get("win_length", options["n_fft"])

    def call(x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
        return torch.stft(x, window=window if windowed else None, return_complex=True, **options)

    check(Row(aten.stft.default, (floats("n", 40), positive(length)), call=call))


@pytest.mark.parametrize("options", [*STFT[:2], *STFT[3:-1]], ids=str)
@pytest.mark.parametrize("length", [None, 24])
def test_istft(options: dict[str, int], length: int | None) -> None:
    window = options.get("win_length", options["n_fft"])
    bins = options["n_fft"] // 2 + 1 if options.get("onesided", True) else options["n_fft"]

    def call(x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
        return torch.istft(x, window=window, length=length, **options)

    check(Row(aten.istft.default, (numbers(2, bins, 12), positive(window)), call=call))
