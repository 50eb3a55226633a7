"""Undoes the emission of a translation that declined a call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import onnx_ir as ir

from onnx_aot.builder.graph_builder import GraphBuilder
from onnx_aot.graph.traversal import subgraphs

__all__ = ["DeclinedError", "attempt"]


class DeclinedError(Exception):
    """A translation declines a call, so that the next one is tried; the message says why."""


@contextmanager
def attempt(op: GraphBuilder) -> Iterator[None]:
    """Undoes everything emitted inside the block if it ends with an exception."""
    state = op.state
    outer, state.nodes = state.nodes, []  # apart, so that an attempt does not copy all before it
    before = state.copy()
    try:
        yield
        outer += state.nodes
    except BaseException:
        for node in state.nodes:
            _let_go(node)
        state.restore(before)
        raise
    finally:
        state.nodes = outer


def _let_go(node: ir.Node) -> None:
    """Removes a node's inputs, so that it no longer counts as a use of them."""
    for index in range(len(node.inputs)):
        node.replace_input_with(index, None)
    for graph in subgraphs(node):
        for inner in graph:
            _let_go(inner)
