"""Loops and branches: ``op.loop``, ``op.scan`` and ``op.if_``, whose bodies are Python functions.

A body emits through the same ``op`` as everything else and may read any value of the graph around
it. What it returns becomes the outputs of the subgraph.

    total, steps = op.loop(count, [zero], lambda i, total: (op.Add(total, i), total))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

if TYPE_CHECKING:
    from onnx_aot.ops.builder import Builder
    from onnx_aot.ops.size_contents import Dimension

from onnx_aot.ops.size_contents import UNKNOWN

__all__ = ["SubgraphBuilder", "subgraphs"]

Body = Callable[..., Sequence[Any]]


class SubgraphBuilder:
    """The part of the builder that makes nodes with subgraphs."""

    @contextmanager
    def _inner_scope(self: Builder) -> Iterator[list[ir.Node]]:  # type: ignore[misc]
        """Nodes emitted inside go to a list of their own; sizes and checks stay inside."""
        outer, self.nodes = self.nodes, []
        sizes, checked, conditions = dict(self._sizes), self._checked, set(self._conditions)
        try:
            yield self.nodes
        finally:
            self.nodes = outer
            self._sizes, self._checked, self._conditions = sizes, checked, conditions

    def _subgraph(  # type: ignore[misc]
        self: Builder, name: str, inputs: Sequence[ir.Value], body: Callable[[], Sequence[Any]]
    ) -> ir.Graph:
        with self._inner_scope() as nodes:
            results: list[ir.Value] = []
            checked = self._checked
            returned = [r if isinstance(r, ir.Value) else self.constant(r) for r in body()]
            if returned and self._checked is not checked:  # a result waits for the body's checks
                returned[0] = self.guarded(returned[0], copied=False)
            own = set(nodes)
            for value in returned:
                if value.producer() in own and value not in results:
                    results.append(value)
                    continue
                # an output is a value of the subgraph's own, and each a different one
                copy = ir.Value(type=value.type, shape=value.shape)
                self.carry(copy)
                nodes.append(ir.Node("", "Identity", [value], outputs=[copy]))
                results.append(copy)
        return ir.Graph(inputs, results, nodes=nodes, name=name)

    def loop(  # type: ignore[misc]
        self: Builder,
        count: int | ir.Value | None,
        carried: Sequence[Any],
        body: Body,
        *,
        condition: ir.Value | None = None,
    ) -> list[ir.Value]:
        """ONNX Loop (version 16): runs the body ``count`` times, or while a condition holds.

        Args:
            count: Trip count, an int or a 0-d INT64 value; None runs while the condition holds.
            carried: Values before the first step (numbers become constants).
            body: ``body(i, *carried)`` with the 0-d INT64 step number; returns the carried values
                after the step, in the same number and types, and then any values that are collected
                over the steps in a new first dimension. With ``condition`` it returns the next
                condition, a 0-d BOOL value, before them.
            condition: Whether to run the first step. Carried values keep their rank; a dimension
                that differs between steps must not be known as a number before the loop.

        Returns:
            The carried values after the last step, then the collected ones.
        """
        before = [v if isinstance(v, ir.Value) else self.constant(v) for v in carried]
        step = ir.Value(type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([]))
        proceed = ir.Value(type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
        inner = [self._inner_value(value) for value in before]

        def run() -> Sequence[Any]:
            returned = list(body(step, *inner))
            return returned if condition is not None else [proceed, *returned]

        graph = self._subgraph("loop_body", [step, proceed, *inner], run)
        after = graph.outputs[1:]
        collected = after[len(before) :]
        trips = None if count is None else self.constant(count) if isinstance(count, int) else count
        outputs = self._after_steps(before, inner, after)
        count_known = self.contents(trips) if condition is None else None
        steps = count_known[0] if count_known else self.fresh()
        outputs += [self._collected(value, steps, 0) for value in collected]
        self._add_node(
            ir.Node(
                "",
                "Loop",
                [trips, condition, *before],
                attributes=[ir.AttrGraph("body", graph)],
                outputs=outputs,
            )
        )
        return outputs

    def scan(  # type: ignore[misc]
        self: Builder,
        carried: Sequence[Any],
        sequences: Sequence[ir.Value],
        body: Body,
        *,
        axis: int = 0,
        reverse: bool = False,
    ) -> list[ir.Value]:
        """ONNX Scan (version 16): steps through values along one axis.

        Args:
            carried: Values before the first step (numbers become constants); they keep their
                shapes.
            sequences: Values that the body sees one slice of in each step, the axis removed. They
                must have the same size along it, at least 1.
            body: ``body(*carried, *slices)`` returns the carried values after the step, and then
                values that are collected over the steps along the same axis.
            axis: Non-negative axis that is stepped through and collected along.
            reverse: From the last slice to the first; what is collected keeps the places.

        Returns:
            The carried values after the last step, then the collected ones.
        """
        before = [v if isinstance(v, ir.Value) else self.constant(v) for v in carried]
        inner = [self._inner_value(value) for value in before]
        slices = []
        for value in sequences:
            assert value.shape is not None, "the rank of a sequence must be known"
            shape = [size for index, size in enumerate(value.shape) if index != axis]
            slices.append(ir.Value(type=value.type, shape=ir.Shape(shape)))
            self.carry(slices[-1])
        inputs = [*inner, *slices]
        graph = self._subgraph("scan_body", inputs, lambda: body(*inputs))
        after = graph.outputs
        collected = after[len(before) :]
        outputs = self._after_steps(before, inner, after)
        steps = sequences[0].shape[axis] if sequences[0].shape is not None else self.fresh()
        outputs += [self._collected(value, steps, axis) for value in collected]
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
        self._add_node(
            ir.Node("", "Scan", [*before, *sequences], attributes=attributes, outputs=outputs)
        )
        return outputs

    def if_(  # type: ignore[misc]
        self: Builder, condition: ir.Value, then: Body, otherwise: Body
    ) -> list[ir.Value]:
        """ONNX If (version 16): the results of one of two functions without arguments.

        Args:
            condition: A BOOL value with one element.
            then: Called for the values when the condition holds.
            otherwise: Likewise when it does not; the same number of results, of the same types and
                ranks.

        Returns:
            The results.
        """
        branches = [self._subgraph("then", [], then), self._subgraph("else", [], otherwise)]
        outputs = [
            self._like(one, other)
            for one, other in zip(branches[0].outputs, branches[1].outputs, strict=True)
        ]
        attributes = [
            ir.AttrGraph("then_branch", branches[0]),
            ir.AttrGraph("else_branch", branches[1]),
        ]
        self._add_node(ir.Node("", "If", [condition], attributes=attributes, outputs=outputs))
        return outputs

    # --- shapes ----------------------------------------------------------------------------------

    def _inner_value(self: Builder, value: ir.Value) -> ir.Value:  # type: ignore[misc]
        """What a body sees of a carried value; unknown sizes may differ from step to step."""
        shape = None
        if value.shape is not None:
            sizes = [self.fresh() if self.is_unknown(size) else size for size in value.shape.dims]
            shape = ir.Shape(sizes)
        inner = ir.Value(type=value.type, shape=shape)
        self.carry(inner)
        return inner

    def _after_steps(  # type: ignore[misc]
        self: Builder,
        before: Sequence[ir.Value],
        inner: Sequence[ir.Value],
        after: Sequence[ir.Value],
    ) -> list[ir.Value]:
        """The carried values after the last step: sizes that a step keeps are those before it."""
        outputs = []
        for first, seen, last in zip(before, inner, after, strict=False):
            one, two, three = first.shape, seen.shape, last.shape
            if one is not None and two is not None and three is not None and len(two) == len(three):
                sizes = zip(one.dims, two.dims, three.dims, strict=True)
                self.learn(two, ir.Shape([a if b == c else b for a, b, c in sizes]))
            outputs.append(self._like(last, first))
        return outputs

    def _like(self: Builder, value: ir.Value, other: ir.Value) -> ir.Value:  # type: ignore[misc]
        """A value of the type of two, with the sizes in which they agree."""
        shape, one, two = None, value.shape, other.shape
        if one is not None and two is not None and len(one) == len(two):
            pairs = zip(one.dims, two.dims, strict=True)
            shape = ir.Shape([a if a == b and a != UNKNOWN else self.fresh() for a, b in pairs])
        alike = ir.Value(type=value.type, shape=shape)
        self.carry(alike)
        return alike

    def _collected(  # type: ignore[misc]
        self: Builder, value: ir.Value, steps: Dimension, axis: int
    ) -> ir.Value:
        """A value with one slice per step."""
        shape = None
        if value.shape is not None:
            shape = ir.Shape([*value.shape.dims[:axis], steps, *value.shape.dims[axis:]])
        collected = ir.Value(type=value.type, shape=shape)
        self.carry(collected)
        return collected


def subgraphs(node: ir.Node) -> list[ir.Graph]:
    """The graphs among a node's attributes."""
    if not node.attributes:
        return []
    return [
        attribute.as_graph()
        for attribute in node.attributes.data.values()
        if attribute.type == ir.AttributeType.GRAPH
    ]
