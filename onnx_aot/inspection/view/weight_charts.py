"""Computes statistics of a weight, such as its range and mean."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import onnx_ir as ir

__all__ = ["Budget", "WeightStatistics", "constant_of", "weight_statistics"]

EXACT_BYTES = 128_000_000
"""Bytes of a model that are read in full; weights beyond that are sampled."""

EXACT_ELEMENTS = 4_000_000
"""Larger weights are always sampled: elements are converted to double."""

BLOCKS = 64
BLOCK = 1024
"""A sample is this many blocks of this many elements, evenly spaced: a mapped file is read in
pages, so single elements would cost as much as all of them."""


@dataclasses.dataclass
class Budget:
    """Number of bytes that may still be read in full."""

    left: int = EXACT_BYTES

    def try_reserve(self, size: int) -> bool:
        """Returns True, and subtracts the size, if a weight of this size fits."""
        if size > self.left:
            return False
        self.left -= size
        return True


@dataclasses.dataclass(frozen=True)
class WeightStatistics:
    """Statistics of the finite elements of a weight.

    Attributes:
        elements: Number of elements of the weight; ``seen`` how many of them were read.
        minimum: Smallest finite element; ``maximum``, ``mean`` and ``deviation`` (standard
            deviation) also count finite ones only. None if there are none, and for a mean or
            deviation that overflows.
        zeros: Number of elements read that are 0; ``nan`` NaN, ``infinite`` infinite.
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
        """Returns the fields as a dict of plain values."""
        return dataclasses.asdict(self)


def constant_of(value: ir.Value) -> ir.TensorProtocol | None:
    """Tensor of an initializer or of the output of a ``Constant``; None for other values.

    Neither is shown as a box: the nodes that take it describe it. Constants that are sparse, or
    refer to an attribute of the enclosing function, have no tensor and are shown as nodes.
    """
    producer = value.producer()
    if producer is not None and producer.op_identifier() != ("", "Constant", ""):
        return None
    try:
        return ir.convenience.get_const_tensor(value)
    except ValueError:
        return None


def weight_statistics(tensor: ir.TensorProtocol, budget: Budget) -> WeightStatistics | None:
    """Computes statistics of a weight that has values.

    Args:
        tensor: A tensor of any type and size.
        budget: Decides whether it is read in full or sampled.

    Returns:
        The statistics; None for strings, complex numbers and empty tensors.
    """
    dtype = tensor.dtype
    if dtype in (ir.DataType.STRING, ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        return None
    values = np.asarray(tensor.numpy()).reshape(-1)
    if values.size == 0:
        return None
    exact = values.size <= EXACT_ELEMENTS and budget.try_reserve(values.nbytes)
    return _compute_statistics(values.size, values if exact else _sample(values))


def _sample(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if values.size <= BLOCKS * BLOCK:
        return values
    starts = np.linspace(0, values.size - BLOCK, BLOCKS).astype(np.int64)
    return np.concatenate([values[start : start + BLOCK] for start in starts])


def _compute_statistics(elements: int, seen: np.ndarray[Any, Any]) -> WeightStatistics:
    wide = seen.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    nan = int(np.isnan(wide).sum())
    some = finite.size > 0
    with np.errstate(over="ignore", invalid="ignore"):  # sums of large doubles may overflow
        mean, deviation = (finite.mean(), finite.std()) if some else (np.nan, np.nan)
    return WeightStatistics(
        elements=elements,
        seen=seen.size,
        minimum=float(finite.min()) if some else None,
        maximum=float(finite.max()) if some else None,
        mean=_finite_or_none(mean),
        deviation=_finite_or_none(deviation),
        zeros=int((wide == 0).sum()),
        nan=nan,
        infinite=seen.size - finite.size - nan,
    )


def _finite_or_none(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None
