"""Takes back what a translation emitted before it declined a call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import onnx_ir as ir

from onnx_aot.builder.graph_builder import GraphBuilder
from onnx_aot.graph.traversal import subgraphs

__all__ = ["DeclinedError", "attempt"]


class DeclinedError(Exception):
    """A translation does not take a call, and the next one is to be tried; says why."""


@contextmanager
def attempt(op: GraphBuilder) -> Iterator[None]:
    """What is emitted inside stays, unless the block ends with an exception."""
    before = op.state.copy()
    try:
        yield
    except BaseException:
        for node in op.state.nodes[len(before.nodes) :]:
            _let_go(node)
        op.state.restore(before)
        raise


def _let_go(node: ir.Node) -> None:
    """Makes a node read nothing, so that what it read is not kept for it."""
    for index in range(len(node.inputs)):
        node.replace_input_with(index, None)
    for graph in subgraphs(node):
        for inner in graph:
            _let_go(inner)
