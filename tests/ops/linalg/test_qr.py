"""QR decompositions and Householder reflectors: ``onnx_aot/ops/linalg/qr.py``."""

from __future__ import annotations

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, T, check, floats, parametrize

DOUBLE = torch.float64

EMPTY = ({"n": 0},)


def reflectors(*sizes: int | str) -> T:
    """Reflectors in the format of geqrf: vectors below the diagonal."""
    return T(sizes, torch.float32, lambda *s: torch.geqrf(torch.rand(s))[0])


QR = [
    Row(target, (floats(*sizes, dtype=dtype), *rest), name=f"{sizes} {rest}", sizes=more)
    for target, modes in (
        (aten.linalg_qr.default, ((), ("complete",), ("r",))),
        (aten.geqrf.default, ((),)),
    )
    for rest in modes
    for sizes, dtype, more in (
        (("n", "n"), torch.float32, EMPTY),
        (("n", "m"), torch.float32, EMPTY),
        (("m", 3), torch.float32, ()),
        ((3, "m"), DOUBLE, ()),
        (("n", 5, 3), DOUBLE, EMPTY),
        ((2, 1, 3, 5), torch.float32, ()),
        ((3, 0), torch.float32, ()),
        ((0, 3), torch.float32, ()),
        ((1, 1), torch.float32, ()),
    )
] + [
    Row(aten.geqrf.default, (floats(4, 4),)),
    Row(aten.geqrf.default, (floats(2, 5, 3),), name="tall"),
    Row(aten.linalg_qr.default, (floats(3, 3, low=0, high=0),), name="zeros"),
    Row(aten.linalg_qr.default, (floats(1, 3),), name="one row"),
    Row(
        aten.linalg_qr.default,
        (floats(3, 3),),
        call=lambda x: torch.linalg.qr(x.triu()),
        name="triangle",
    ),
]

PRODUCTS = (
    [
        Row(target, args, name=name, sizes=more)
        for target in (aten.linalg_householder_product.default, aten.orgqr.default)
        for name, args, more in (
            ("", (reflectors("n", "n"), floats("n")), EMPTY),
            ("tall", (reflectors("m", 2), floats(2)), ()),
            ("less factors", (reflectors("n", 5, 3), floats("n", 2)), EMPTY),
            ("no factors", (reflectors(5, 3), floats(0)), ()),
        )
    ]
    + [
        Row(aten.ormqr.default, args, name=f"{name} {flags}", sizes=more)
        for flags in ((), (True, True))
        for name, args, more in (
            ("", (reflectors("n", "n"), floats("n"), floats("n", "m"), *flags), EMPTY),
            ("tall", (reflectors(5, 3), floats(3), floats(5, "n"), *flags), EMPTY),
            ("batch", (reflectors("n", 5, 3), floats("n", 3), floats("n", 5, 2), *flags), EMPTY),
        )
    ]
    + [
        Row(aten.ormqr.default, (reflectors(5, 3), floats(3), floats("n", 5), False, turned))
        for turned in (False, True)
    ]
)

ROWS = [*QR, *PRODUCTS]


@parametrize(ROWS)
def test_row(row: Row) -> None:
    check(row)
