"""Emits the bodies of higher-order operators: branches, loop bodies, regions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import onnx_ir as ir
import torch
import torch.fx

from onnx_aot import torch_compat
from onnx_aot.builder.builder import Builder
from onnx_aot.builder.size_table import SizeTable
from onnx_aot.dimensions.symbols import Dimension, Dimensions
from onnx_aot.fx_passes.functionalize import functionalize_graph
from onnx_aot.fx_passes.nested_graphs import body_of
from onnx_aot.metadata.stamp import Metadata
from onnx_aot.ops.complex.pairs import Complex
from onnx_aot.ops.control.callable_bodies import Body
from onnx_aot.torch_compat import CONTENT_SIZE, pytree, symbolic_expression
from onnx_aot.translate.decompose import make_distinct

__all__ = ["Bodies", "nodes_and_bodies"]

FLEX = torch.ops.higher_order.flex_attention


def nodes_and_bodies(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    """Yields the nodes of a graph and of the bodies in it, each body once.

    Bodies that only ``flex_attention`` uses are left out: they are not translated as they are.
    """
    seen: set[int] = set()

    def walk_nodes(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
        for node in graph.nodes:
            body = body_of(node) if node.op == "get_attr" else None
            if body is None:
                yield node
            elif id(body) not in seen and any(user.target != FLEX for user in node.users):
                seen.add(id(body))
                yield from walk_nodes(body.graph)

    return walk_nodes(graph)


class NodeVisitor(Protocol):
    """The part of the walker that bodies need."""

    op: Builder
    values: dict[torch.fx.Node, Any]
    dimensions: Dimensions
    metadata: Metadata
    current: torch.fx.Node | None

    def check_supported(self, graph: torch.fx.Graph) -> None:
        """Raises ``UnsupportedOperatorError`` if a node cannot be translated."""

    def visit(self, node: torch.fx.Node) -> None:
        """Translates a node at the builder's current position, and stores its value."""

    def argument(self, argument: Any) -> Any:
        """An FX argument with its nodes replaced by their results."""


class Bodies:
    """Turns graph modules among a call's arguments into functions that emit them."""

    def __init__(self, walker: NodeVisitor) -> None:
        self._walker = walker

    def make_function(self, module: torch.fx.GraphModule) -> Body:
        """Returns the function that a translation gets for a body."""
        return Body(module, self._emit, self._trace)

    def _trace(
        self, function: Callable[..., Any], examples: Sequence[Any]
    ) -> torch.fx.GraphModule | None:
        mode = torch_compat.fake_mode_of(examples)
        try:
            with torch_compat.refuse_fixed_sizes():
                module = torch_compat.trace_fake(
                    function, make_distinct(list(examples), mode), mode
                )
            module.graph = functionalize_graph(module.graph)
        except Exception:  # torch's rules for vmap may raise anything
            return None
        self._walker.check_supported(module.graph)
        return module

    def _emit(self, module: torch.fx.GraphModule, operands: Sequence[Any]) -> list[Any]:
        """Translates a body at the builder's current position.

        The body's own unbacked symbols stand for different sizes in every call.
        """
        walker, op = self._walker, self._walker.op
        caller = walker.current
        held = op.result, op.recorded
        nodes = list(module.graph.nodes)
        parameters = [node for node in nodes if node.op == "placeholder"]
        symbols = self._bind_symbols(caller, nodes, parameters, operands)
        with walker.dimensions.bind_symbols(symbols), walker.metadata.enter_body(caller):
            for node, operand in zip(parameters, operands, strict=True):
                self._enter(node, operand)
            for node in nodes:
                walker.visit(node)
            results = walker.argument(nodes[-1].args[0])
        walker.current = caller
        op.result, op.recorded = held
        return results if isinstance(results, list) else [results]

    def _bind_symbols(
        self,
        caller: torch.fx.Node | None,
        nodes: Sequence[torch.fx.Node],
        parameters: Sequence[torch.fx.Node],
        operands: Sequence[Any],
    ) -> dict[Any, Dimension | None]:
        """The body's own symbols, with the sizes that they stand for, if known."""
        outside = (
            _symbols_of(node.meta.get("val") for node in caller.all_input_nodes) if caller else {}
        )
        own: dict[Any, Dimension | None] = {
            symbol: None
            for name, symbol in _symbols_of(node.meta.get("val") for node in nodes).items()
            if CONTENT_SIZE.fullmatch(name) and name not in outside
        }
        if not own:
            return own
        for node, operand in zip(parameters, operands, strict=True):
            recorded = node.meta.get("val")
            for size, given in _pair_sizes(recorded, operand):
                expression = symbolic_expression(size)
                if own.get(expression, 0) is None and not SizeTable.is_unknown(given):
                    own[expression] = given
        return own

    def _enter(self, node: torch.fx.Node, operand: Any) -> None:
        """Binds a parameter to its value, and adds the sizes recorded for the parameter."""
        walker, recorded = self._walker, node.meta.get("val")
        walker.values[node] = operand
        for value in (operand.real, operand.imag) if isinstance(operand, Complex) else (operand,):
            if not isinstance(value, ir.Value):
                continue
            if isinstance(recorded, torch.SymInt):
                name = walker.dimensions.name(recorded)
                if name is not None:
                    walker.op.state.sizes.remember(name, value)
            elif isinstance(recorded, torch.Tensor):
                shape = walker.dimensions.shape(recorded.shape)
                if value.shape is not None and len(value.shape) == len(shape):
                    walker.op.state.sizes.learn(value.shape, shape)
                elif value.shape is None:
                    value.shape = shape


def _pair_sizes(recorded: Any, operand: Any) -> Iterator[tuple[torch.SymInt, Dimension]]:
    """Recorded symbolic sizes of a parameter, paired with those of the value bound to it."""
    pairs: list[tuple[Any, Any]] = []
    if isinstance(recorded, torch.Tensor):
        shape = operand.shape if isinstance(operand, (ir.Value, Complex)) else None
        if shape is not None and len(shape) == recorded.dim():
            pairs = list(zip(recorded.shape, shape.dims, strict=True))
    elif type(operand) is int:
        pairs = [(recorded, operand)]
    yield from (pair for pair in pairs if isinstance(pair[0], torch.SymInt))


def _symbols_of(recorded: Any) -> dict[str, Any]:
    """Symbols in the sizes of tensors, and in numbers, by name."""
    found = {}
    for leaf in pytree.tree_leaves(list(recorded)):
        for size in leaf.shape if isinstance(leaf, torch.Tensor) else (leaf,):
            if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                for symbol in getattr(symbolic_expression(size), "free_symbols", ()):
                    found[str(symbol)] = symbol
    return found
