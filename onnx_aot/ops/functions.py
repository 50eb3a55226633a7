"""Local functions of the model: ``op.function``, whose body is a Python function."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_aot.errors import TranslationError
from onnx_aot.ops.subgraphs import subgraphs

if TYPE_CHECKING:
    from onnx_aot.ops.builder import Builder

__all__ = ["DOMAIN", "FunctionBuilder"]

DOMAIN = "pkg.onnx_aot"
"""Domain of the functions."""


class FunctionBuilder:
    """The part of the builder that makes local functions and calls of them."""

    _functions_by_key: dict[Hashable, ir.Function]

    def __init__(self) -> None:
        super().__init__()
        self._functions_by_key = {}

    def function(  # type: ignore[misc]
        self: Builder,
        name: str,
        key: Hashable,
        operands: Sequence[ir.Value],
        body: Callable[[Sequence[ir.Value]], Sequence[ir.Value]],
    ) -> list[ir.Value]:
        """Calls a local function, which is made the first time.

        Args:
            name: What it is called, with a number behind it where another one is called so.
            key: Equal for calls of one function.
            operands: What it is called with.
            body: Emits it; gets values that stand for the operands, may read no other values but
                constants, and returns the results.

        Raises:
            TranslationError: The body reads something else.
        """
        function = self._functions_by_key.get(key)
        if function is None:
            function = self._make_function(name, operands, body)
            if not _draws(function):  # each call of what draws random numbers has its own seeds
                self._functions_by_key[key] = function
        self.functions[function.identifier()] = function
        results = [ir.Value() for _ in function.outputs]
        for result, output in zip(results, function.outputs, strict=True):
            result.type = output.type
        self._add_node(ir.Node(DOMAIN, function.name, list(operands), outputs=results))
        self.import_domain(DOMAIN, 1)
        return results

    def _make_function(  # type: ignore[misc]
        self: Builder,
        name: str,
        operands: Sequence[ir.Value],
        body: Callable[[Sequence[ir.Value]], Sequence[ir.Value]],
    ) -> ir.Function:
        known = (*self.functions.values(), *self._functions_by_key.values())
        taken = {function.name for function in known}
        unique, number = name, 0
        while unique in taken:
            number += 1
            unique = f"{name}_{number}"
        inputs = [
            ir.Value(name=f"{unique}.input_{index}", type=value.type, shape=value.shape)
            for index, value in enumerate(operands)
        ]
        with self._closed_scope():
            graph = self._subgraph(unique, inputs, lambda: body(inputs))
        self._own_constants(graph, unique)
        for value in _values(graph):
            if value.shape is not None:  # another call may have other sizes
                sizes = [size if isinstance(size, int) else None for size in value.shape.dims]
                value.shape = ir.Shape(sizes)
        domains = {node.domain for node in ir.traversal.RecursiveGraphIterator(graph)}
        graph.opset_imports[""] = self.opset
        graph.opset_imports.update({d: self.version_of(d) for d in domains if d})
        return ir.Function(DOMAIN, unique, graph=graph, attributes=())

    @contextmanager
    def _closed_scope(self: Builder) -> Iterator[None]:  # type: ignore[misc]
        """Nothing that is known of values outside is used inside."""
        sizes, sources = self._sizes, self._size_sources
        checked, conditions = self._checked, self._conditions
        self._sizes, self._size_sources = {}, {}
        self._conditions = set()
        self.forget_checks()
        try:
            yield
        finally:
            self._sizes, self._size_sources = sizes, sources
            self._checked, self._conditions = checked, conditions

    def _own_constants(self: Builder, graph: ir.Graph, name: str) -> None:  # type: ignore[misc]
        """Makes the constants of the main graph that a function reads nodes of its own."""
        made: dict[ir.Value, ir.Value] = {}
        own = set(_values(graph))
        for node in ir.traversal.RecursiveGraphIterator(graph):
            for index, value in enumerate(node.inputs):
                if value is None or value in own:
                    continue
                if value not in self._literals:
                    raise TranslationError(
                        f"the function {name} reads {value.name} from outside, which ONNX "
                        "functions cannot; give it to the region as an argument"
                    )
                if value not in made:
                    made[value] = ir.Value(name=value.name, type=value.type, shape=value.shape)
                node.replace_input_with(index, made[value])
        for outer, inner in made.items():
            assert outer.const_value is not None
            attribute = ir.AttrTensor("value", outer.const_value)
            constant = ir.Node("", "Constant", [], attributes=[attribute], outputs=[inner])
            graph.insert_before(graph[0], constant)


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    """Everything that a graph and its subgraphs define."""
    yield from graph.inputs
    for node in graph:
        yield from node.outputs
        for inner in subgraphs(node):
            yield from _values(inner)


def _draws(function: ir.Function) -> bool:
    nodes = ir.traversal.RecursiveGraphIterator(function.graph)
    return any("seed" in node.attributes for node in nodes)
