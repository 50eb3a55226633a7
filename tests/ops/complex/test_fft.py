from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.export import Dim

import onnx_aot
from onnx_aot.errors import UnsupportedOperatorError
from onnx_aot.torch_compat import aten, prims
from tests.ops.rows import Row, T, check, floats, parametrize, positive
from tests.tolerances import assert_close
from tests.torch_compat.without import absent, shows


def numbers(*sizes: int | str, dtype: torch.dtype = torch.complex64) -> T:
    return T(sizes, dtype, lambda *s: torch.randn(s, dtype=torch.complex128))


STFT = [
    {"n_fft": 8},
    {"n_fft": 8, "hop_length": 3},
    {"n_fft": 9, "hop_length": 2, "win_length": 6},
    {"n_fft": 8, "normalized": True},
    {"n_fft": 8, "onesided": False},
    {"n_fft": 8, "center": False},
]


def short_time(x: torch.Tensor, window: torch.Tensor, **options: int) -> torch.Tensor:
    return torch.stft(x, window=window, return_complex=True, **options)


def inverse_short_time(x: torch.Tensor, window: torch.Tensor, **options: int) -> torch.Tensor:
    return torch.istft(x, window=window, **options)


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
    *(Row(aten.fft_irfft.default, (C, size)) for size in (None, 9, 4, 1, 2, 15, 16)),
    *(Row(aten.fft_irfft.default, (C,), {"norm": norm}) for norm in ("ortho", "forward")),
    *(Row(aten.fft_irfft.default, (numbers(4, "n"), size, 0)) for size in (None, 9)),
    Row(aten.fft_irfft.default, (numbers(3, "m"),), name="of any length"),
    Row(aten.fft_irfft.default, (numbers("m", 3), None, 0), {"norm": "ortho"}, name="any length"),
    Row(aten.fft_fft.default, (REAL,), name="of real numbers"),
    Row(aten.fft_fft.default, (C, 9, 1), name="padded"),
    Row(aten.fft_fft.default, (C, 4, 1), name="cut off"),
    Row(aten.fft_fft.default, (numbers(5, "n"), None, 0), name="first axis"),
    Row(aten.fft_fft.default, (numbers(5, dtype=torch.complex128),), name="double"),
    *(
        Row(operator.default, (values, [6, 8]), name=f"{operator}, padded and cropped")
        for operator, values in (
            (aten.fft_fft2, numbers("n", 7, 5)),
            (aten.fft_ifft2, numbers("n", 4, 9)),
            (aten.fft_rfft2, floats("n", 4, 5)),
        )
    ),
    Row(aten.fft_fft2.default, (numbers("n", 4, 5),)),
    Row(aten.fft_ifft2.default, (numbers("n", 4, 5),)),
    Row(aten.fft_fftn.default, (numbers(2, "n", "m"),)),
    Row(aten.fft_ifftn.default, (numbers(2, "n", "m"),), {"norm": "ortho"}),
    Row(aten.fft_rfft2.default, (floats("n", 4, 5),)),
    Row(aten.fft_irfft2.default, (numbers("n", 4, 5),)),
    Row(aten.fft_rfftn.default, (floats(2, "n", "m"),)),
    Row(aten.fft_irfftn.default, (numbers(2, "n", 4),)),
    Row(aten.fft_fftshift.default, (C,)),
    Row(aten.fft_ifftshift.default, (REAL,)),
    Row(aten.fft_rfft.default, (floats(1),), name="one element"),
    Row(aten._fft_c2c.default, (C, [1], 1, True)),
    Row(aten._fft_r2c.default, (REAL, [1], 2, False)),
    Row(aten._fft_c2r.default, (C, [1], 0, 10)),
    Row(prims.fft_c2c.default, (C,), {"dim": [1], "forward": False}),
    Row(prims.fft_r2c.default, (REAL,), {"dim": [1], "onesided": True}),
    Row(prims.fft_c2r.default, (C,), {"dim": [1], "last_dim_size": 10}),
    *(
        Row(
            aten.stft.default,
            (floats("n", 40), positive(options.get("win_length", options["n_fft"]))),
            call=partial(short_time, **options),
            name=str(options),
        )
        for options in STFT
    ),
    Row(
        aten.stft.default,
        (floats("n", 40),),
        call=lambda x: torch.stft(x, 8, return_complex=True),
        name="without a window",
    ),
    Row(
        aten.stft.default,
        (floats("n", 40), positive(8)),
        call=lambda x, window: aten.stft(x, 8, window=window, return_complex=False),
        name="parts",
    ),
    Row(
        aten.stft.default,
        (floats(2, "w"), positive(6)),
        call=partial(short_time, n_fft=6, hop_length=2),
        name="of any length",
    ),
    Row(
        aten.istft.default,
        (numbers(2, 4, "k"), positive(6)),
        call=partial(inverse_short_time, n_fft=6, hop_length=2),
        name="of any length",
    ),
    *(
        Row(
            aten.istft.default,
            (
                numbers(
                    2,
                    options["n_fft"] // 2 + 1
                    if options.get("onesided", True)
                    else options["n_fft"],
                    12,
                ),
                positive(options.get("win_length", options["n_fft"])),
            ),
            call=partial(inverse_short_time, length=length, **options),
            name=f"{options} {length}",
        )
        for options in (*STFT[:2], *STFT[3:-1])
        for length in (None, 24)
    ),
]


@parametrize(ROWS)
@pytest.mark.filterwarnings("ignore:A window was not provided")
def test_rows(row: Row) -> None:
    check(row)


def test_a_transform_viewed_as_real_is_not_split_and_joined() -> None:
    def spectrum(x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(torch.fft.rfft(x))

    program = onnx_aot.export(spectrum, (torch.rand(2, 2048),), dynamic_shapes=({0: "n"},))
    assert [node.op_type for node in program.model.graph] == ["Unsqueeze", "DFT"]
    x = torch.rand(5, 2048)
    assert_close(program(x)[0], spectrum(x))


def rebuild(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    spectrum = torch.fft.rfft(x)
    return torch.view_as_real(spectrum), torch.fft.irfft(spectrum * spectrum, n=x.shape[-1])


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("length", [97, 250, 400, 512, 1000, 1500, 4096, 8000])
def test_transforms_are_as_exact_as_those_of_torch(length: int, dynamic: bool) -> None:
    """ONNX Runtime's own transform of 8,000 samples is off by 6e-3 of the standard deviation."""
    shapes = ({1: "samples"},) if dynamic else None
    program = onnx_aot.export(rebuild, (torch.rand(3, length),), dynamic_shapes=shapes)
    x = torch.randn(3, length)
    for actual, exact in zip(program(x), rebuild(x.double()), strict=True):
        assert (actual - exact).abs().max() < 2e-5 * exact.std()


@pytest.mark.parametrize("dims", [(1,), (1, 2), (0, 3), (3, 0), (2, 1, 3)])
def test_axes_of_matrices(dims: tuple[int, ...]) -> None:
    def transform(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        there = torch.fft.rfftn(x, dim=dims)
        back = torch.fft.ifftn(torch.fft.fftn(there, dim=dims[:1]), dim=dims)
        return torch.view_as_real(back), torch.fft.irfftn(there, dim=dims)

    x = torch.rand(3, 5, 4, 6)
    program = onnx_aot.export(transform, (x,))
    assert "DFT" not in {node.op_type for node in program.model.graph}
    for actual, expected in zip(program(x), transform(x), strict=True):
        assert_close(actual, expected)


def test_two_dynamic_dimensions_of_a_real_result() -> None:
    def filtered(x: torch.Tensor) -> torch.Tensor:
        return torch.fft.irfft2(torch.fft.rfft2(x) * 2, s=x.shape[2:])

    sizes = {2: "height", 3: "width"}
    program = onnx_aot.export(filtered, (torch.rand(1, 2, 8, 6),), dynamic_shapes=(sizes,))
    for shape in ((1, 2, 8, 6), (1, 2, 5, 9), (1, 2, 1, 4)):
        x = torch.rand(shape)
        assert_close(program(x)[0], filtered(x))


class Resized(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.transform = getattr(torch.fft, name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(self.transform(x, (6, 8)))


@pytest.mark.parametrize("name", ["fft2", "ifft2", "rfft2"])
def test_a_captured_program_that_pads_a_dynamic_size(name: str) -> None:
    """The captured condition says whether the axis is padded; torch's own rule reads its size."""
    model = Resized(name)
    axes = ({1: Dim.AUTO, 2: Dim.AUTO},)
    captured = torch.export.export(model, (torch.rand(2, 5, 7),), dynamic_shapes=axes)
    program = onnx_aot.export(captured)
    for sizes in ((2, 5, 7), (2, 3, 3)):
        x = torch.rand(sizes)
        torch.testing.assert_close(program(x)[0], model(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["fft2", "ifft2", "rfft2", "irfft2", "hfft2", "ihfft2"])
def test_transforms_of_two_axes_of_even_sizes(name: str) -> None:
    """Torch's rules of some call the transform of n axes, whose kernel reads ``2*h``."""

    def transform(x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = getattr(torch.fft, name)(x)
        return torch.view_as_real(found) if found.is_complex() else found

    sizes = {1: 2 * Dim("h"), 2: 2 * Dim("w")}
    program = onnx_aot.export(transform, (torch.rand(1, 8, 6),), dynamic_shapes=(sizes,))
    for shape in ((1, 8, 6), (1, 4, 10)):
        x = torch.rand(shape)
        assert_close(program(x)[0], transform(x))


class Filtered(torch.nn.Module):
    """A layer of a Fourier neural operator, whose weights need gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(2, 2, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft2(x, norm="ortho")
        mixed = torch.einsum("bixy,io->boxy", spectrum, self.weight)
        return torch.fft.irfft2(mixed, s=x.shape[-2:], norm="ortho")


FILTERED = {2: "height", 3: "width"}
NORMS = "torch._refs.fft:_apply_norm"


def test_two_dynamic_dimensions_by_weights_that_need_gradients() -> None:
    model = Filtered()
    program = onnx_aot.export(model, (torch.rand(1, 2, 8, 6),), dynamic_shapes=(FILTERED,))
    for shape in ((1, 2, 8, 6), (1, 2, 5, 9), (1, 2, 1, 4)):
        x = torch.rand(shape)
        assert_close(program(x)[0], model(x).detach())


@shows(NORMS)
def test_norms_of_two_dynamic_dimensions_are_refused() -> None:
    with absent(NORMS), pytest.raises(UnsupportedOperatorError, match="fft_irfft2"):
        onnx_aot.export(Filtered(), (torch.rand(1, 2, 8, 6),), dynamic_shapes=(FILTERED,))
