"""Describes a model's inputs and outputs, and relates its names to those of the PyTorch module."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

import onnx_ir as ir
import torch

from onnx_aot import dtypes
from onnx_aot.errors import InvalidOptionError
from onnx_aot.metadata.keys import COMPLEX, DIMENSIONS, ORIGINAL_NAME

__all__ = ["NameTable", "ValueSummary", "name_table", "rename_axes", "summarize_value"]


@dataclasses.dataclass(frozen=True)
class ValueSummary:
    """An input or output of the model.

    Attributes:
        name: Its name in the graph.
        dtype: Type of its elements; None if torch does not have it. Complex values have their
            complex type here, although the model holds their parts.
        shape: Its sizes, as numbers and names; None if the rank is not known.
        role: ``"input"`` or ``"output"`` of the model; ``"state"`` or ``"weight"`` for an input
            that the program feeds by itself.
    """

    name: str
    dtype: torch.dtype | None
    shape: tuple[int | str | None, ...] | None
    role: str

    def __str__(self) -> str:
        shape = "[?]" if self.shape is None else f"[{', '.join(map(str, self.shape))}]"
        kind = "?" if self.dtype is None else str(self.dtype).removeprefix("torch.")
        return f"{self.name}: {kind}{shape}"


@dataclasses.dataclass(frozen=True)
class NameTable:
    """Names in the PyTorch module and its captured graph, with their names in the ONNX graph.

    Attributes:
        parameters: Names of initializers and inputs, keyed by names of the module's parameters and
            buffers; tied weights share one.
        values: Names of values, keyed by names of nodes of the captured graph.
    """

    parameters: Mapping[str, str]
    values: Mapping[str, str]

    def to_onnx(self, name: str) -> str:
        """Returns the ONNX name of a parameter, or else of a captured node.

        Raises:
            InvalidOptionError: The model has no value for it; it may have been folded or removed.
        """
        found = self.parameters.get(name) or self.values.get(name)
        if found is None:
            raise InvalidOptionError(
                f"the model has no value for {name!r} of the PyTorch module", code="OA014"
            )
        return found

    def to_torch(self, name: str) -> list[str]:
        """Returns the PyTorch names of an ONNX name; several if weights are tied.

        Raises:
            InvalidOptionError: PyTorch has no name for it, as for steps within an operator.
        """
        found = [n for n, onnx_name in self.parameters.items() if onnx_name == name]
        found = found or [n for n, onnx_name in self.values.items() if onnx_name == name]
        if not found:
            raise InvalidOptionError(
                f"nothing in the PyTorch module corresponds to {name!r}", code="OA014"
            )
        return found


def summarize_value(value: ir.Value, role: str) -> ValueSummary:
    """Describes an input or output of the graph."""
    shape = value.shape
    sizes = None if shape is None else tuple(s if isinstance(s, int) else s.value for s in shape)
    written = value.metadata_props.get(COMPLEX)
    if written is not None:
        sizes = None if sizes is None else sizes[:-1]
        return ValueSummary(str(value.name), getattr(torch, written), sizes, role)
    try:
        dtype = None if value.dtype is None else dtypes.to_torch(value.dtype)
    except TypeError:
        dtype = None
    return ValueSummary(str(value.name), dtype, sizes, role)


def name_table(
    graph: ir.Graph,
    program: torch.export.ExportedProgram | None,
    weights: Mapping[str, ir.Value],
) -> NameTable:
    """Builds the table of the names in a graph.

    Args:
        graph: The main graph.
        program: The captured program; None if the model was loaded from a file.
        weights: Parameters and buffers by their names in the module.
    """
    captured = None if program is None else {node.name for node in program.graph.nodes}
    present = [*graph.inputs, *(output for node in graph for output in node.outputs)]
    held = {id(value) for value in weights.values()}
    values = {}
    for value in present:
        name = value.metadata_props.get(ORIGINAL_NAME, str(value.name))
        if id(value) not in held and (captured is None or name in captured):
            values[name] = str(value.name)
    known = {*graph.initializers, *(value.name for value in graph.inputs)}
    parameters = {n: str(value.name) for n, value in weights.items() if value.name in known}
    return NameTable(parameters, values)


def rename_axes(model: ir.Model, names: Mapping[str, str]) -> None:
    """Renames dimensions everywhere, also within expressions such as ``2*seq + 1``.

    Raises:
        InvalidOptionError: A new name is not an identifier or is in use, or the model has no
            dimension of an old name.
    """
    graphs: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    values = [
        value
        for graph in graphs
        for node in ir.traversal.RecursiveGraphIterator(graph)
        for value in (*node.inputs, *node.outputs)
        if value is not None
    ]
    values = list({id(v): v for v in [*model.graph.inputs, *model.graph.outputs, *values]}.values())
    word = re.compile(r"[^\W\d]\w*")
    sizes = {s.value for v in values for s in v.shape or () if isinstance(s, ir.SymbolicDim)}
    used = {name for size in sizes if size for name in word.findall(size)}
    for old, new in names.items():
        if old not in used:
            raise InvalidOptionError(
                f"there is no dimension {old!r}; there are {', '.join(sorted(used)) or 'none'}",
                code="OA014",
            )
        if not str(new).isidentifier() or (new in used and new not in names):
            raise InvalidOptionError(
                f"a dimension cannot be called {new!r}; take another name", code="OA014"
            )

    def rename_terms(text: str) -> str:
        return word.sub(lambda found: names.get(found[0], found[0]), text)

    for value in values:
        if value.shape is not None:
            value.shape = ir.Shape(
                [
                    rename_terms(size.value)
                    if isinstance(size, ir.SymbolicDim) and size.value
                    else size
                    for size in value.shape
                ]
            )
    written = model.graph.metadata_props.get(DIMENSIONS)
    if written is not None:
        model.graph.metadata_props[DIMENSIONS] = rename_terms(written)
