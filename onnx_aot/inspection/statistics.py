"""Counts the contents of an ONNX model, and builds the tree of modules that it came from."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import onnx_ir as ir

from onnx_aot.inspection.scopes import scopes_of
from onnx_aot.inspection.weight_types import Storage, storage_of
from onnx_aot.metadata.keys import ORIGINAL_NAME, SIGNATURE

__all__ = ["Contents", "Module", "count_contents", "module_tree"]


@dataclasses.dataclass(frozen=True)
class Contents:
    """Counts and sizes of what a model contains.

    Attributes:
        opsets: Versions by domain; ONNX's own is ``""``.
        ir_version: Version of the file format.
        producer: Name and version of the program that wrote the model.
        nodes: Number of nodes, including those of branches, loop bodies and functions.
        operators: Number of nodes by operator, the most frequent first; operators outside of ONNX's
            own domain are named ``domain::type``.
        functions: Names of the local functions.
        weights: Number of tensors that the model holds; ``elements`` and ``bytes`` are totals.
        dtypes: Bytes of weights by type, the largest first.
        storage: A row per type of weights, with the bytes that they would take as float32.
    """

    opsets: Mapping[str, int]
    ir_version: int
    producer: str
    nodes: int
    operators: Mapping[str, int]
    functions: tuple[str, ...]
    weights: int
    elements: int
    bytes: int
    dtypes: Mapping[str, int]
    storage: tuple[Storage, ...]


@dataclasses.dataclass
class Module:
    """A module of the PyTorch model, with the numbers of its ONNX nodes and weight elements.

    Attributes:
        name: Its path, such as ``layers.0.self_attn``; "" for the model itself.
        kind: Qualified name of its class; "" if the file does not record it.
        nodes: Number of ONNX nodes that come from it and the modules in it.
        elements: Number of weight elements of it and the modules in it.
        children: The modules that it calls, in order, by path.
    """

    name: str
    kind: str
    nodes: int = 0
    elements: int = 0
    children: dict[str, Module] = dataclasses.field(default_factory=dict)

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Module]]:
        """Yields this module and all modules in it, each with its depth."""
        yield depth, self
        for child in self.children.values():
            yield from child.walk(depth + 1)


def count_contents(model: ir.Model) -> Contents:
    """Counts the contents of a model, without reading tensors."""
    operators = collections.Counter(
        f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in _nodes(model)
    )
    held = list(_weights(model).values())
    dtypes: collections.Counter[str] = collections.Counter()
    for tensor in held:
        dtypes[tensor.dtype.name] += tensor.nbytes
    return Contents(
        opsets=dict(model.opset_imports),
        ir_version=model.ir_version,
        producer=" ".join(filter(None, (model.producer_name, model.producer_version))),
        nodes=sum(operators.values()),
        operators=dict(operators.most_common()),
        functions=tuple(function.name for function in model.functions.values()),
        weights=len(held),
        elements=sum(tensor.size for tensor in held),
        bytes=sum(tensor.nbytes for tensor in held),
        dtypes=dict(dtypes.most_common()),
        storage=storage_of(model),
    )


def module_tree(model: ir.Model) -> Module:
    """Builds the tree of the modules in the nodes' metadata, each under the one that calls it.

    Nodes and weights count for the innermost known module, and for all modules around it.
    """
    root = Module("", "")
    by_name = {"": root}
    for node in _nodes(model):
        module, around = root, [root]
        for name, kind in scopes_of(node)[:-1]:  # the last one is the node
            if name == "":
                root.kind = kind
                continue
            module = module.children.setdefault(name, Module(name, kind))
            by_name.setdefault(name, module)
            around.append(module)
        for each in around:
            each.nodes += 1
    _add_weights(model, root, by_name)
    return root


def _add_weights(model: ir.Model, root: Module, by_name: Mapping[str, Module]) -> None:
    """Counts each weight in the module that holds it, and in the modules around that by name."""
    targets = _map_to_targets(model.graph)
    for name, tensor in _weights(model).items():
        root.elements += tensor.size
        parts = targets.get(name, name).split(".")
        for count in range(1, len(parts)):
            module = by_name.get(".".join(parts[:count]))
            if module is not None:
                module.elements += tensor.size


def _map_to_targets(graph: ir.Graph) -> dict[str, str]:
    """Names of weights in the PyTorch module, by their names in the graph, if these differ."""
    written = {}
    for line in graph.metadata_props.get(SIGNATURE, "").splitlines():
        name, found, target = line.partition(" target='")
        if found:
            written[name.partition(":")[0]] = target.partition("'")[0]
    return {
        str(value.name): written[original]
        for value in graph.initializers.values()
        if (original := value.metadata_props.get(ORIGINAL_NAME)) in written
    }


def _weights(model: ir.Model) -> dict[str, Any]:
    held = model.graph.initializers.items()
    return {name: value.const_value for name, value in held if value.const_value is not None}


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    yield from model.graph.all_nodes()
    for function in model.functions.values():
        yield from function.all_nodes()
