"""Translations that a user writes for operators of other packages, as a message of ours asks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["translate_spherical_harmonics"]


def translate_spherical_harmonics(op: Any, xyz: Any, l_max: int) -> Any:
    """Translates ``sphericart_torch.spherical_harmonics``: real harmonics of directions.

    The definitions are those of Bigi et al., J. Chem. Phys. 159, 064802 (2023): for each degree
    ``l`` and order ``m``, a constant, a polynomial in z by recurrence over ``l``, and the real or
    imaginary part of ``(x + iy) ** |m|``.

    Args:
        op: Emits ONNX.
        xyz: Points (..., 3), scaled to length 1 here.
        l_max: The largest degree.

    Returns:
        Values (..., (l_max + 1) ** 2), by degree, then by order from -l to l.
    """
    directions = op.Div(xyz, op.ReduceL2(xyz, np.array([-1]), keepdims=1))
    x, y, z = (op.Slice(directions, *(np.array([n]) for n in (i, i + 1, -1))) for i in range(3))
    one = op.Add(op.Mul(x, 0.0), 1.0)
    cosines, sines = [one], [op.Mul(x, 0.0)]  # of m times the longitude
    for m in range(l_max):
        cosines.append(op.Sub(op.Mul(x, cosines[m]), op.Mul(y, sines[m])))
        sines.append(op.Add(op.Mul(x, sines[m]), op.Mul(y, cosines[m])))
    legendre = _emit_polynomials(op, one, z, l_max)
    harmonics = []
    for degree in range(l_max + 1):
        for order in range(-degree, degree + 1):
            m = abs(order)
            angle = sines[m] if order < 0 else cosines[m]
            factor = _normalization(degree, m) * (math.sqrt(0.5) if order == 0 else 1.0)
            harmonics.append(op.Mul(op.Mul(legendre[degree, m], angle), factor))
    return op.Concat(*harmonics, axis=-1)


def _emit_polynomials(op: Any, one: Any, z: Any, l_max: int) -> dict[tuple[int, int], Any]:
    """Associated Legendre polynomials of z, without their power of the radius in x and y."""
    made = {(0, 0): one}
    for m in range(l_max + 1):
        if m:
            made[m, m] = op.Mul(made[m - 1, m - 1], -(2.0 * m - 1))
        if m < l_max:
            made[m + 1, m] = op.Mul(op.Mul(made[m, m], z), 2.0 * m + 1)
        for degree in range(m + 2, l_max + 1):
            ahead = op.Mul(op.Mul(made[degree - 1, m], z), (2.0 * degree - 1) / (degree - m))
            behind = op.Mul(made[degree - 2, m], (degree + m - 1.0) / (degree - m))
            made[degree, m] = op.Sub(ahead, behind)
    return made


def _normalization(degree: int, m: int) -> float:
    fraction = math.factorial(degree - m) / math.factorial(degree + m)
    return (-1) ** m * math.sqrt((2 * degree + 1) / (2 * math.pi) * fraction)
