"""What a weight holds, in a few numbers."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import onnx_ir as ir

__all__ = ["Budget", "WeightStatistics", "constant_of", "weight_statistics"]

EXACT_BYTES = 128_000_000
"""Up to how many bytes of a model are looked at in full; weights after that are sampled."""

EXACT_ELEMENTS = 4_000_000
"""Larger weights are sampled in any case: numbers are made double to be counted."""

BLOCKS = 64
BLOCK = 1024
"""A sample is this many blocks of this many elements, evenly spaced: a mapped file is read in
pages, so single elements would cost as much as all of them."""


@dataclasses.dataclass
class Budget:
    """How many bytes may still be looked at in full."""

    left: int = EXACT_BYTES

    def takes(self, size: int) -> bool:
        """Whether a weight of this size fits, which is then taken off."""
        if size > self.left:
            return False
        self.left -= size
        return True


@dataclasses.dataclass(frozen=True)
class WeightStatistics:
    """Statistics of the finite elements of a weight.

    Attributes:
        elements: How many elements it has; ``seen`` how many of them were looked at.
        minimum: Smallest of the finite ones, and so on; None where there are none, and for a mean
            and a standard deviation that overflow.
        zeros: How many are 0; ``nan`` not a number, ``infinite`` infinite.
    """

    elements: int
    seen: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    deviation: float | None
    zeros: int
    nan: int
    infinite: int

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return dataclasses.asdict(self)


def constant_of(value: ir.Value) -> ir.TensorProtocol | None:
    """What an initializer or the output of a ``Constant`` holds; None for any other value.

    Neither is shown as a box: the nodes that take it tell of it. Constants that are sparse, or an
    attribute of the function that they are in, have no tensor and are nodes as others are.
    """
    producer = value.producer()
    if producer is not None and producer.op_identifier() != ("", "Constant", ""):
        return None
    try:
        return ir.convenience.get_const_tensor(value)
    except ValueError:
        return None


def weight_statistics(tensor: ir.TensorProtocol, budget: Budget) -> WeightStatistics | None:
    """Statistics of a weight that has values.

    Args:
        tensor: Of numbers or booleans, of any size.
        budget: Decides whether it is read in full or sampled.

    Returns:
        The statistics; None for strings, complex numbers and what has no elements.
    """
    dtype = tensor.dtype
    if dtype in (ir.DataType.STRING, ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        return None
    values = np.asarray(tensor.numpy()).reshape(-1)
    if values.size == 0:
        return None
    exact = values.size <= EXACT_ELEMENTS and budget.takes(values.nbytes)
    return _statistics(values.size, values if exact else _sample(values))


def _sample(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if values.size <= BLOCKS * BLOCK:
        return values
    starts = np.linspace(0, values.size - BLOCK, BLOCKS).astype(np.int64)
    return np.concatenate([values[start : start + BLOCK] for start in starts])


def _statistics(elements: int, seen: np.ndarray[Any, Any]) -> WeightStatistics:
    wide = seen.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    nan = int(np.isnan(wide).sum())
    some = finite.size > 0
    with np.errstate(over="ignore", invalid="ignore"):  # of doubles near their limit
        mean, deviation = (finite.mean(), finite.std()) if some else (np.nan, np.nan)
    return WeightStatistics(
        elements=elements,
        seen=seen.size,
        minimum=float(finite.min()) if some else None,
        maximum=float(finite.max()) if some else None,
        mean=_finite(mean),
        deviation=_finite(deviation),
        zeros=int((wide == 0).sum()),
        nan=nan,
        infinite=seen.size - finite.size - nan,
    )


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None
