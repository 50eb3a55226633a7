"""Statistics of weights: exact and sampled, for every type."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from onnx_aot.inspection.view import weight_charts
from onnx_aot.inspection.view.weight_charts import Budget, WeightStatistics, weight_statistics


def _of(
    values: object, dtype: object = np.float32, budget: Budget | None = None
) -> WeightStatistics:
    tensor = ir.tensor(np.asarray(values, dtype=dtype))
    found = weight_statistics(tensor, budget or Budget())
    assert found is not None
    return found


def test_what_is_not_finite_is_counted_apart() -> None:
    found = _of([0.0, 1.0, -3.0, math.nan, math.inf, -math.inf, 0.0, math.nan])
    assert (found.minimum, found.maximum, found.mean) == (-3.0, 1.0, -0.5)
    assert found.deviation == pytest.approx(np.std([0, 1, -3, 0]))
    assert (found.zeros, found.nan, found.infinite) == (2, 2, 2)
    assert (found.elements, found.seen) == (8, 8)


def test_nothing_finite() -> None:
    found = _of([math.nan, math.inf])
    assert (found.minimum, found.maximum, found.mean, found.deviation) == (None,) * 4
    assert (found.nan, found.infinite) == (1, 1)


def test_a_mean_that_overflows() -> None:
    found = _of([1.7e308, 1.7e308], np.float64)
    assert (found.minimum, found.mean) == (1.7e308, None)


@pytest.mark.parametrize(
    "dtype",
    [np.bool_, np.int8, np.int64, np.uint64, np.float16, ml_dtypes.bfloat16, ml_dtypes.int4],
    ids=lambda dtype: dtype.__name__,
)
def test_types(dtype: type) -> None:
    found = _of([0, 1, 1, 0, 1], dtype)
    assert (found.minimum, found.maximum, found.zeros) == (0.0, 1.0, 2)
    assert found.mean == pytest.approx(0.6)


def test_what_has_no_numbers() -> None:
    assert weight_statistics(ir.tensor(np.zeros((0, 3), np.float32)), Budget()) is None
    assert weight_statistics(ir.StringTensor([b"a"], shape=ir.Shape([1])), Budget()) is None


def test_large_weights_are_sampled_over_their_whole_length() -> None:
    values = np.linspace(-1, 1, 1_000_000, dtype=np.float32)
    budget = Budget(left=values.nbytes)
    exact, sampled = _of(values, budget=budget), _of(values, budget=budget)
    assert (exact.seen, sampled.seen) == (1_000_000, weight_charts.BLOCKS * weight_charts.BLOCK)
    assert sampled.elements == 1_000_000
    assert (sampled.minimum, sampled.maximum) == (-1.0, 1.0)
    assert sampled.deviation == pytest.approx(exact.deviation, rel=0.02)


def test_very_large_weights_are_sampled_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_charts, "EXACT_ELEMENTS", 70_000)
    assert _of(np.zeros(70_001)).seen == weight_charts.BLOCKS * weight_charts.BLOCK
    assert _of(np.zeros(70_000)).seen == 70_000
