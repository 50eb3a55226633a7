"""Shapes of slices: exact where the bounds are known to be in range, unknown elsewhere."""

from __future__ import annotations

import pytest

from onnx_aot.builder.builder import Builder
from tests.builder.made_values import value

END, START = 2**63 - 1, -(2**63)


@pytest.fixture
def op() -> Builder:
    return Builder(20)


@pytest.mark.parametrize("bounds", [(1, 5), (0, END), (-3, -1), (6, 2), (-1, START, -1), (0, 9, 3)])
def test_known_sizes_are_those_of_python(bounds: tuple[int, ...], op: Builder) -> None:
    start, end, step = (*bounds, 1)[:3]
    shape = op.Slice(value("n", 8), [start], [end], [1], [step]).shape
    first = None if start == START else start
    last = None if end in (END, START) else end
    assert list(shape) == ["n", len(range(8)[first:last:step])]


@pytest.mark.parametrize("bounds", [(0, END), (-1, START, -1)])
def test_a_whole_axis_keeps_its_name(bounds: tuple[int, ...], op: Builder) -> None:
    start, end, step = (*bounds, 1)[:3]
    assert list(op.Slice(value("n", 8), [start], [end], [0], [step]).shape) == ["n", 8]


@pytest.mark.parametrize("bounds", [(1, END), (0, -1), (0, 3), (0, END, 2)])
def test_a_bound_that_may_lie_outside_gives_an_unknown_size(
    bounds: tuple[int, ...], op: Builder
) -> None:
    start, end, step = (*bounds, 1)[:3]
    size, other = op.Slice(value("n", 8), [start], [end], [0], [step]).shape
    assert not isinstance(size, int)
    assert size != "n"
    assert other == 8


def test_axes_that_are_not_constant_leave_the_rank(op: Builder) -> None:
    bounds = [op.Cast(value(1), to=7) for _ in range(3)]
    shape = op.Slice(value("n", 8), *bounds).shape
    assert len(shape) == 2
    assert not any(isinstance(size, int) for size in shape)
