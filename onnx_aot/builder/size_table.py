"""Tracks sizes: unknown ones, arithmetic on known ones, and vectors of sizes.

A dimension that cannot be inferred when a value is made gets a unique name such as ``?7``; no other
name starts with that character. If it appears in a result, it is replaced in every value by the
size that the capture recorded there. Sizes still unknown at the end are named after the first value
that has them.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import onnx_ir as ir

if TYPE_CHECKING:
    import torch

__all__ = ["UNKNOWN", "Algebra", "Dimension", "Op", "SizeTable"]

Dimension = int | ir.SymbolicDim

UNKNOWN = ir.SymbolicDim(None)
"""Unknown size, for translations that set the shape of a value themselves."""

LONGEST = 64
"""Vectors of more sizes than this are not tracked; no shape is as long."""

_COMPUTE: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "max": max,
    "min": min,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
}
_NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "floordiv": 1}
_ARITHMETIC = {
    "Add": "add",
    "Div": "floordiv",
    "Max": "max",
    "Min": "min",
    "Mod": "mod",
    "Mul": "mul",
    "Sub": "sub",
}
_SAME_ELEMENTS = frozenset({"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


class Algebra(Protocol):
    """Arithmetic on the sizes that the capture recorded."""

    def combine(self, function: str, *operands: Dimension) -> Dimension | None:
        """Computes a size from others; None if one of them is not recorded."""

    def at_least(self, dimension: Dimension, number: int) -> bool:
        """True if a size is known never to be smaller than a number."""

    def text(self, expression: Any) -> str:
        """Formats an expression or condition with the user's names."""


class Op(Protocol):
    """The part of the builder that shape rules use."""

    def literal(self, value: Any) -> torch.Tensor | None:
        """Returns the contents of a constant, or None."""

    def contents(self, value: ir.Value | None) -> list[Dimension] | None:
        """Returns the elements of a vector of sizes, or None."""

    def fresh(self) -> ir.SymbolicDim:
        """Returns a new unknown size."""

    def combine(self, function: str, left: Dimension, right: Dimension) -> Dimension:
        """Computes a size from two others."""

    def at_least(self, size: Dimension, number: int) -> bool:
        """True if a size is known never to be smaller than a number."""


class SizeTable:
    """Sizes that values hold, and unknown sizes with their replacements once these are known.

    Args:
        literal: Returns the contents of a constant, or None for any other value.

    Attributes:
        algebra: Arithmetic on recorded sizes; None if there are none.
        values: 0-d INT64 values that hold a dimension, by its name.
        sources: Graph inputs that carry a dimension, with the axis, by its name.
    """

    def __init__(self, literal: Callable[[Any], torch.Tensor | None]) -> None:
        self.algebra: Algebra | None = None
        self.values: dict[str, ir.Value] = {}
        self.sources: dict[str, tuple[ir.Value, int]] = {}
        self._literal = literal
        self._fresh = 0
        self._bound: dict[str, Dimension] = {}
        self._carriers: dict[str, list[ir.Value]] = {}
        self._contents: dict[ir.Value, list[Dimension]] = {}
        self._combined: dict[tuple[str, Dimension, Dimension], Dimension] = {}

    def copy(self) -> SizeTable:
        """Returns an independent copy."""
        other = copy.copy(self)
        other.values, other.sources = dict(self.values), dict(self.sources)
        other._bound, other._combined = dict(self._bound), dict(self._combined)
        other._carriers = {name: list(values) for name, values in self._carriers.items()}
        other._contents = dict(self._contents)
        return other

    def remember(self, name: str, value: ir.Value) -> None:
        """Records that a 0-d INT64 value holds the dimension of this name."""
        self.values.setdefault(name, value)
        self._contents.setdefault(value, [ir.SymbolicDim(name)])

    # --- unknown sizes ---------------------------------------------------------------------------

    def fresh(self) -> ir.SymbolicDim:
        """Returns a new unknown size."""
        self._fresh += 1
        return ir.SymbolicDim(f"?{self._fresh}")

    @staticmethod
    def is_unknown(size: Dimension) -> bool:
        """True if nothing is known about a size yet."""
        return not isinstance(size, int) and (size.value is None or _is_fresh(size))

    def carry(self, value: ir.Value) -> None:
        """Records the unknown sizes of a value, so that they can be replaced once known."""
        if not self._fresh or value.shape is None:
            return
        for size in value.shape.dims:
            if not isinstance(size, int) and _is_fresh(size):
                self._carriers.setdefault(str(size.value), []).append(value)

    def learn(self, made: ir.Shape, recorded: ir.Shape) -> None:
        """Replaces unknown sizes of an inferred shape by the sizes that the capture recorded."""
        if not self._fresh:
            return
        for size, known in zip(made.dims, recorded.dims, strict=True):
            if not isinstance(size, int) and _is_fresh(size) and size != known:
                self._bind(str(size.value), known)

    def _bind(self, name: str, known: Dimension) -> None:
        if name in self._bound:
            return
        self._bound[name] = known
        for value in self._carriers.pop(name, ()):
            assert value.shape is not None
            value.shape = ir.Shape([known if size == name else size for size in value.shape.dims])
            self.carry(value)
        if name in self.values and not isinstance(known, int):
            self.values.setdefault(str(known.value), self.values[name])

    def resolve(self, size: Dimension) -> Dimension:
        """Returns the size, or its replacement if it has become known."""
        while not isinstance(size, int) and size.value in self._bound:
            size = self._bound[size.value]
        return size

    def name_unknown(self, nodes: Iterable[ir.Node], unique: Callable[[str], str]) -> None:
        """Names the sizes of the nodes' values that stayed unknown ``<value>_dim_<axis>``."""
        if not self._fresh:
            return
        names: dict[str, Dimension] = {}

        def finalize_size(size: Dimension, value: ir.Value, axis: int) -> Dimension:
            size = self.resolve(size)
            if isinstance(size, int) or not _is_fresh(size):
                return size
            if str(size.value) not in names:
                names[str(size.value)] = ir.SymbolicDim(unique(f"{value.name}_dim_{axis}"))
            return names[str(size.value)]

        for value in _iterate_values(nodes):
            shape = value.shape
            if shape is not None and any(not isinstance(s, int) and _is_fresh(s) for s in shape):
                value.shape = ir.Shape(
                    [finalize_size(s, value, axis) for axis, s in enumerate(shape.dims)]
                )

    # --- arithmetic ------------------------------------------------------------------------------

    def combine(self, function: str, left: Dimension, right: Dimension) -> Dimension:
        """Computes a size from two others: ``add``, ``sub``, ``mul``, ``max``, ``floordiv``, ..."""
        if isinstance(left, int) and isinstance(right, int):
            return _COMPUTE[function](left, right)
        if right == _NEUTRAL.get(function):
            return left
        if left == _NEUTRAL.get(function) and function in ("add", "mul"):
            return right
        if function in ("max", "min") and left == right:
            return left
        key = (function, left, right)
        known = self._combined.get(key)
        if known is None:
            known = self.algebra.combine(function, left, right) if self.algebra else None
            known = self._combined[key] = self.fresh() if known is None else known
        return self.resolve(known)

    def at_least(self, size: Dimension, number: int) -> bool:
        """True if a size is known never to be smaller than a number."""
        if isinstance(size, int):
            return size >= number
        return self.algebra is not None and self.algebra.at_least(size, number)

    # --- vectors of sizes ------------------------------------------------------------------------

    def contents(self, value: ir.Value | None) -> list[Dimension] | None:
        """Returns the elements of a 0-d or 1-d integer value as sizes, or None for other values."""
        if value is None:
            return None
        known = self._contents.get(value)
        if known is None:
            known = self._read_elements(value)
            if known is None:
                return None
            self._contents[value] = known
        return [self.resolve(size) for size in known]

    def _read_elements(self, value: ir.Value) -> list[Dimension] | None:
        literal = self._literal(value)
        if literal is not None:
            if literal.is_floating_point() or literal.ndim > 1 or literal.numel() > LONGEST:
                return None
            return [int(number) for number in literal.flatten()]
        if value.dtype not in (ir.DataType.INT64, ir.DataType.INT32) or value.shape is None:
            return None
        if len(value.shape) > 1:
            return None
        count = value.shape[0] if len(value.shape) else 1
        if not isinstance(count, int) or count > LONGEST:
            return None
        node = value.producer()
        found = self._of_node(node) if node is not None and not node.domain else None
        if found is not None and len(found) == count:
            return found
        made: list[Dimension] = [self.fresh() for _ in range(count)]
        if not len(value.shape) and value.dtype == ir.DataType.INT64:
            self.values[str(made[0].value)] = value  # type: ignore[union-attr]
        return made

    def _of_node(self, node: ir.Node) -> list[Dimension] | None:
        kind, inputs = node.op_type, node.inputs
        first = inputs[0] if inputs else None
        if kind == "Shape":
            if first is None or first.shape is None:
                return None
            start, end = (node.attributes.get(name) for name in ("start", "end"))
            last = None if end is None else end.as_int()
            dims = first.shape.dims[0 if start is None else start.as_int() : last]
            return [size if size != UNKNOWN else self.fresh() for size in dims]
        if kind in _SAME_ELEMENTS:
            return self.contents(first)
        if kind == "Concat":
            parts = [self.contents(part) for part in inputs]
            return [size for part in parts if part is not None for size in part]
        if kind in _ARITHMETIC and len(inputs) == 2:
            return self._compute_elementwise(kind, self.contents(first), self.contents(inputs[1]))
        if kind in ("Gather", "Slice"):
            return self._select_elements(node)
        return None

    def _compute_elementwise(
        self, kind: str, left: list[Dimension] | None, right: list[Dimension] | None
    ) -> list[Dimension] | None:
        """Computes sizes elementwise; Div and Mod only where they agree with Python's."""
        if left is None or right is None or len(left) != len(right):
            return None
        if kind in ("Div", "Mod"):
            usual = all(self.at_least(size, 0) for size in left)
            if not usual or not all(self.at_least(size, 1) for size in right):
                return None
        pairs = zip(left, right, strict=True)
        return [self.combine(_ARITHMETIC[kind], one, two) for one, two in pairs]

    def _select_elements(self, node: ir.Node) -> list[Dimension] | None:
        """Returns the elements of a vector of sizes at constant positions."""
        elements = self.contents(node.inputs[0])
        positions = [self._literal(value) for value in node.inputs[1:]]
        if elements is None or any(position is None for position in positions):
            return None
        numbers = [p.flatten().tolist() for p in positions if p is not None]
        if node.op_type == "Gather":
            return [elements[number] for number in numbers[0]]
        step = numbers[3][0] if len(numbers) > 3 else 1
        return elements[numbers[0][0] : numbers[1][0] : step]


def _is_fresh(size: ir.SymbolicDim) -> bool:
    return size.value is not None and size.value[0] == "?"


def _iterate_values(nodes: Iterable[ir.Node]) -> Iterator[ir.Value]:
    for node in nodes:
        yield from node.outputs
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                graph = attribute.as_graph()
                yield from graph.inputs
                yield from _iterate_values(graph)
