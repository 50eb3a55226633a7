"""Determines sizes of a model without a captured program, from its declared dimension names."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch

from onnx_aot.dimensions import conditions
from onnx_aot.inspection.resized_inputs import SizedInputs
from onnx_aot.metadata.keys import DIMENSIONS
from onnx_aot.pytrees.containers import wrap_constants
from onnx_aot.torch_compat import pytree

__all__ = ["DeclaredInputs"]

NUMBERS = (int, float, bool)
WORD = re.compile(r"[^\W\d]\w*")


@dataclasses.dataclass(frozen=True)
class DeclaredInputs(SizedInputs):
    """The inputs of a model as its file declares them, with the ranges in its metadata.

    Attributes:
        args: Positional inputs, and ``kwargs`` keyword inputs, in the order of the graph's inputs.
        declared: The graph's input of each leaf; None for constants.
        example: Sizes of the example inputs, by name.
        known: The metadata about dimensions.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    declared: tuple[ir.Value | None, ...]
    example: dict[str, int]
    known: Mapping[str, Any]

    @classmethod
    def from_graph(
        cls, graph: ir.Graph, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> DeclaredInputs | None:
        """Matches inputs with the graph's; None if they do not fit or a name has no dimension."""
        leaves = pytree.tree_leaves(wrap_constants((tuple(args), dict(kwargs))))
        variable = [isinstance(leaf, (torch.Tensor, *NUMBERS)) for leaf in leaves]
        if sum(variable) != len(graph.inputs):
            return None
        values = iter(graph.inputs)
        declared = tuple(next(values) if varies else None for varies in variable)
        example: dict[str, int] = {}
        words: set[str] = set()
        for leaf, value in zip(leaves, declared, strict=True):
            for axis, size in enumerate(_dimensions_of(value)):
                if not isinstance(leaf, torch.Tensor) or axis >= leaf.dim():
                    return None
                if isinstance(size, str):
                    words |= set(WORD.findall(size))
                    if size.isidentifier():
                        example[size] = leaf.shape[axis]
        if words - example.keys():
            return None
        text = graph.metadata_props.get(DIMENSIONS)
        known: dict[str, Any] = {"dimensions": {}, "relations": [], "conditions": []}
        known |= json.loads(text) if text else {}
        return cls(tuple(args), dict(kwargs), declared, example, known)

    def sizes(self) -> dict[str, int]:
        """Sizes of the example, in the order in which the inputs name them."""
        return dict(self.example)

    def minima(self) -> dict[str, int]:
        """The smallest sizes that the capture found, as kept in the metadata."""
        limits = self.known["dimensions"]
        return {name: limits.get(name, {}).get("min", 0) for name in self.example}

    def accepts_sizes(self, sizes: dict[str, int]) -> bool:
        """True if the ranges, relations and conditions in the metadata hold."""
        for name, limits in self.known["dimensions"].items():
            size = sizes.get(name, limits.get("min", 0))
            if not limits.get("min", 0) <= size <= limits.get("max", size):
                return False
        terms: dict[str, int] = {}
        for value, shape in zip(self.declared, self.shapes_at(sizes), strict=True):
            if value is None or shape is None:
                continue
            if any(size < 0 for size in shape):
                return False
            terms |= {f"{value.name}.shape[{axis}]": size for axis, size in enumerate(shape)}
        return all(
            conditions.holds(condition, terms) is not False
            for condition in (*self.known["relations"], *self.known["conditions"])
        )

    def shapes_at(self, sizes: dict[str, int]) -> list[Any]:
        """Declared shape of each leaf, with names replaced by numbers; None if not a tensor."""
        leaves = pytree.tree_leaves(wrap_constants((self.args, self.kwargs)))
        return [
            None
            if value is None or not isinstance(leaf, torch.Tensor)
            else tuple(
                _evaluate_size(declared, sizes, leaf.shape[axis])
                for axis, declared in enumerate(_dimensions_of(value))
            )
            for leaf, value in zip(leaves, self.declared, strict=True)
        ]


def _dimensions_of(value: ir.Value | None) -> list[int | str | None]:
    shape = None if value is None else value.shape
    return [size if isinstance(size, int) else size.value for size in shape or ()]


def _evaluate_size(declared: int | str | None, sizes: Mapping[str, int], otherwise: int) -> int:
    """A declared size as a number; one without a name stays as it is in the example."""
    if not isinstance(declared, str):
        return otherwise
    names, numbers = list(sizes), list(sizes.values())
    tree = conditions.parse(declared, names)
    return int(conditions.Interpreter(lambda index: numbers[index]).evaluate(tree))
