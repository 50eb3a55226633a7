"""QR decompositions of complex matrices: ``onnx_aot/ops/complex/qr.py``."""

from __future__ import annotations

import torch

from onnx_aot.torch_compat import aten
from tests.ops.complex.complex_numbers import numbers
from tests.ops.rows import Row, T, check, parametrize

DOUBLE = torch.complex128
EMPTY = ({"n": 0},)


def reflectors(*sizes: int | str) -> T:
    """Reflectors in the format of geqrf: vectors below the diagonal."""
    made = torch.complex128
    return T(sizes, torch.complex64, lambda *s: torch.geqrf(torch.randn(s, dtype=made))[0])


DECOMPOSED = [
    Row(target, (numbers(*sizes, dtype=dtype), *rest), name=f"{sizes} {rest}", sizes=more)
    for target, modes in (
        (aten.linalg_qr.default, ((), ("complete",), ("r",))),
        (aten.geqrf.default, ((),)),
    )
    for rest in modes
    for sizes, dtype, more in (
        (("n", "n"), DOUBLE, EMPTY),
        (("n", "m"), DOUBLE, EMPTY),
        (("m", 3), torch.complex64, ()),
        ((2, 1, 3, 5), torch.complex64, ()),
        ((3, 0), torch.complex64, ()),
        ((0, 3), torch.complex64, ()),
        ((1, 1), torch.complex64, ()),
    )
] + [
    Row(aten.linalg_qr.default, (numbers(3, 3, size=0.0),), name="zeros"),
    Row(aten.linalg_qr.default, (numbers(1, 3),), name="one row"),
    *(
        Row(aten.geqrf.default, (numbers(4, 4),), call=call, name=name)
        for name, call in (
            ("triangle", lambda x: torch.geqrf(x.triu())),
            ("real", lambda x: torch.geqrf(x.real + 0j)),
            ("imaginary", lambda x: torch.geqrf(x.imag * 1j)),
        )
    ),
]

PRODUCTS = [
    Row(target, args, name=name, sizes=more)
    for target in (aten.linalg_householder_product.default, aten.orgqr.default)
    for name, args, more in (
        ("", (reflectors("n", "n"), numbers("n", size=0.5)), EMPTY),
        ("tall", (reflectors("m", 2), numbers(2)), ()),
        ("less factors", (reflectors("n", 5, 3), numbers("n", 2)), EMPTY),
        ("no factors", (reflectors(5, 3), numbers(0)), ()),
    )
] + [
    Row(aten.ormqr.default, args, name=f"{name} {flags}", sizes=more)
    for flags in ((), (True, True), (False,), (False, True))
    for name, args, more in (
        ("", (reflectors("n", "n"), numbers("n", size=0.5), numbers("n", "n"), *flags), EMPTY),
        ("tall", (reflectors(5, 3), numbers(3), numbers(5, 5), *flags), ()),
        ("batch", (reflectors("n", 5, 3), numbers("n", 3), numbers("n", 5, 5), *flags), EMPTY),
    )
]


@parametrize([*DECOMPOSED, *PRODUCTS])
def test_row(row: Row) -> None:
    check(row)
