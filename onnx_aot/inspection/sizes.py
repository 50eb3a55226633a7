"""Other sizes that a program was exported for, and inputs of these sizes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind

from onnx_aot.containers import constants_held, unwrapped
from onnx_aot.torch_compat import (
    condition_holds,
    pytree,
    size_conditions,
    symbolic_expression,
)

__all__ = ["Sample", "flat_inputs", "other_sizes", "sizes_of"]

ODD = (3, 5, 7, 11, 13, 17, 19, 23)
"""One per dimension, so that no two are equal and none divides another."""

REACH = 64
"""How far from the wanted size one is looked for that the model's conditions accept."""

SEARCH_LIMIT = 1 << 16
"""Up to here a symbol's value is looked for in a dimension such as ``2*n + 1``."""

REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

Assignment = dict[Any, int]
"""Values of the capture's symbols."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """Inputs of one set of sizes.

    Attributes:
        sizes: By name of the dimension in the ONNX model, or of the input that is a number.
        args: Positional inputs, and ``kwargs`` keyword inputs, made from the example's values.
    """

    sizes: dict[str, int]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def sizes_of(program: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, int]:
    """What the dynamic dimensions of an ``ONNXProgram`` measure in given inputs, by name."""
    inputs = _Inputs.of(program, args, kwargs)
    return {} if inputs is None else inputs.sizes()


def other_sizes(program: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sample, ...]:
    """Inputs of a handful of sizes other than the example's.

    All dimensions vary together: each at its minimum, all 1, different odd numbers, each half as
    large again as in the example, and 1 and larger by turns. Dimensions of one symbol stay equal,
    derived ones follow, and ranges and the conditions of the capture hold: the nearest sizes that
    fulfil them are taken. Elements are the example's, repeated or left out along an axis, so that
    indices and masks stay valid.

    Args:
        program: An ``ONNXProgram``.
        args: Example positional inputs.
        kwargs: Example keyword inputs.

    Returns:
        At most five; none for a model without dynamic dimensions, or for inputs that are built
        otherwise than those of the capture.
    """
    inputs = _Inputs.of(program, args, kwargs)
    if inputs is None or not inputs.example:
        return ()
    seen = [inputs.sizes()]
    for wanted in inputs.wanted():
        found = inputs.nearest(wanted)
        if found not in seen:
            seen.append(found)
    return tuple(inputs.sample(sizes) for sizes in seen[1:])


def flat_inputs(
    captured: torch.export.ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[tuple[str, Any]] | None:
    """Every leaf of the inputs with its name in the captured graph; None where they do not fit.

    Constants have an empty name.
    """
    specs = [
        spec for spec in captured.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT
    ]
    held = constants_held((tuple(args), _in_order(captured, kwargs)))
    leaves = pytree.tree_leaves(held)
    if len(leaves) != len(specs):
        return None
    names = ["" if isinstance(spec.arg, ConstantArgument) else spec.arg.name for spec in specs]
    return list(zip(names, leaves, strict=True))


def _in_order(captured: torch.export.ExportedProgram, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword inputs in the order in which they were captured."""
    structure = captured.call_spec.in_spec
    order = list(structure.children()[1].context or ()) if structure is not None else []
    return {name: kwargs[name] for name in (*order, *kwargs) if name in kwargs}


@dataclasses.dataclass(frozen=True)
class _Inputs:
    """The inputs of a program, and what is known of their sizes.

    Attributes:
        captured: The captured program.
        args: Positional inputs, and ``kwargs`` keyword inputs in the captured order.
        shapes: Per leaf its dimensions as numbers and sympy expressions, or the expression that a
            number among the inputs is; None for constants.
        example: The symbols' values in the inputs.
        names: Of the symbols, in the ONNX model; one name is one size.
    """

    captured: torch.export.ExportedProgram
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shapes: tuple[Any, ...]
    example: Assignment
    names: dict[Any, str]

    @classmethod
    def of(cls, program: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Inputs | None:
        captured = program.exported_program
        found = None if captured is None else flat_inputs(captured, args, kwargs)
        if found is None:
            return None
        recorded = {n.name: n.meta.get("val") for n in captured.graph.nodes}
        shapes = tuple(_dimensions(recorded.get(name)) for name, _ in found)
        example = _solve(shapes, [leaf for _, leaf in found])
        if example is None:
            return None
        declared = iter(program.model.graph.inputs)
        names: dict[Any, str] = {}
        for (name, _), shape in zip(found, shapes, strict=True):
            value = next(declared, None) if name else None
            if value is not None:
                names = _names(value, shape) | names
        names = {symbol: names.get(symbol, str(symbol)) for symbol in example}
        return cls(captured, tuple(args), _in_order(captured, kwargs), shapes, example, names)

    def sizes(self) -> dict[str, int]:
        """The example's, by name."""
        return {self.names[symbol]: size for symbol, size in self.example.items()}

    def wanted(self) -> Iterator[dict[str, int]]:
        """Sizes to try, whether the model's conditions accept them or not."""
        example = self.sizes()
        larger = {name: n + n // 2 + 1 + i for i, (name, n) in enumerate(example.items())}
        minima = [(self.names[symbol], self._minimum(symbol)) for symbol in self.example]
        yield {name: max(n for other, n in minima if other == name) for name in example}
        yield dict.fromkeys(example, 1)
        yield {name: ODD[i % len(ODD)] for i, name in enumerate(example)}
        yield larger
        if len(example) > 1:
            yield {name: (1, larger[name])[i % 2] for i, name in enumerate(example)}

    def _minimum(self, symbol: Any) -> int:
        limits = self.captured.range_constraints.get(symbol)
        lower = getattr(limits, "lower", 0)
        return max(int(lower), 0) if getattr(lower, "is_finite", True) else 0

    def nearest(self, wanted: dict[str, int]) -> dict[str, int]:
        """The sizes wanted where the conditions accept them, else one by one near to them."""
        if self._accepts(wanted):
            return wanted
        found = self.sizes()
        for name, size in wanted.items():
            for candidate in _around(size):
                trial = {**found, name: candidate}
                if self._accepts(trial):
                    found = trial
                    break
        return found

    def _assignment(self, sizes: Mapping[str, int]) -> Assignment:
        return {symbol: sizes[self.names[symbol]] for symbol in self.example}

    def _accepts(self, sizes: Mapping[str, int]) -> bool:
        assignment = self._assignment(sizes)
        for expression, limits in self.captured.range_constraints.items():
            if expression.free_symbols <= assignment.keys():
                value = _value(expression, assignment)
                if not (limits.lower <= value <= limits.upper):
                    return False
        shapes = [self._concrete(shape, assignment) for shape in self.shapes]
        if any(size < 0 for shape in shapes if isinstance(shape, tuple) for size in shape):
            return False
        conditions = size_conditions(self.captured)
        if not conditions:
            return True
        names = {"L": self._stand_ins(shapes)}
        return all(condition_holds(condition, names) is not False for condition in conditions)

    def _concrete(self, shape: Any, assignment: Assignment) -> Any:
        if isinstance(shape, tuple):
            return tuple(_value(size, assignment) for size in shape)
        return None if shape is None else _value(shape, assignment)

    def _stand_ins(self, shapes: Sequence[Any]) -> dict[str, Any]:
        """The arguments by name, with tensors that have sizes and no elements."""
        leaves, structure = pytree.tree_flatten(constants_held((self.args, self.kwargs)))
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
        for name, value in zip(names, args, strict=False):  # what *xs takes is called xs_0, xs_1
            numbered = re.fullmatch(r"(\w+)_\d+", name)
            if numbered is not None:
                collected = found.setdefault(numbered[1], [])
                if isinstance(collected, list):
                    collected.append(value)
        return found

    def sample(self, sizes: dict[str, int]) -> Sample:
        assignment = self._assignment(sizes)
        leaves, structure = pytree.tree_flatten(constants_held((self.args, self.kwargs)))
        resized = [
            _resized(leaf, self._concrete(shape, assignment))
            for leaf, shape in zip(leaves, self.shapes, strict=True)
        ]
        args, kwargs = unwrapped(pytree.tree_unflatten(resized, structure))
        return Sample(sizes, args, kwargs)


def _dimensions(recorded: Any) -> Any:
    """The shape of a captured tensor, or the expression of a captured number, else None."""
    if isinstance(recorded, torch.Tensor):
        return tuple(_expression(size) for size in recorded.shape)
    return _expression(recorded) if isinstance(recorded, torch.SymInt) else None


def _expression(size: Any) -> Any:
    if not isinstance(size, torch.SymInt):
        return int(size)
    expression = symbolic_expression(size)
    return expression if getattr(expression, "free_symbols", ()) else int(size)


def _solve(shapes: Sequence[Any], leaves: Sequence[Any]) -> Assignment | None:
    """What the symbols are in the inputs; None where that cannot be told."""
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
        fitting = (n for n in candidates if _value(expression, {**found, symbol: n}) == size)
        value = next(fitting, None)
        if value is None:
            return None
        found[symbol] = value
    return dict(sorted(found.items(), key=lambda item: _position(item[0], pairs)))


def _position(symbol: Any, pairs: Sequence[tuple[Any, Any]]) -> int:
    """Where a symbol occurs first among the inputs."""
    return next(
        i for i, (found, _) in enumerate(pairs) if symbol in getattr(found, "free_symbols", ())
    )


def _names(value: Any, shape: Any) -> dict[Any, str]:
    """What the symbols are called that are a dimension of an input, or the input itself."""
    if not isinstance(shape, tuple):
        return {} if shape is None else {shape: str(value.name)}
    names = {}
    for size, declared in zip(shape, value.shape or (), strict=False):
        symbols = list(getattr(size, "free_symbols", ()))
        words = set(re.findall(r"[^\W\d]\w*", str(getattr(declared, "value", ""))))
        if len(symbols) == 1 and len(words) == 1:  # of 2*n + 1 too
            names[symbols[0]] = words.pop()
    return names


def _value(size: Any, assignment: Assignment) -> int:
    return size if isinstance(size, int) else int(size.subs(assignment))


def _around(size: int) -> Iterator[int]:
    yield size
    for distance in range(1, REACH + 1):
        yield size + distance
        if size >= distance:
            yield size - distance


def _resized(leaf: Any, shape: Any) -> Any:
    """A tensor of the shape with the elements of another; the size itself for a number."""
    if isinstance(shape, int):
        return shape
    if shape is None or tuple(leaf.shape) == shape:
        return leaf
    for axis, size in enumerate(shape):
        leaf = _resized_along(leaf.detach(), axis, size)
    return leaf


def _resized_along(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """Elements in order, from the start again where there are not enough.

    Repeated numbers become a little smaller each time: with equal ones there is no telling which
    one a sort or a maximum picks. Masks, indices and other whole numbers are repeated as they are,
    and what was sorted, such as boundaries, stays so.
    """
    before = tensor.shape[axis]
    if size == before:
        return tensor
    if before == 0:
        return tensor.new_zeros((*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]))
    positions = torch.arange(size, device=tensor.device)
    taken = tensor.index_select(axis, positions % before)
    if size > before and tensor.dtype in REAL and bool((tensor != tensor.round()).any()):
        factors = 1 - (positions // before).clamp(max=32).to(tensor.dtype) / 64
        taken = taken * factors.reshape([-1 if i == axis else 1 for i in range(tensor.dim())])
    if tensor.dim() == 1 and _is_sorted(tensor):
        taken = taken.sort().values
    return taken


def _is_sorted(tensor: torch.Tensor) -> bool:
    if tensor.is_complex():
        return False
    return bool((tensor[1:] >= tensor[:-1]).all())
