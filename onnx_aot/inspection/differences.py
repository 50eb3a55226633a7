"""Measures how far an ONNX model's outputs are from PyTorch's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import torch

from onnx_aot.dtypes import EXACT, TOLERANCES, Tolerance
from onnx_aot.inspection.histogram import format_bars, histogram
from onnx_aot.inspection.rounding import Rounding, measure_rounding

__all__ = [
    "OutputDifference",
    "SizeResult",
    "add_rounding",
    "compare_outputs",
    "compare_types",
]

WIDER_THAN_DOUBLE = (torch.int64, torch.uint64)
"""Types with values that float64 cannot distinguish."""


@dataclasses.dataclass(frozen=True)
class OutputDifference:
    """Result of comparing one output.

    Attributes:
        name: Name of the output in the ONNX model.
        expected: PyTorch's type and shape, as ``"float32[2, 3]"``; ``actual`` the model's.
        max_absolute: Largest ``|a - b|``; ``max_relative`` largest ``|a - b| / |b|`` where b is
            not 0. NaN against a number counts as infinite, NaN against NaN as equal.
        within: Whether type and shape agree and every element is within the type's tolerance.
        remark: How many elements exceed the tolerance, and the worst of them; or why values were
            not compared.
        tolerance: The accepted difference; None if values were not compared.
        worst: Index of the element that differs most, if one exceeds the tolerance.
        histogram: Numbers of elements by label, such as ``("up to 10", 3)``. Labels give the
            difference in multiples of the tolerance, or the difference itself for types that must
            be equal. Empty if values were not compared.
        rounding: Distances of both results from PyTorch's in float64, if an element exceeds the
            tolerance and PyTorch runs in float64.
        choice: Where rounding decides between nearly equal values, if that alone makes the
            difference; see ``choices.accept_choices``.
    """

    name: str
    expected: str
    actual: str
    max_absolute: float
    max_relative: float
    within: bool
    remark: str = ""
    tolerance: Tolerance | None = None
    worst: tuple[int, ...] | None = None
    histogram: tuple[tuple[str, int], ...] = ()
    rounding: Rounding | None = None
    choice: str = ""

    @property
    def right(self) -> bool:
        """True if the output is within the tolerance, or differs only by rounding.

        The latter means that PyTorch is about as far from its own result in float64, and either
        that the errors are small or that no value is wrong by itself.
        """
        rounded = self.rounding is not None and self.rounding.explains
        return self.within or rounded or bool(self.choice)

    @property
    def details(self) -> str:
        """The remark, and the distances from float64 where PyTorch's own result is off too."""
        says_more = self.rounding is not None and (self.right or self.rounding.torch_elements)
        parts = (self.remark, str(self.rounding) if says_more else "", self.choice)
        return "; ".join(filter(None, parts))

    @property
    def accepted(self) -> str:
        """The tolerance in words."""
        if self.tolerance is None:
            return "not compared"
        return "equal" if self.tolerance == EXACT else str(self.tolerance)

    @property
    def bars(self) -> str:
        """The histogram as lines of text."""
        return format_bars(self.histogram, "1" if self.tolerance == EXACT else f"{self.tolerance}")


@dataclasses.dataclass(frozen=True)
class SizeResult:
    """Result of comparing at one set of sizes.

    Attributes:
        sizes: Sizes by name of the dimension; empty if every dimension is static.
        is_example: Whether these are the example inputs.
        differences: One entry per output.
        torch_refuses: Why PyTorch does not run at these sizes; nothing was compared then. Empty if
            it runs.
        runtime_refuses: Why ONNX Runtime does not run at sizes at which PyTorch does, or empty.
    """

    sizes: Mapping[str, int]
    is_example: bool
    differences: tuple[OutputDifference, ...] = ()
    torch_refuses: str = ""
    runtime_refuses: str = ""

    @property
    def is_empty(self) -> bool:
        """True if a size is 0."""
        return 0 in self.sizes.values()

    @property
    def failed(self) -> bool:
        """True if an output is not right, or ONNX Runtime refuses sizes of which none is 0.

        Refusing empty tensors does not count: it raises an error when it happens, and few models
        are meant for them.
        """
        refused = bool(self.runtime_refuses) and not self.is_empty
        return refused or not all(difference.right for difference in self.differences)


def compare_outputs(
    names: Sequence[str], expected: Sequence[torch.Tensor], actual: Sequence[torch.Tensor]
) -> list[OutputDifference]:
    """Compares outputs pairwise, with the tolerances of the expected types."""
    return [_compare(*triple) for triple in zip(names, expected, actual, strict=True)]


def compare_types(
    name: str, expected: torch.Tensor, actual: torch.Tensor, remark: str
) -> OutputDifference:
    """Compares type and shape of one output; the remark says why its values are not compared."""
    described = _describe(expected), _describe(actual)
    infinite = float("inf")
    if described[0] != described[1]:
        return OutputDifference(name, *described, infinite, infinite, False, remark)
    return OutputDifference(name, *described, 0.0, 0.0, True, remark)


def add_rounding(
    difference: OutputDifference,
    expected: torch.Tensor,
    actual: torch.Tensor,
    exact: torch.Tensor | None,
) -> OutputDifference:
    """Adds the distances from PyTorch in float64, if an element exceeds the tolerance.

    Args:
        difference: Result of comparing ``actual`` with ``expected``.
        expected: PyTorch's result.
        actual: The ONNX model's.
        exact: PyTorch's in float64 or complex128; None if it does not return this output then.
    """
    if difference.worst is None or exact is None:
        return difference
    return dataclasses.replace(difference, rounding=measure_rounding(expected, actual, exact))


def _compare(name: str, expected: torch.Tensor, actual: torch.Tensor) -> OutputDifference:
    expected, actual = expected.detach().cpu(), actual.detach().cpu()
    described = _describe(expected), _describe(actual)
    if described[0] != described[1]:
        return compare_types(name, expected, actual, "type or shape differs")
    tolerance = TOLERANCES.get(expected.dtype, EXACT)
    if expected.numel() == 0:
        return OutputDifference(name, *described, 0.0, 0.0, True, tolerance=tolerance)
    same, close, absolute, relative = _measure_distances(expected, actual, tolerance)
    if expected.is_complex():  # if one part is infinite, the other still has to agree
        parts = torch.view_as_real(expected.resolve_conj()), torch.view_as_real(actual)
        close |= _measure_distances(*parts, tolerance)[1].all(-1)
    within = bool(close.all())
    worst = None if within else _find_worst(absolute, close)
    return OutputDifference(
        name,
        *described,
        float(absolute.max()),
        float(relative.max()),
        within,
        "" if worst is None else _describe_worst(expected, actual, worst, close),
        tolerance,
        worst,
        histogram(same, close, absolute / _compute_bound(expected, tolerance)),
    )


def _measure_distances(
    expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Per element: is it equal, is it within the tolerance, absolute and relative distance."""
    wide = torch.complex128 if expected.is_complex() else torch.float64
    a, b = actual.to(wide), expected.to(wide)
    same = (a == b) | (a.isnan() & b.isnan())
    if expected.dtype in WIDER_THAN_DOUBLE:
        same = actual.view(torch.int64) == expected.view(torch.int64)
    absolute = torch.where(same, 0.0, (a - b).abs())
    absolute = torch.where(absolute.isnan(), float("inf"), absolute)
    size = b.abs()
    relative = torch.where(same | (size == 0), 0.0, absolute / size)
    relative = torch.where(relative.isnan(), float("inf"), relative)
    near = (
        (absolute <= _compute_bound(expected, tolerance)) & size.isfinite() & (tolerance != EXACT)
    )
    return same, same | near, absolute, relative


def _compute_bound(expected: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    """Largest accepted difference per element; 1 for types that must be equal."""
    if tolerance == EXACT:
        return torch.ones(expected.shape, dtype=torch.float64)
    wide = torch.complex128 if expected.is_complex() else torch.float64
    return tolerance.absolute + tolerance.relative * expected.to(wide).abs()


def _find_worst(absolute: torch.Tensor, close: torch.Tensor) -> tuple[int, ...]:
    """Index of the element that differs most."""
    flat = torch.where(close, -1.0, absolute).argmax()
    return tuple(int(i) for i in torch.unravel_index(flat, absolute.shape))


def _describe_worst(
    expected: torch.Tensor, actual: torch.Tensor, worst: tuple[int, ...], close: torch.Tensor
) -> str:
    """Describes how many elements differ, and the one that differs most."""
    values = [tensor[worst].item() for tensor in (expected, actual)]
    shown = [f"{v:.6g}" if isinstance(v, float) else str(v) for v in values]
    count = f"{int((~close).sum())} of {close.numel()} elements differ"
    return f"{count}, most at {list(worst)}: PyTorch {shown[0]}, ONNX {shown[1]}"


def _describe(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
