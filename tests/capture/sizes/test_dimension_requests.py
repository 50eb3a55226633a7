"""Requested dimensions, and expressions over their names."""

from __future__ import annotations

import math

import pytest
from torch.export import Dim

from onnx_aot.capture.sizes.dimension_requests import (
    DynamicShapes,
    RequestedDim,
    evaluate,
    plain_names,
    refuse_contradictions,
    same_expression,
)
from onnx_aot.errors import DynamicShapeError


def requested(name: str | None, axis: int | None = 0, path: str = "x") -> RequestedDim:
    return RequestedDim(0, path, axis, name, derived=False, may_be_static=False, given=name)


def test_places_are_written_as_python() -> None:
    dim = requested("n", 1, "inputs[0]['x']")
    assert (str(dim), dim.size) == ("inputs[0]['x'], axis 1 ('n')", "inputs[0]['x'].shape[1]")
    number = requested("k", None, "k")
    assert (str(number), number.size) == ("k", "k")


@pytest.mark.parametrize(
    ("given", "limits"),
    [(Dim("n", min=2, max=9), (2, 9)), (Dim.DYNAMIC, (0, math.inf)), ("n", (0, math.inf))],
    ids=str,
)
def test_limits_of_a_dim_a_hint_and_a_name(given: object, limits: tuple[int, float]) -> None:
    dim = RequestedDim(0, "x", 0, "n", derived=False, may_be_static=False, given=given)
    assert dim.limits == limits


def test_a_dimension_is_found_by_torchs_name_for_it() -> None:
    first, number = requested("n"), requested("k", None, "k")
    shapes = DynamicShapes(requested=(first, number))
    assert shapes.at("L['x'].size()[0]") is first
    assert shapes.at("L['flat_args'][0].size()[0]") is first  # its name in strict captures
    assert shapes.at("L['x'].size()[1]") is None


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("2*n", 14),
        ("n + m - 1", 9),
        ("n", None),
        ("n // 2", None),
        ("seq len", None),
        ("q+1", None),
    ],
)
def test_sums_and_products_are_evaluated(written: str, value: int | None) -> None:
    assert evaluate(written, {"n": 7, "m": 3}) == value


def test_expressions_are_compared_by_value() -> None:
    assert same_expression("2*n + 2", "(n + 1)*2", ["n"])
    assert not same_expression("2*n", "n + 4", ["n"])
    assert not same_expression("n*m", "n + m", ["n", "m"])
    assert plain_names([requested("n"), requested("2*n"), requested(None)]) == {"n"}


def test_sizes_of_the_example_fit_their_names() -> None:
    refuse_contradictions([(requested("n"), 4), (requested("2*n", 1), 8)])
    with pytest.raises(DynamicShapeError, match=r"x, axis 1 is 2\*n; n is 4 .* 7 instead of 8"):
        refuse_contradictions([(requested("n"), 4), (requested("2*n", 1), 7)])
    with pytest.raises(DynamicShapeError, match=r"'n' .*x, axis 0 is 4, x, axis 1 is 5"):
        refuse_contradictions([(requested("n"), 4), (requested("n", 1), 5)])
