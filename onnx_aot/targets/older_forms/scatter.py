"""Older forms of scattering with a reduction, which opset 16 introduced."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from onnx_aot.dtypes import INT64_MAX
from onnx_aot.targets.emitter import Emitter
from onnx_aot.targets.older_forms.rows import Row

__all__ = ["ROWS"]

_T = ir.DataType
REDUCERS = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}


def _elements(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    """``ScatterElements<reduction="add">`` -> a Loop over the axis of the indices.

    The indices of one step are those of one position along the axis, which name each element at
    most once, so that the elements can be read, changed and written.
    """
    reducer = REDUCERS.get(node.attributes.get_string("reduction", "none"))
    if reducer is None:
        return None
    data, indices, updates = node.inputs
    assert data is not None
    axis = node.attributes.get_int("axis", 0)

    def step(place: ir.Value, current: ir.Value) -> ir.Value:
        index = e.Gather(indices, place, axis=axis)
        change = e.Gather(updates, place, axis=axis)
        before = e.GatherElements(current, index, axis=axis)
        after = e.op(reducer, [before, change])
        written: ir.Value = e.ScatterElements(current, index, after, axis=axis)
        return written

    return [_repeat(e, e.Gather(e.Shape(indices), e.ints([axis])), data, step)]


def _nd(e: Emitter, node: ir.Node) -> Sequence[ir.Value] | None:
    """``ScatterND<reduction="add">`` -> a Loop over the indices, one at each step."""
    reducer = REDUCERS.get(node.attributes.get_string("reduction", "none"))
    if reducer is None:
        return None
    data, indices, updates = node.inputs
    assert data is not None
    assert indices is not None
    depth = e.dimension(indices, -1) if _last_size(indices) is not None else None
    depth = e.Gather(e.Shape(indices), e.ints([-1])) if depth is None else depth
    rows = e.Reshape(indices, e.Concat(e.ints([-1]), depth, axis=0))
    inner = e.Slice(e.Shape(data), depth, e.ints([INT64_MAX]), e.ints([0]))
    blocks = e.Reshape(updates, e.Concat(e.Slice(e.Shape(rows), [0], [1], [0]), inner, axis=0))

    def step(place: ir.Value, current: ir.Value) -> ir.Value:
        index, change = e.Gather(rows, place, axis=0), e.Gather(blocks, place, axis=0)
        after = e.op(reducer, [e.GatherND(current, index), change])
        written: ir.Value = e.ScatterND(current, index, after)
        return written

    return [_repeat(e, e.Gather(e.Shape(rows), e.ints([0])), data, step)]


def _last_size(value: ir.Value) -> int | None:
    size = None if value.shape is None else value.shape[-1]
    return size if isinstance(size, int) else None


def _repeat(
    e: Emitter,
    count: ir.Value,
    start: ir.Value,
    step: Callable[[ir.Value, ir.Value], ir.Value],
) -> ir.Value:
    """Emits a Loop that changes one value; ``step`` gets the number of the step as a vector."""
    number = e.make_input("step", _T.INT64, ir.Shape([]))
    proceed = e.make_input("proceed", _T.BOOL, ir.Shape([]))
    assert start.dtype is not None
    current = e.make_input("current", start.dtype, start.shape)
    trips = e.Squeeze(count, [0])
    with e.collect_nodes() as nodes:
        after = step(e.Unsqueeze(number, [0]), current)
        again = e.Identity(proceed)
    after.shape = None if start.shape is None else start.shape.copy()
    body = ir.Graph([number, proceed, current], [again, after], nodes=nodes, name="scatter_step")
    looped: ir.Value = e.op(
        "Loop", [trips, None, start], {"body": body}, dtype=start.dtype, shape=start.shape
    )
    return looped


ROWS = (
    Row("ScatterElements", 16, _elements),
    Row("ScatterND", 16, _nd),
)
