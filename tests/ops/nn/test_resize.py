"""Image resizing: ``onnx_aot/ops/nn/resize.py``."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import interpolate

import onnx_aot
from onnx_aot.torch_compat import Missing, aten
from onnx_aot.torch_ops.resizing import INTERPOLATE
from onnx_aot.torch_ops.resizing import interpolate as by_factors
from tests.ops.rows import Row, T, check, floats, ints, parametrize
from tests.tolerances import assert_close

EMPTY = ({"n": 0},)
DOUBLE = {"dtype": torch.float64}
HALF = {"dtype": torch.bfloat16}

VEC = {
    ("nearest", 1): aten.upsample_nearest1d.vec,
    ("nearest", 2): aten.upsample_nearest2d.vec,
    ("nearest", 3): aten.upsample_nearest3d.vec,
    ("nearest-exact", 1): aten._upsample_nearest_exact1d.vec,
    ("nearest-exact", 2): aten._upsample_nearest_exact2d.vec,
    ("nearest-exact", 3): aten._upsample_nearest_exact3d.vec,
    ("linear", 1): aten.upsample_linear1d.vec,
    ("bilinear", 2): aten.upsample_bilinear2d.vec,
    ("trilinear", 3): aten.upsample_trilinear3d.vec,
    ("bicubic", 2): aten.upsample_bicubic2d.vec,
}
ANTIALIASED = {
    "bilinear": aten._upsample_bilinear2d_aa.vec,
    "bicubic": aten._upsample_bicubic2d_aa.vec,
    "lanczos": aten._upsample_lanczos2d_aa.vec,
}


def resized(target: Any, image: T, mode: str, size: Any, factor: Any, **options: Any) -> Row:
    how = {"mode": mode, "size": size, "scale_factor": factor, **options}
    name = ", ".join(f"{key} {value}" for key, value in how.items() if value is not None)
    return Row(
        target,
        (image,),
        call=lambda x: interpolate(x, **how),
        name=f"{image.dtype}, {name}",
    )


ROWS = (
    [
        resized(target, image, mode, size, factor, **options)
        for (mode, spatial), target in VEC.items()
        for image in (
            floats("n", 2, *("h", "w", 3)[:spatial]),
            floats("n", 2, *("h", "w", 3)[:spatial], **DOUBLE),
        )
        for size, factor in ((5, None), (23, None), (None, 2), (None, 1.7), (None, 0.6))
        for options in (
            ({},) if "nearest" in mode else ({"align_corners": False}, {"align_corners": True})
        )
        if not (factor and options.get("align_corners") and image.dtype == torch.float64)
    ]
    + [
        resized(target, image, mode, size, factor, antialias=True, align_corners=align)
        for mode, target in ANTIALIASED.items()
        for image in (floats("n", 2, "h", "w"), floats("n", 2, "h", 7, **DOUBLE))
        for size, factor, align in (
            ((5, 23), None, False),
            ((5, 3), None, True),
            (None, 0.4, False),
            (None, (1.3, 0.7), False),
        )
        if not (align and mode == "lanczos")
    ]
    + [  # factors at which a size stays the same, or doubles
        resized(target, image, mode, None, factor)
        for (mode, spatial), target in VEC.items()
        for image in (
            floats("n", 2, *("h", "w", 3)[:spatial]),
            floats(2, 2, *(5, 4, 3)[:spatial]),
        )
        for factor in (1.1, 1.25, 2.1)
    ]
    + [
        resized(target, image, mode, None, factor, antialias=True)
        for mode, target in ANTIALIASED.items()
        for image in (floats("n", 2, "h", "w"), floats(2, 2, 5, 4))
        for factor in (1.1, (1.1, 1.6))
    ]
    + [
        resized(
            target, floats("n", 2, 3, "w"), mode, (1, 5), None, antialias=True, align_corners=True
        )
        for mode, target in ANTIALIASED.items()
        if mode != "lanczos"
    ]
    + [
        resized(
            VEC[mode, 2], ints(2, channels, 9, 8, low=0, high=256, dtype=torch.uint8), mode, *how
        )
        for mode in ("nearest", "bilinear", "bicubic")
        for channels in (3, 5)
        for how in (((5, 23), None), (None, 2.0))
    ]
    + [
        Row(
            aten.upsample_bilinear2d.vec,
            (floats("n", 2, "h", "w"), floats("m", "k")),
            call=lambda x, y: interpolate(x, y.shape, mode="bilinear"),
            name="size of another",
            sizes=EMPTY,
        ),
        Row(
            aten.upsample_nearest2d.vec,
            (floats("n", 2, "h", "w"), floats("m", "k")),
            call=lambda x, y: interpolate(x, y.shape),
            name="size of another",
            sizes=EMPTY,
        ),
        Row(
            aten.upsample_nearest2d.vec,
            (floats("n", 2, "h", "w"),),
            call=lambda x: interpolate(x, scale_factor=2),
            name="twice",
            sizes=EMPTY,
        ),
    ]
)

# Factors that the graph computes; ``tests/capture/patches/test_resizing.py`` has them as models do.
COMPUTED = [
    Row(
        INTERPOLATE,
        (floats("n", 2, "h", "w"),),
        call=lambda x, how=how: by_factors(
            x, torch.tensor([2.0, 0.5]).double(), [2 * x.shape[2], x.shape[3] // 2], *how
        ),
        name=f"{how}",
    )
    for how in (
        ("nearest", False, False),
        ("nearest-exact", False, False),
        ("bilinear", True, False),
        ("bicubic", False, False),
        ("lanczos", False, True),
    )
    if how[0] != "lanczos" or not isinstance(ANTIALIASED["lanczos"], Missing)
]

# The overloads without lists, which are captured only if a program calls them directly.
DEFAULTS = [
    Row(target, args, name=f"{args[1:]}")
    for target, args in (
        (aten.upsample_nearest1d.default, (floats("n", 2, 7), [5])),
        (aten.upsample_nearest2d.default, (floats("n", 2, 7, 6), [5, 9], 0.8, 1.5)),
        (aten.upsample_nearest3d.default, (floats("n", 2, 7, 6, 4), [5, 9, 4])),
        (aten._upsample_nearest_exact1d.default, (floats("n", 2, 7), [5])),
        (aten._upsample_nearest_exact2d.default, (floats("n", 2, 7, 6), [5, 9])),
        (aten._upsample_nearest_exact3d.default, (floats("n", 2, 7, 6, 4), [5, 9, 4])),
        (aten.upsample_linear1d.default, (floats("n", 2, 7), [5], False)),
        (aten.upsample_bilinear2d.default, (floats("n", 2, 7, 6), [5, 9], True)),
        (aten.upsample_trilinear3d.default, (floats("n", 2, 7, 6, 4), [5, 9, 4], False)),
        (aten.upsample_bicubic2d.default, (floats("n", 2, 7, 6), [5, 9], False, 0.75, 1.6)),
        (aten._upsample_bilinear2d_aa.default, (floats("n", 2, 7, 6), [5, 9], False)),
        (aten._upsample_bicubic2d_aa.default, (floats("n", 2, 7, 6), [5, 3], False)),
        (aten._upsample_lanczos2d_aa.default, (floats("n", 2, 7, 6), [5, 3], False, 0.75, 0.5)),
    )
]


@parametrize([*ROWS, *COMPUTED, *DEFAULTS])
def test_row(row: Row) -> None:
    check(row)


@pytest.mark.parametrize(
    ("mode", "factor"),
    [
        ("nearest", 2),
        *((mode, n) for mode in ("bilinear", "bicubic") for n in (2, 0.5, 1.5, (3, 0.25))),
    ],
)
def test_by_a_factor_is_one_node(mode: str, factor: Any) -> None:
    """Correct for any height and width, because the node has the factor instead of the sizes."""

    def enlarge(x: torch.Tensor) -> torch.Tensor:
        return interpolate(x, scale_factor=factor, mode=mode)

    dynamic = ({0: "n", 2: "height", 3: "width"},)
    program = onnx_aot.export(enlarge, (torch.rand(1, 3, 8, 12),), dynamic_shapes=dynamic)
    assert [node.op_type for node in program.model.graph] == ["Resize"]
    for shape in ((1, 3, 8, 12), (2, 3, 31, 17), (1, 3, 4, 4), (1, 3, 101, 253)):
        x = torch.rand(shape)
        assert_close(program(x)[0], enlarge(x))
