"""Joins captures that are right for different sizes into one program, with a branch on the sizes.

Each capture becomes a body of ``torch.cond``. The bodies use the same weights; only their nodes are
in the model more than once.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

from onnx_aot.capture.sizes.captured_dimensions import sizes_of
from onnx_aot.capture.sizes.dimension_requests import DynamicShapes, RequestedDim
from onnx_aot.torch_compat import (
    aten,
    copy_node,
    copy_program,
    fake_mode_of,
    higher_order,
    make_body,
    new_symbol,
    record_expression,
    set_graph_signature,
    set_graph_with_bodies,
    symbolic_expression,
)

__all__ = ["Part", "join_captures"]

Program = torch.export.ExportedProgram

Key = tuple[InputKind, Any]
"""Input of a captured graph: the name of a weight, or the position of a leaf of the inputs."""


@dataclasses.dataclass(frozen=True)
class Part:
    """A capture, and the sizes that it is right for.

    Attributes:
        program: The capture.
        condition: A condition of sympy on the sizes.
        symbols: The dimensions of the symbols in it, by name.
    """

    program: Program
    condition: Any
    symbols: Mapping[str, RequestedDim]


def join_captures(parts: Sequence[Part], requested: DynamicShapes) -> Program | None:
    """Makes a program that chooses among captures by the sizes of its inputs.

    Args:
        parts: The captures. The last one is for all sizes that the others are not for.
        requested: The request.

    Returns:
        The program, with the conditions of one of them; None if the captures cannot be joined:
        they name sizes differently, return other kinds of values, or have a constant that is not a
        tensor.
    """
    # First the one with the most sizes: another may have taken two of them to be equal.
    first, *others = sorted(
        (part.program for part in parts),
        key=lambda program: -len({str(size) for _, size in sizes_of(program, requested)}),
    )
    merges = [_find_merges(first, program, requested) for program in (first, *others)]
    inputs = _Inputs()
    results = _recorded_results(first)
    for program, merged in zip((first, *others), merges, strict=True):
        found = _recorded_results(program)
        if results is None or found is None or merged is None or not inputs.add(program):
            return None
        results = _merge_results(results, found, merged)
    if results is None:
        return None
    graph = torch.fx.Graph()
    nodes = inputs.add_placeholders(graph)
    joining = _Joining(parts, inputs, results)
    bodies = joining.choose(graph, nodes, 0)
    if bodies is None:
        return None
    program = copy_program(first)
    chosen = next(iter(reversed(graph.nodes))).args[0]
    set_graph_with_bodies(program, graph, bodies, inputs.constants)
    outputs = [
        OutputSpec(spec.kind, TensorArgument(node.name), spec.target)
        for spec, node in zip(first.graph_signature.output_specs, chosen, strict=True)
    ]
    set_graph_signature(program, ExportGraphSignature(list(inputs.specs.values()), outputs))
    return program


def _find_merges(
    program: Program, other: Program, requested: DynamicShapes
) -> dict[Any, Any] | None:
    """The sizes of another capture by those of this one, where it may have one for several.

    None if it names them otherwise.
    """
    merged: dict[Any, Any] = {}
    pairs = zip(sizes_of(program, requested), sizes_of(other, requested), strict=True)
    for (_, size), (_, taken) in pairs:
        if not isinstance(size, torch.SymInt) or not isinstance(taken, torch.SymInt):
            if str(size) != str(taken):
                return None
            continue
        symbol, expression = symbolic_expression(size), symbolic_expression(taken)
        if str(merged.setdefault(symbol, expression)) != str(expression):
            return None
    return merged if {*map(str, merged.values())} <= {*map(str, merged)} else None


class _Inputs:
    """The inputs of all captures: weights and constants, then those of the user.

    Attributes:
        nodes: A placeholder of one capture for each.
        specs: Their entries in the signature.
        constants: The constants of all captures, by name.
    """

    def __init__(self) -> None:
        self.nodes: dict[Key, torch.fx.Node] = {}
        self.specs: dict[Key, InputSpec] = {}
        self.constants: dict[str, Any] = {}
        self._keys: dict[torch.fx.Node, Key] = {}
        self._names: dict[Key, str] = {}

    def add(self, program: Program) -> bool:
        """Adds the inputs of a capture; False if it has one that cannot be an operand."""
        own = {name: self._name_constant(name, c) for name, c in program.constants.items()}
        if None in own.values():
            return False
        self.constants.update((str(own[name]), c) for name, c in program.constants.items())
        placeholders = (node for node in program.graph.nodes if node.op == "placeholder")
        position = 0
        for node, spec in zip(placeholders, program.graph_signature.input_specs, strict=True):
            key: Key = (spec.kind, own.get(str(spec.target), spec.target))
            if spec.kind == InputKind.USER_INPUT:
                key, position = (spec.kind, position), position + 1
            if spec.kind in (InputKind.CUSTOM_OBJ, InputKind.TOKEN):
                return False
            self._keys[node] = key
            if key not in self.nodes:
                name = self._find_name(node.name)
                self.nodes[key], self._names[key] = node, name
                self.specs[key] = dataclasses.replace(
                    spec,
                    arg=dataclasses.replace(spec.arg, name=name),
                    target=spec.target if spec.kind == InputKind.USER_INPUT else key[1],
                )
        # Weights that only a later capture uses come before the inputs of the user too.
        order = sorted(self.nodes, key=lambda key: key[0] == InputKind.USER_INPUT)
        self.nodes = {key: self.nodes[key] for key in order}
        self.specs = {key: self.specs[key] for key in order}
        return True

    def key(self, node: torch.fx.Node) -> Key:
        """The key of a placeholder."""
        return self._keys[node]

    def add_placeholders(
        self, graph: torch.fx.Graph, own: Mapping[Key, torch.fx.Node] | None = None
    ) -> dict[Key, torch.fx.Node]:
        """Adds a placeholder for each input to a graph.

        Args:
            graph: The graph.
            own: Placeholders of the capture that the graph is for, whose records it gets.
        """
        added = {}
        for key, node in self.nodes.items():
            added[key] = copy_node(graph, (own or {}).get(key, node), lambda n: n)
            added[key].name = added[key].target = self._names[key]
        return added

    def _find_name(self, name: str) -> str:
        while name in self._names.values():
            name += "_"
        return name

    def _name_constant(self, name: str, constant: Any) -> str | None:
        """A name under which no other constant is known; None if it is not a tensor."""
        if not isinstance(constant, torch.Tensor):
            return None
        while name in self.constants and not _is_same(self.constants[name], constant):
            name += "_"
        return name


def _is_same(constant: torch.Tensor, other: torch.Tensor) -> bool:
    if constant is other:
        return True
    if constant.dtype != other.dtype or constant.shape != other.shape:
        return False
    return torch.equal(constant, other)


class _Joining:
    """Builds the branches.

    Args:
        parts: The captures.
        inputs: The inputs of all.
        results: Recorded values of the results.
    """

    def __init__(self, parts: Sequence[Part], inputs: _Inputs, results: list[Any]) -> None:
        self._parts, self._inputs, self._results = parts, inputs, results

    def choose(
        self, graph: torch.fx.Graph, held: Mapping[Key, torch.fx.Node], start: int
    ) -> dict[str, torch.fx.GraphModule] | None:
        """Adds the choice among the captures from one on to a graph, and returns its bodies.

        Args:
            graph: The graph, which has nothing but its placeholders.
            held: The placeholder of each input.
            start: Position of the capture.
        """
        condition = self._record_condition(graph, held, self._parts[start])
        if condition is None:
            return None
        body = self._make_body(self._parts[start].program)
        other = self._make_other(start + 1)
        if other is None:
            return None
        bodies = {"right_for_sizes": body, "other_sizes": other}
        called = [graph.get_attr(name) for name in bodies]
        node = graph.call_function(
            higher_order.cond, (condition, *called, tuple(held[key] for key in self._inputs.nodes))
        )
        node.meta["val"] = tuple(self._results)
        graph.output(tuple(_read_items(graph, node)))
        return bodies

    def _make_other(self, start: int) -> torch.fx.GraphModule | None:
        if start == len(self._parts) - 1:
            return self._make_body(self._parts[start].program)
        graph = torch.fx.Graph()
        held = self._inputs.add_placeholders(graph)
        bodies = self.choose(graph, held, start)
        return None if bodies is None else make_body(graph, bodies)

    def _make_body(self, program: Program) -> torch.fx.GraphModule:
        """A capture as a function of the inputs of all."""
        graph = torch.fx.Graph()
        own = {self._inputs.key(n): n for n in program.graph.nodes if n.op == "placeholder"}
        held = self._inputs.add_placeholders(graph, own)
        copies = {node: held[key] for key, node in own.items()}
        for node in program.graph.nodes:
            if node.op != "placeholder":
                copies[node] = copy_node(graph, node, lambda n: copies[n])
        return make_body(graph, program.graph_module)

    def _record_condition(
        self, graph: torch.fx.Graph, held: Mapping[Key, torch.fx.Node], part: Part
    ) -> Any:
        """Adds the condition for a capture to a graph; None if it has an unknown operation."""
        mode = fake_mode_of([node.meta.get("val") for node in held.values()])
        if mode is None:
            return None
        symbols = {}
        for name, dim in part.symbols.items():
            node = held[InputKind.USER_INPUT, dim.leaf]
            if dim.axis is not None:
                size = node.meta["val"].shape[dim.axis]
                node = graph.call_function(aten.sym_size.int, (node, dim.axis))
                node.meta["val"] = size
            symbols[name] = node
        # Symbols of captures from 0 and from 1 on have the same names, and differ nevertheless.
        names = {str(symbol): symbol for symbol in part.condition.free_symbols}
        same = {
            names[n]: symbolic_expression(symbols[n].meta["val"]) for n in names if n in symbols
        }
        return record_expression(graph, part.condition.xreplace(same), symbols, mode.shape_env)


def _read_items(graph: torch.fx.Graph, node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    for position, value in enumerate(node.meta["val"]):
        item = graph.call_function(operator.getitem, (node, position))
        item.meta["val"] = value
        yield item


def _recorded_results(program: Program) -> list[Any] | None:
    """The fake tensors that a capture recorded for its results; None if it has other results."""
    found = []
    results = next(iter(reversed(program.graph.nodes))).args[0]
    for result, spec in zip(results, program.graph_signature.output_specs, strict=True):
        value = result.meta.get("val") if isinstance(result, torch.fx.Node) else None
        if not isinstance(value, torch.Tensor) or spec.kind != OutputKind.USER_OUTPUT:
            return None
        found.append(value)
    return found


def _is_same_size(size: Any, other: Any, merged: Mapping[Any, Any]) -> bool:
    if isinstance(size, torch.SymInt):
        return str(symbolic_expression(size).xreplace(merged)) == str(other)
    return str(size) == str(other)


def _merge_results(
    results: list[Any], others: list[Any], merged: Mapping[Any, Any]
) -> list[Any] | None:
    """The results of two captures; sizes that differ are new symbols. None for other kinds."""
    if len(results) != len(others):
        return None
    made = []
    for one, two in zip(results, others, strict=True):
        if one.dtype != two.dtype or one.dim() != two.dim():
            return None
        mode = fake_mode_of(one)
        if mode is None:
            return None
        sizes = [
            size if _is_same_size(size, other, merged) else new_symbol(mode, int)
            for size, other in zip(one.shape, two.shape, strict=True)
        ]
        with mode:  # memory of its own: later writes to an input do not change what a body returned
            made.append(torch.empty(sizes, dtype=one.dtype, device=one.device))
    return made
