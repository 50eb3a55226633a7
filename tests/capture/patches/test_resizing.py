"""``F.interpolate`` by factors that a model computes (``capture/patches/resizing.py``)."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

import onnx_aot
from onnx_aot.errors import OnnxExporterError
from onnx_aot.torch_compat import Missing, aten
from tests.tolerances import assert_close

LANCZOS = () if isinstance(aten._upsample_lanczos2d_aa.vec, Missing) else ("lanczos",)
SIZES = ((6, 8), (5, 9), (13, 4), (3, 3), (12, 16), (1, 2))


def half(x: Tensor) -> Tensor:
    return x[:, :, ::2, ::2]


def back(x: Tensor) -> tuple[float, float]:
    """Factors from a half to the whole size, such as 9 / 5, between whole numbers and at them."""
    return (x.shape[2] + 0.1) / half(x).shape[2], (x.shape[3] + 0.1) / half(x).shape[3]


MODELS: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        mode: lambda x, mode=mode: F.interpolate(half(x), scale_factor=back(x), mode=mode)
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area")
    },
    **{
        f"{mode}, antialias": lambda x, mode=mode: F.interpolate(
            x, scale_factor=(5.1 / x.shape[2], 3.1 / x.shape[3]), mode=mode, antialias=True
        )
        for mode in ("bilinear", "bicubic", *LANCZOS)
    },
    "corners": lambda x: F.interpolate(
        half(x), scale_factor=back(x), mode="bilinear", align_corners=True
    ),
    "recomputed": lambda x: F.interpolate(
        half(x), scale_factor=back(x), mode="bilinear", recompute_scale_factor=True
    ),
    "one for both": lambda x: F.interpolate(x, scale_factor=(x.shape[2] + 3) / 4, mode="bilinear"),
    "one axis": lambda x: F.interpolate(
        x, scale_factor=((x.shape[2] + 3) / 4, 2.0), mode="nearest"
    ),
    "whole": lambda x: F.interpolate(x, scale_factor=x.shape[2]),
    "lines": lambda x: F.interpolate(x[:, 0], scale_factor=(x.shape[2] + 4) / 5, mode="linear"),
    "volumes": lambda x: F.interpolate(
        x[None], scale_factor=(x.shape[2] + 4) / 5, mode="trilinear"
    ),
    "double": lambda x: F.interpolate(
        x.double(), scale_factor=(x.shape[2] + 4) / 5, mode="bicubic"
    ),
    "of data": lambda x: F.interpolate(x, scale_factor=1 + x.abs().max().item(), mode="bilinear"),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_size_is_right(name: str) -> None:
    """Sizes at which torch ignores the factor, as they stay the same or double, are among them."""
    model = MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shapes = ({0: "batch", 2: "height", 3: "width"},)
        program = onnx_aot.export(model, (torch.rand(1, 3, 6, 8),), dynamic_shapes=shapes)
    for height, width in SIZES:
        x = torch.rand(2, 3, height, width)
        assert_close(program(x)[0], model(x))


def test_a_name_that_was_imported_is_replaced_too() -> None:
    interpolate = F.interpolate

    def model(x: Tensor) -> Tensor:
        return interpolate(x, None, x.shape[2] / 4, "bilinear")

    program = onnx_aot.export(model, (torch.rand(1, 3, 6, 8),), dynamic_shapes=({2: "h"},))
    x = torch.rand(1, 3, 9, 8)
    assert_close(program(x)[0], model(x))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"align_corners": True}, "align_corners option can only be set"),
        ({"mode": "trilinear"}, "Got 4D input, but trilinear mode needs 5D input"),
        ({"mode": "nearest", "antialias": True}, "Anti-alias option is restricted to bilinear"),
        ({"size": (3, 4)}, "only one of size or scale_factor should be defined"),
    ],
)
def test_what_torch_refuses_is_refused_with_its_words(options: dict, said: str) -> None:  # type: ignore[type-arg]
    def model(x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=x.shape[2] / 4, **options)

    x = torch.rand(1, 3, 6, 8)
    with pytest.raises((OnnxExporterError, ValueError), match=said):
        onnx_aot.export(model, (x,), dynamic_shapes=({2: "height"},))


def test_the_program_runs_in_torch() -> None:
    model = MODELS["bicubic"]
    program = onnx_aot.export(
        model, (torch.rand(1, 3, 6, 8),), dynamic_shapes=({2: "height", 3: "width"},)
    )
    x = torch.rand(1, 3, 9, 5)
    assert_close(program.exported_program.module()(x), model(x))
