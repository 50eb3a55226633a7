"""Collects what a view shows of a model: boxes, values between them, weights, differences."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import onnx_ir as ir

from onnx_aot.inspection.scopes import Scope, inner_scopes, scopes_of
from onnx_aot.inspection.statistics import count_contents
from onnx_aot.inspection.view.descriptions import (
    attribute_text,
    dtype_text,
    formal_names,
    shape_of,
    small_text,
)
from onnx_aot.inspection.view.difference_table import Differences, find_worst
from onnx_aot.inspection.view.nesting import Nesting
from onnx_aot.inspection.view.tree import Edge, Item, arrange
from onnx_aot.inspection.view.weight_charts import Budget, constant_of, weight_statistics

__all__ = ["GraphData", "collect"]

MOST_ITEMS = 50_000
"""Calls of local functions are opened while there are fewer boxes: if each function calls another
twice, every level doubles their number."""

MOST_INPUTS = 10
"""More inputs, or outputs, of a model than this are put into a group."""

MOVES = {
    "Cast",
    "CastLike",
    "Concat",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "Pad",
    "Reshape",
    "Shape",
    "Size",
    "Slice",
    "Split",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
}
"""Operators that move or cast elements or work on shapes, and compute nothing else."""

Absent = Callable[[Any], bool]
_Environment = dict[int, int]


@dataclasses.dataclass(frozen=True)
class GraphData:
    """A model as a view shows it.

    Attributes:
        items: Every box, parents before children; the first is the model.
        edges: The values that go from one box to another.
        values: For each value ``name``, ``type`` and ``shape``; ``producer``, the number of an
            item; ``difference`` if it was compared; ``weight`` with a weight's statistics.
        summary: Operator sets, counts and metadata of the whole model.
        first: The item that computes the first deviating value; None if no value deviates.
    """

    items: list[Item]
    edges: list[Edge]
    values: list[dict[str, Any]]
    summary: dict[str, Any]
    first: Item | None = None


def collect(
    model: ir.Model, *, absent: Absent = lambda tensor: False, comparison: Any = None
) -> GraphData:
    """Collects what a view shows.

    Args:
        model: The model, which is not changed.
        absent: Returns True for a weight without values, which has only a type and a shape.
        comparison: The result of ``compare``, or None. The attributes ``onnx_value``, ``within``,
            ``origin``, ``max_absolute``, ``max_relative`` and ``remark`` of its rows are used.
    """
    differences = Differences(comparison)
    collector = _Collector(model, absent, differences)
    items = arrange(collector.walk_model())
    producers = collector.producers
    for number, producer in producers.items():
        collector.values[number]["producer"] = producer.number
    taken = [(number, item) for number, item in collector.takers if number in producers]
    edges = [Edge(producers[number], item, number) for number, item in taken]
    summary = _summarize_model(model, differences)
    return GraphData(items, edges, collector.values, summary, collector.first)


def _summarize_model(model: ir.Model, differences: Differences) -> dict[str, Any]:
    found = count_contents(model)
    return {
        "name": model.graph.name or "model",
        "producer": found.producer,
        "opsets": {domain or "ai.onnx": version for domain, version in found.opsets.items()},
        "nodes": found.nodes,
        "functions": len(found.functions),
        "weights": found.weights,
        "bytes": found.bytes,
        "metadata": {**model.metadata_props, **model.graph.metadata_props},
        "deviating": differences.deviating,
        "compared": differences.compared,
    }


class _Collector:
    """Walks a model once, and bodies and functions wherever they are used."""

    def __init__(self, model: ir.Model, absent: Absent, differences: Differences) -> None:
        self.values: list[dict[str, Any]] = []
        self.takers: list[tuple[int, Item]] = []
        self.producers: dict[int, Item] = {}
        self._differences = differences
        self.first: Item | None = None
        self._nesting = Nesting()
        self._model = model
        self._absent = absent
        self._budget = Budget()
        self._weights: dict[int, int] = {}  # and of constants, which calls of a function share
        self._count = 0
        self._calls = 0  # depth of function calls; names in functions are not the model's

    def walk_model(self) -> Item:
        graph = self._model.graph
        root = Item("module", graph.name or "model")
        known: _Environment = {}
        weights = set(graph.initializers)
        inputs = [value for value in graph.inputs if value.name not in weights]
        self._add_inputs(root, inputs, known, len(inputs) > MOST_INPUTS)
        self._walk(root, graph, known, ())
        self._add_outputs(root, graph.outputs, known, len(graph.outputs) > MOST_INPUTS)
        return root

    # --- graphs ----------------------------------------------------------------------------------

    def _add_inputs(
        self, group: Item, values: Iterable[ir.Value], known: _Environment, apart: bool = False
    ) -> None:
        items = []
        for value in values:
            item = Item("input", str(value.name), details={"metadata": dict(value.metadata_props)})
            number = self._add_value(value, known)
            self.producers[number] = item
            item.details["outputs"] = [["", number]]
            items.append(item)
        together = [Item("part", f"{len(items)} inputs", children=items)] if apart else items
        group.children += together

    def _add_outputs(
        self, group: Item, values: Sequence[ir.Value], known: _Environment, apart: bool = False
    ) -> None:
        items = []
        for value in values:
            item = Item("output", str(value.name), details={"metadata": dict(value.metadata_props)})
            item.details["inputs"] = [["", self._add_reader(value, item, known)]]
            items.append(item)
        together = [Item("part", f"{len(items)} outputs", children=items)] if apart else items
        group.children += together

    def _walk(
        self, group: Item, nodes: Iterable[ir.Node], known: _Environment, outer: Sequence[Scope]
    ) -> None:
        """Adds nodes to a group, each in its modules except ``outer``, those around the group."""
        for node in nodes:
            if node.op_type == "Constant" and constant_of(node.outputs[0]) is not None:
                continue
            scopes = [scope for scope in scopes_of(node) if scope.path]  # without the model itself
            sources = self._find_sources(node, known)
            module = self._nesting.find_box(group, inner_scopes(scopes[:-1], outer), sources)
            item = Item("node", node.op_type, path=scopes[-2].path if scopes[1:] else "")
            self._nesting.add(module, item, sources)
            self._fill(item, node, known, scopes)

    def _find_sources(self, node: ir.Node, known: _Environment) -> list[Item]:
        numbers = [known.get(id(value)) for value in node.inputs]
        return [self.producers[n] for n in numbers if n is not None and n in self.producers]

    def _fill(
        self, item: Item, node: ir.Node, known: _Environment, scopes: Sequence[Scope]
    ) -> None:
        """Describes a node, and adds the contents of its function or bodies."""
        self._count += 1
        function = self._model.functions.get(node.op_identifier())
        opened = function is not None and self._count < MOST_ITEMS
        taken = [
            None if value is None else self._add_reader(value, None if opened else item, known)
            for value in node.inputs
        ]
        if function is not None and opened:
            item.kind, item.title = "function", function.name
            item.subtitle = item.path = scopes[-1].path if scopes else ""
            self._walk_function(item, function, node, taken, known)
        made = [self._add_value(value, known) for value in node.outputs]
        for number in made:
            self.producers.setdefault(number, item)
        self._describe(item, node, taken, made)
        self._walk_bodies(item, node, known, scopes)

    def _walk_function(
        self,
        item: Item,
        function: ir.Function,
        call: ir.Node,
        taken: Sequence[int | None],
        known: _Environment,
    ) -> None:
        """Walks a function with the values of its call, so that edges lead into and out of it."""
        inner: _Environment = {
            id(formal): number
            for formal, number in zip(function.inputs, taken, strict=False)
            if number is not None
        }
        for formal, result in zip(function.outputs, call.outputs, strict=False):
            number = inner.get(id(formal))
            if number is None:
                number = inner[id(formal)] = self._add_value(result, known)
            known[id(result)] = number
        self._calls += 1
        self._walk(item, function, inner, ())
        self._calls -= 1

    def _walk_bodies(
        self, item: Item, node: ir.Node, known: _Environment, scopes: Sequence[Scope]
    ) -> None:
        for name, attribute in node.attributes.items():
            graphs: Sequence[ir.Graph] = ()
            if not attribute.is_ref() and attribute.type == ir.AttributeType.GRAPH:
                graphs = (attribute.as_graph(),)
            elif not attribute.is_ref() and attribute.type == ir.AttributeType.GRAPHS:
                graphs = attribute.as_graphs()
            for graph in graphs:
                body = Item("body", name, path=item.path)
                self._nesting.add(item, body)
                self._add_inputs(body, graph.inputs, known)
                self._walk(body, graph, known, scopes)
                self._add_outputs(body, graph.outputs, known)

    # --- values ----------------------------------------------------------------------------------

    def _add_value(self, value: ir.Value, known: _Environment) -> int:
        found = known.get(id(value))
        if found is None:
            found = known[id(value)] = len(self.values)
            entry: dict[str, Any] = {"name": str(value.name), "type": dtype_text(value.dtype)}
            entry["shape"] = shape_of(value.shape)
            if not self._calls and (row := self._differences.describe_value(str(value.name))):
                entry["difference"] = row
            self.values.append(entry)
        return found

    def _add_reader(self, value: ir.Value, item: Item | None, known: _Environment) -> int:
        """Returns the number of a value or weight that a node takes.

        ``item`` is None for calls of opened functions: the nodes in these take the value.
        """
        if id(value) not in known:
            tensor = constant_of(value)
            if tensor is not None:
                return self._add_weight(value, tensor)
        number = self._add_value(value, known)
        if item is not None:
            self.takers.append((number, item))
        return number

    def _add_weight(self, value: ir.Value, tensor: ir.TensorProtocol) -> int:
        found = self._weights.get(id(value))
        if found is not None:
            return found
        number = self._weights[id(value)] = len(self.values)
        entry: dict[str, Any] = {"bytes": tensor.nbytes}
        if self._absent(tensor):
            entry["absent"] = True
        else:
            entry["text"] = small_text(tensor)
            if entry["text"] is None:
                statistics = weight_statistics(tensor, self._budget)
                entry["statistics"] = None if statistics is None else statistics.to_json()
        described = {"type": dtype_text(tensor.dtype), "shape": list(tensor.shape.numpy())}
        self.values.append({"name": str(value.name), **described, "weight": entry})
        return number

    def _describe(
        self, item: Item, node: ir.Node, taken: Sequence[int | None], made: Sequence[int]
    ) -> None:
        """Sets the details that the panel shows of a node, and the family that sets its color."""
        names = formal_names(node, self._model.opset_imports.get(node.domain))
        weights = [n for n in taken if n is not None and "weight" in self.values[n]]
        large = [n for n in weights if self.values[n]["weight"].get("text") is None]
        kind = "weights" if large else "moves" if node.op_type in MOVES else ""
        item.details |= {
            "name": node.name or "",
            "operator": node.op_type,
            "domain": node.domain or "ai.onnx",
            "overload": node.overload,
            "attributes": {a.name: attribute_text(a) for a in node.attributes.values()},
            "inputs": [[f, n] for f, n in zip(names[0], taken, strict=True)],
            "outputs": [[f, n] for f, n in zip(names[1], made, strict=True)],
            "metadata": dict(node.metadata_props),
            "family": kind,
        }
        if item.kind == "function":
            return  # its inner nodes have the verdicts
        rows = [self.values[n]["difference"] for n in made if "difference" in self.values[n]]
        item.difference = find_worst(row["verdict"] for row in rows)
        if self.first is None and any(row["first"] for row in rows):
            self.first = item
