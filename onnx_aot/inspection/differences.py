"""How far an ONNX model's outputs are from PyTorch's."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from onnx_aot.dtypes import TOLERANCES, Tolerance

__all__ = ["OutputDifference", "compare_outputs"]

EXACT = Tolerance(0.0, 0.0)


@dataclasses.dataclass(frozen=True)
class OutputDifference:
    """One output, compared.

    Attributes:
        name: Name of the output in the ONNX model.
        expected: PyTorch's type and shape, as ``"float32[2, 3]"``; ``actual`` the model's.
        max_absolute: Largest ``|a - b|``; ``max_relative`` largest ``|a - b| / |b|`` where b is
            not 0. NaN against a number counts as infinite, NaN against NaN as equal.
        within: Whether type and shape agree and every element is within the type's tolerance.
    """

    name: str
    expected: str
    actual: str
    max_absolute: float
    max_relative: float
    within: bool


def compare_outputs(
    names: Sequence[str], expected: Sequence[torch.Tensor], actual: Sequence[torch.Tensor]
) -> list[OutputDifference]:
    """Compares outputs pairwise; tolerances are those of the expected type."""
    return [_compare(*triple) for triple in zip(names, expected, actual, strict=True)]


def _compare(name: str, expected: torch.Tensor, actual: torch.Tensor) -> OutputDifference:
    expected, actual = expected.detach().cpu(), actual.detach().cpu()
    described = _describe(expected), _describe(actual)
    if described[0] != described[1]:
        infinite = float("inf")
        return OutputDifference(name, *described, infinite, infinite, False)
    if expected.numel() == 0:
        return OutputDifference(name, *described, 0.0, 0.0, True)
    tolerance = TOLERANCES.get(expected.dtype, EXACT)
    wide = torch.complex128 if expected.is_complex() else torch.float64
    a, b = actual.to(wide), expected.to(wide)
    same = (a == b) | (a.isnan() & b.isnan())
    absolute = torch.where(same, 0.0, (a - b).abs())
    absolute = torch.where(absolute.isnan(), float("inf"), absolute)
    size = b.abs()
    relative = torch.where(size > 0, absolute / size, 0.0)
    relative = torch.where(relative.isnan(), 0.0, relative)
    within = bool((same | (absolute <= tolerance.absolute + tolerance.relative * size)).all())
    return OutputDifference(name, *described, float(absolute.max()), float(relative.max()), within)


def _describe(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
