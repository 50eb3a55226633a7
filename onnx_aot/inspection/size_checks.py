"""Chooses other sizes that a program was exported for, and makes inputs of these sizes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind

from onnx_aot.dimensions.conditions import fulfils_condition
from onnx_aot.inspection.declared_sizes import DeclaredInputs
from onnx_aot.inspection.resized_inputs import Sample, SizedInputs
from onnx_aot.metadata.keys import CHECK
from onnx_aot.pytrees.containers import wrap_constants
from onnx_aot.pytrees.structures import input_structure
from onnx_aot.torch_compat import (
    pytree,
    size_conditions,
    symbolic_expression,
)

__all__ = ["Sample", "flat_inputs", "other_sizes", "sizes_of"]

SEARCH_LIMIT = 1 << 16
"""Values below this are tried for the symbol of a dimension such as ``2*n + 1``."""

Assignment = dict[Any, int]
"""Values of the capture's symbols."""


def sizes_of(program: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, int]:
    """Sizes of the dynamic dimensions of an ``ONNXProgram`` in given inputs, by name."""
    inputs = _make_sized_inputs(program, args, kwargs)
    return {} if inputs is None else inputs.sizes()


def other_sizes(program: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sample, ...]:
    """Makes inputs of a few sizes other than the example's.

    All dimensions vary together: each at its minimum, all 1, different odd numbers, each half as
    large again as in the example, and alternately 1 and larger. Dimensions with the same symbol
    stay equal, and derived ones follow. If sizes violate the ranges or the guards of the capture,
    the nearest sizes that satisfy them are used. Elements are the example's, repeated or left out
    along an axis, so that indices and masks stay valid.

    Args:
        program: An ``ONNXProgram``.
        args: Example positional inputs.
        kwargs: Example keyword inputs.

    Returns:
        At most five; none for a model without dynamic dimensions, or for inputs whose structure
        differs from the captured ones.
    """
    inputs = _make_sized_inputs(program, args, kwargs)
    return () if inputs is None else inputs.make_samples()


def _make_sized_inputs(
    program: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> SizedInputs | None:
    """Inputs with sizes from the captured program or the ONNX model; None if they do not fit."""
    if program.exported_program is None:
        return DeclaredInputs.from_graph(program.model.graph, args, kwargs)
    return _Captured.from_program(program, args, kwargs)


def flat_inputs(
    captured: torch.export.ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[tuple[str, Any]] | None:
    """Every leaf of the inputs with its name in the captured graph; None if they do not fit.

    Constants have an empty name.
    """
    specs = [
        spec for spec in captured.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT
    ]
    held = wrap_constants((tuple(args), _in_order(captured, kwargs)))
    leaves = pytree.tree_leaves(held)
    if len(leaves) != len(specs):
        return None
    names = ["" if isinstance(spec.arg, ConstantArgument) else spec.arg.name for spec in specs]
    return list(zip(names, leaves, strict=True))


def _in_order(captured: torch.export.ExportedProgram, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword inputs in the order in which they were captured."""
    structure = input_structure(captured)
    order = list(structure.children()[1].context or ()) if structure is not None else []
    return {name: kwargs[name] for name in (*order, *kwargs) if name in kwargs}


@dataclasses.dataclass(frozen=True)
class _Captured(SizedInputs):
    """The inputs of a program that was captured.

    Attributes:
        captured: The captured program.
        args: Positional inputs, and ``kwargs`` keyword inputs in the captured order.
        shapes: For each leaf, its dimensions as numbers and sympy expressions, or the expression of
            an input that is a number; None for constants.
        example: Values of the symbols in the inputs.
        names: Names of the symbols in the ONNX model; symbols with the same name have one size.
        checked: Whether the ONNX model refuses sizes that violate the conditions.
    """

    captured: torch.export.ExportedProgram
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shapes: tuple[Any, ...]
    example: Assignment
    names: dict[Any, str]
    checked: bool

    @classmethod
    def from_program(
        cls, program: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> _Captured | None:
        captured = program.exported_program
        found = None if captured is None else flat_inputs(captured, args, kwargs)
        if found is None:
            return None
        recorded = {n.name: n.meta.get("val") for n in captured.graph.nodes}
        shapes = tuple(_symbolic_shape(recorded.get(name)) for name, _ in found)
        example = _solve_symbols(shapes, [leaf for _, leaf in found])
        if example is None:
            return None
        declared = iter(program.model.graph.inputs)
        names: dict[Any, str] = {}
        for (name, _), shape in zip(found, shapes, strict=True):
            value = next(declared, None) if name else None
            if value is not None:
                names = _name_symbols(value, shape) | names
        names = {symbol: names.get(symbol, str(symbol)) for symbol in example}
        checked = any(str(node.name).startswith(CHECK) for node in program.model.graph)
        given = (tuple(args), _in_order(captured, kwargs))
        return cls(captured, *given, shapes, example, names, checked)

    def sizes(self) -> dict[str, int]:
        """Sizes of the example, by name."""
        return {self.names[symbol]: size for symbol, size in self.example.items()}

    def minima(self) -> dict[str, int]:
        """Minimum of each name; the largest one if several symbols have the name."""
        found = dict.fromkeys(self.sizes(), 0)
        for symbol in self.example:
            limits = self.captured.range_constraints.get(symbol)
            lower = getattr(limits, "lower", 0)
            least = max(int(lower), 0) if getattr(lower, "is_finite", True) else 0
            found[self.names[symbol]] = max(found[self.names[symbol]], least)
        return found

    def _assign_sizes(self, sizes: Mapping[str, int]) -> Assignment:
        return {symbol: sizes[self.names[symbol]] for symbol in self.example}

    def accepts_sizes(self, sizes: dict[str, int]) -> bool:
        """True if the ranges hold, and the conditions of the capture except those on size 1.

        Models have shortcuts for one element, which must give the same answer. A size of 1 may
        therefore violate conditions that 2 and 3 satisfy, unless the ONNX model checks them.
        """
        if not self._in_range(sizes):
            return False
        if self._conditions_hold(sizes):
            return True
        if self.checked or 1 not in sizes.values():
            return False
        larger = ({name: n if n != 1 else other for name, n in sizes.items()} for other in (2, 3))
        return all(self._in_range(others) and self._conditions_hold(others) for others in larger)

    def _in_range(self, sizes: dict[str, int]) -> bool:
        assignment = self._assign_sizes(sizes)
        for expression, limits in self.captured.range_constraints.items():
            if expression.free_symbols <= assignment.keys():
                value = _evaluate_size(expression, assignment)
                if not (limits.lower <= value <= limits.upper):
                    return False
        shapes = (shape for shape in self.shapes_at(sizes) if isinstance(shape, tuple))
        return all(size >= 0 for shape in shapes for size in shape)

    def _conditions_hold(self, sizes: dict[str, int]) -> bool:
        conditions = size_conditions(self.captured)
        if not conditions:
            return True
        arguments = self._stand_ins(self.shapes_at(sizes))
        return all(fulfils_condition(condition, arguments) is not False for condition in conditions)

    def shapes_at(self, sizes: dict[str, int]) -> list[Any]:
        """Shape of each leaf, from the expressions that the capture recorded."""
        assignment = self._assign_sizes(sizes)
        return [self._evaluate_shape(shape, assignment) for shape in self.shapes]

    def _evaluate_shape(self, shape: Any, assignment: Assignment) -> Any:
        if isinstance(shape, tuple):
            return tuple(_evaluate_size(size, assignment) for size in shape)
        return None if shape is None else _evaluate_size(shape, assignment)

    def _stand_ins(self, shapes: Sequence[Any]) -> dict[str, Any]:
        """The arguments by name, with meta tensors, which have sizes but no elements."""
        leaves, structure = pytree.tree_flatten(wrap_constants((self.args, self.kwargs)))
        args, kwargs = pytree.tree_unflatten(
            [
                torch.empty(shape, dtype=leaf.dtype, device="meta")
                if isinstance(shape, tuple)
                else (leaf if shape is None else shape)
                for leaf, shape in zip(leaves, shapes, strict=True)
            ],
            structure,
        )
        signature = self.captured.module_call_graph[0].signature
        names = list(getattr(signature, "forward_arg_names", None) or ())
        found: dict[str, Any] = dict(zip(names, args, strict=False)) | kwargs
        for name, value in zip(names, args, strict=False):  # arguments of *xs are called xs_0, xs_1
            numbered = re.fullmatch(r"(\w+)_\d+", name)
            if numbered is not None:
                collected = found.setdefault(numbered[1], [])
                if isinstance(collected, list):
                    collected.append(value)
        return found


def _symbolic_shape(recorded: Any) -> Any:
    """Shape of a captured tensor, or expression of a captured number; None for other values."""
    if isinstance(recorded, torch.Tensor):
        return tuple(_to_expression(size) for size in recorded.shape)
    return _to_expression(recorded) if isinstance(recorded, torch.SymInt) else None


def _to_expression(size: Any) -> Any:
    if not isinstance(size, torch.SymInt):
        return int(size)
    expression = symbolic_expression(size)
    return expression if getattr(expression, "free_symbols", ()) else int(size)


def _solve_symbols(shapes: Sequence[Any], leaves: Sequence[Any]) -> Assignment | None:
    """Values of the symbols in the inputs; None if they cannot be determined."""
    pairs = []
    for shape, leaf in zip(shapes, leaves, strict=True):
        if isinstance(shape, tuple):
            if not isinstance(leaf, torch.Tensor) or leaf.dim() != len(shape):
                return None
            pairs += list(zip(shape, leaf.shape, strict=True))
        elif shape is not None:
            pairs.append((shape, leaf))
    found: Assignment = {}
    for expression, size in sorted(pairs, key=lambda pair: not getattr(pair[0], "is_Symbol", 0)):
        unknown: set[Any] = getattr(expression, "free_symbols", set()) - found.keys()
        if not unknown:
            continue
        if len(unknown) > 1 or not isinstance(size, int):
            return None
        (symbol,) = unknown
        candidates = (size,) if expression == symbol else range(SEARCH_LIMIT)
        fitting = (
            n for n in candidates if _evaluate_size(expression, {**found, symbol: n}) == size
        )
        value = next(fitting, None)
        if value is None:
            return None
        found[symbol] = value
    return dict(sorted(found.items(), key=lambda item: _first_position(item[0], pairs)))


def _first_position(symbol: Any, pairs: Sequence[tuple[Any, Any]]) -> int:
    """Position of the first occurrence of a symbol among the inputs' dimensions."""
    return next(
        i for i, (found, _) in enumerate(pairs) if symbol in getattr(found, "free_symbols", ())
    )


def _name_symbols(value: Any, shape: Any) -> dict[Any, str]:
    """Names of the symbols that are a dimension of an input, or the input itself."""
    if not isinstance(shape, tuple):
        return {} if shape is None else {shape: str(value.name)}
    names = {}
    for size, declared in zip(shape, value.shape or (), strict=False):
        symbols = list(getattr(size, "free_symbols", ()))
        words = set(re.findall(r"[^\W\d]\w*", str(getattr(declared, "value", ""))))
        if len(symbols) == 1 and len(words) == 1:  # also for 2*n + 1
            names[symbols[0]] = words.pop()
    return names


def _evaluate_size(size: Any, assignment: Assignment) -> int:
    return size if isinstance(size, int) else int(size.subs(assignment))
