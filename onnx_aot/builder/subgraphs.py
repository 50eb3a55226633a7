"""Implements ``op.loop``, ``op.scan`` and ``op.if_``, whose bodies are Python functions.

A body emits through the same ``op`` as everything else and may read any value of the graph around
it. The values that it returns become the outputs of the subgraph.

    total, steps = op.loop(count, [zero], lambda i, total: (op.Add(total, i), total))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import onnx_ir as ir

from onnx_aot.builder.checks import guard
from onnx_aot.builder.graph_builder import GraphBuilder
from onnx_aot.builder.size_table import UNKNOWN, Dimension, SizeTable

__all__ = ["Body", "emit_if", "emit_loop", "emit_scan", "make_subgraph"]

Body = Callable[..., Sequence[Any]]


@contextmanager
def _inner_scope(op: GraphBuilder) -> Iterator[list[ir.Node]]:
    """Collects nodes emitted inside in a separate list; sizes and checks stay inside."""
    state = op.state
    outer = state.nodes, dict(state.sizes.values), state.last_check, set(state.conditions)
    state.nodes = []
    try:
        yield state.nodes
    finally:
        state.nodes, state.sizes.values, state.last_check, state.conditions = outer


def make_subgraph(
    op: GraphBuilder, name: str, inputs: Sequence[ir.Value], body: Callable[[], Sequence[Any]]
) -> ir.Graph:
    with _inner_scope(op) as nodes:
        results: list[ir.Value] = []
        checked = op.state.last_check
        returned = [r if isinstance(r, ir.Value) else op.constant(r) for r in body()]
        if returned and op.state.last_check is not checked:  # a result depends on the body's checks
            returned[0] = guard(op, returned[0], copied=False)
        own = set(nodes)
        for value in returned:
            if value.producer() in own and value not in results:
                results.append(value)
                continue
            # each output must be defined in the subgraph and differ from the others
            copy = ir.Value(type=value.type, shape=value.shape)
            op.state.sizes.carry(copy)
            nodes.append(ir.Node("", "Identity", [value], outputs=[copy]))
            results.append(copy)
    return ir.Graph(inputs, results, nodes=nodes, name=name)


def emit_loop(
    op: GraphBuilder,
    count: int | ir.Value | None,
    carried: Sequence[Any],
    body: Body,
    *,
    condition: ir.Value | None = None,
) -> list[ir.Value]:
    """Emits the nodes of ``Builder.loop``."""
    before = [v if isinstance(v, ir.Value) else op.constant(v) for v in carried]
    step = ir.Value(type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([]))
    proceed = ir.Value(type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
    inner = [_inner_value(op, value) for value in before]

    def run() -> Sequence[Any]:
        returned = list(body(step, *inner))
        return returned if condition is not None else [proceed, *returned]

    graph = make_subgraph(op, "loop_body", [step, proceed, *inner], run)
    after = graph.outputs[1:]
    collected = after[len(before) :]
    trips = None if count is None else op.constant(count) if isinstance(count, int) else count
    outputs = _after_steps(op, before, inner, after)
    count_known = op.contents(trips) if condition is None else None
    steps = count_known[0] if count_known else op.fresh()
    outputs += [_stack_over_steps(op, value, steps, 0) for value in collected]
    op.add_node(
        ir.Node(
            "",
            "Loop",
            [trips, condition, *before],
            attributes=[ir.AttrGraph("body", graph)],
            outputs=outputs,
        )
    )
    return outputs


def emit_scan(
    op: GraphBuilder,
    carried: Sequence[Any],
    sequences: Sequence[ir.Value],
    body: Body,
    *,
    axis: int = 0,
    reverse: bool = False,
) -> list[ir.Value]:
    """Emits the nodes of ``Builder.scan``."""
    before = [v if isinstance(v, ir.Value) else op.constant(v) for v in carried]
    inner = [_inner_value(op, value) for value in before]
    slices = []
    for value in sequences:
        assert value.shape is not None, "the rank of a sequence must be known"
        shape = [size for index, size in enumerate(value.shape) if index != axis]
        slices.append(ir.Value(type=value.type, shape=ir.Shape(shape)))
        op.state.sizes.carry(slices[-1])
    inputs = [*inner, *slices]
    graph = make_subgraph(op, "scan_body", inputs, lambda: body(*inputs))
    after = graph.outputs
    collected = after[len(before) :]
    outputs = _after_steps(op, before, inner, after)
    steps = sequences[0].shape[axis] if sequences[0].shape is not None else op.fresh()
    outputs += [_stack_over_steps(op, value, steps, axis) for value in collected]
    attributes = [
        ir.AttrGraph("body", graph),
        ir.AttrInt64("num_scan_inputs", len(slices)),
    ]
    if axis:
        attributes.append(ir.AttrInt64s("scan_input_axes", [axis] * len(slices)))
        if collected:
            attributes.append(ir.AttrInt64s("scan_output_axes", [axis] * len(collected)))
    if reverse:
        attributes.append(ir.AttrInt64s("scan_input_directions", [1] * len(slices)))
        if collected:
            attributes.append(ir.AttrInt64s("scan_output_directions", [1] * len(collected)))
    op.add_node(ir.Node("", "Scan", [*before, *sequences], attributes=attributes, outputs=outputs))
    return outputs


def emit_if(op: GraphBuilder, condition: ir.Value, then: Body, otherwise: Body) -> list[ir.Value]:
    """Emits the nodes of ``Builder.if_``."""
    branches = [make_subgraph(op, "then", [], then), make_subgraph(op, "else", [], otherwise)]
    outputs = [
        _merge_types(op, one, other)
        for one, other in zip(branches[0].outputs, branches[1].outputs, strict=True)
    ]
    attributes = [
        ir.AttrGraph("then_branch", branches[0]),
        ir.AttrGraph("else_branch", branches[1]),
    ]
    op.add_node(ir.Node("", "If", [condition], attributes=attributes, outputs=outputs))
    return outputs


# --- shapes ----------------------------------------------------------------------------------


def _inner_value(op: GraphBuilder, value: ir.Value) -> ir.Value:
    """Returns the body's input for a carried value; unknown sizes may differ between steps."""
    shape = None
    if value.shape is not None:
        sizes = [op.fresh() if SizeTable.is_unknown(size) else size for size in value.shape.dims]
        shape = ir.Shape(sizes)
    inner = ir.Value(type=value.type, shape=shape)
    op.state.sizes.carry(inner)
    return inner


def _after_steps(
    op: GraphBuilder,
    before: Sequence[ir.Value],
    inner: Sequence[ir.Value],
    after: Sequence[ir.Value],
) -> list[ir.Value]:
    """Returns the carried values after the last step; sizes that a step keeps stay known."""
    outputs = []
    for first, seen, last in zip(before, inner, after, strict=False):
        one, two, three = first.shape, seen.shape, last.shape
        if one is not None and two is not None and three is not None and len(two) == len(three):
            sizes = zip(one.dims, two.dims, three.dims, strict=True)
            op.state.sizes.learn(two, ir.Shape([a if b == c else b for a, b, c in sizes]))
        outputs.append(_merge_types(op, last, first))
    return outputs


def _merge_types(op: GraphBuilder, value: ir.Value, other: ir.Value) -> ir.Value:
    """Returns a value of the common type of two, with the sizes in which they agree."""
    shape, one, two = None, value.shape, other.shape
    if one is not None and two is not None and len(one) == len(two):
        pairs = zip(one.dims, two.dims, strict=True)
        shape = ir.Shape([a if a == b and a != UNKNOWN else op.fresh() for a, b in pairs])
    alike = ir.Value(type=value.type, shape=shape)
    op.state.sizes.carry(alike)
    return alike


def _stack_over_steps(op: GraphBuilder, value: ir.Value, steps: Dimension, axis: int) -> ir.Value:
    """Returns a value with one slice per step along an axis."""
    shape = None
    if value.shape is not None:
        shape = ir.Shape([*value.shape.dims[:axis], steps, *value.shape.dims[axis:]])
    collected = ir.Value(type=value.type, shape=shape)
    op.state.sizes.carry(collected)
    return collected
