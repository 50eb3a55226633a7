"""Tells rounding from errors: compares both results of an output with PyTorch's in float64.

PyTorch's own result in float32 is rounded at every operator, and a deep network can amplify this
beyond the tolerance. Then PyTorch in float64 decides. A difference is rounding if the ONNX model's
result is about as near to that as PyTorch's is, judged per element, so that an error where PyTorch
is accurate does not pass because PyTorch is inaccurate elsewhere.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import torch

from onnx_aot.dtypes import EXACT, TOLERANCES, Tolerance
from onnx_aot.torch_compat import in_double_precision, to_double

__all__ = ["Rounding", "measure_rounding", "run_in_double"]

logger = logging.getLogger(__name__)

FARTHER = 4.0
"""Allowed ratio of the largest errors, and of two errors of one element that count as alike.

Rounding that is amplified has a heavy tail, in which the maxima of two samples differ: up to 3.0
times in 27 outputs of the detectors and segmentation networks in ``benchmarks/field``.
"""

MORE, SHARE, SPARE = 2, 8, 2
"""Limit for elements in which the ONNX model is off and PyTorch is not: twice the elements in which
it is the other way round, for chance; one for eight elements in which PyTorch is off, because
neighbours round alike; and two, for outputs of a few elements."""

LARGEST = 100.0
"""Largest error, in multiples of the tolerance, that counts as rounding: a tenth of the value for
float32. Errors above come from choices, as of ``topk``, which hide any other error."""


@dataclasses.dataclass(frozen=True)
class Rounding:
    """Distances of both results of an output from PyTorch's result in float64.

    Attributes:
        elements: Number of elements of the ONNX model's result that are beyond the tolerance.
        largest: Its largest error in multiples of the tolerance.
        torch_elements: The number of elements for PyTorch's own result.
        torch_largest: Largest error of PyTorch's own result.
        alike: Whether the ONNX model is about as near to float64 as PyTorch is.
        small: Whether the errors are small enough to be rounding.
    """

    elements: int
    largest: float
    torch_elements: int
    torch_largest: float
    alike: bool
    small: bool

    @property
    def explains(self) -> bool:
        """True if the two results differ only by rounding."""
        return self.alike and self.small

    def __str__(self) -> str:
        return (
            f"elements beyond the tolerance from PyTorch in float64: {self.elements} of ONNX's, "
            f"largest error {self.largest:.3g} times the tolerance, and {self.torch_elements} of "
            f"PyTorch's, {self.torch_largest:.3g} times"
        )


def measure_rounding(
    expected: torch.Tensor, actual: torch.Tensor, exact: torch.Tensor
) -> Rounding | None:
    """Compares two results of an output with a third one in double precision.

    Args:
        expected: PyTorch's result.
        actual: The ONNX model's, of the same type.
        exact: PyTorch's in double precision.

    Returns:
        Both distances, by the tolerance of the type; whole numbers that differ are infinitely far
        from each other. None if the shapes differ.
    """
    tolerance = TOLERANCES.get(expected.dtype, EXACT)
    if not exact.shape == expected.shape == actual.shape or expected.numel() == 0:
        return None
    ours = _count_tolerances(actual, exact, tolerance)
    theirs = _count_tolerances(expected, exact, tolerance)
    apart = _count_tolerances(actual, expected, tolerance) > 1
    largest, torch_largest = float(ours.max()), float(theirs.max())
    return Rounding(
        elements=int((ours > 1).sum()),
        largest=largest,
        torch_elements=int((theirs > 1).sum()),
        torch_largest=torch_largest,
        alike=largest <= max(1.0, FARTHER * torch_largest) and _are_alike(ours, theirs),
        small=not bool((ours[apart] > LARGEST).any()),
    )


def _are_alike(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """True if our result is not off where PyTorch's is not, more than by chance."""
    only_ours = int(((ours > 1) & (FARTHER * theirs <= 1)).sum())
    only_theirs = int(((theirs > 1) & (FARTHER * ours <= 1)).sum())
    return only_ours <= MORE * only_theirs + int((theirs > 1).sum()) // SHARE + SPARE


def _count_tolerances(
    value: torch.Tensor, reference: torch.Tensor, tolerance: Tolerance
) -> torch.Tensor:
    """Distance per element in multiples of the tolerance, float64; infinite for one NaN."""
    wide = torch.complex128 if value.is_complex() else torch.float64
    a, b = (tensor.detach().cpu().to(wide) for tensor in (value, reference))
    same = (a == b) | (a.isnan() & b.isnan())
    distance = (a - b).abs() / (tolerance.absolute + tolerance.relative * b.abs())
    distance = torch.where(same, 0.0, distance)
    return torch.where(distance.isnan(), float("inf"), distance)


def run_in_double(
    run: Callable[[Any, Any, Any], Any], model: Any, args: Any, kwargs: Any
) -> Any | None:
    """Runs a model in double precision, on a copy if it can be copied.

    Args:
        run: Called with the model and its inputs, both in float64.
        model: The model.
        args: Positional inputs.
        kwargs: Keyword inputs.

    Returns:
        The result of ``run``, or None if the model does not run in float64.
    """
    try:
        doubled, inputs = _convert_copy(model), to_double((tuple(args), dict(kwargs)))
        with in_double_precision():
            return run(doubled, *inputs)
    except Exception as error:
        logger.info("PyTorch does not run in float64: %s: %s", type(error).__name__, error)
        return None


def _convert_copy(model: Any) -> Any:
    """A copy of a module in float64; the module itself if it cannot be copied."""
    if not isinstance(model, torch.nn.Module):
        return model
    try:
        return copy.deepcopy(model).double()
    except Exception as error:
        logger.info("the model cannot be copied: %s: %s", type(error).__name__, error)
        return model
