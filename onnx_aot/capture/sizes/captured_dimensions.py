"""Tells which dimensions of a capture are dynamic, under which names and which conditions."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
import torch.fx
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind

from onnx_aot.capture.sizes.dimension_requests import (
    DynamicShapes,
    RequestedDim,
    plain_names,
    same_expression,
)
from onnx_aot.dimensions.conditions import holds, select_fulfilling
from onnx_aot.torch_compat import (
    SIZE_TERM,
    example_size,
    is_symbol,
    python_expression,
    root_symbol,
    symbolic_expression,
)

__all__ = [
    "Binding",
    "Condition",
    "Size",
    "conditions_by_dimension",
    "dimension_names",
    "find_bindings",
    "find_equal",
    "find_renamed",
    "keeps_dimensions",
    "sizes_of",
    "static_dimensions",
]

Size = int | torch.SymInt

# The end of a condition that compares a size, or a value computed from it, with one number.
NUMBER_COMPUTED = re.compile(r" == \(?-?\d+\)?$")

TRIED_SIZES = 100_000
"""About how many combinations of sizes are tried for one condition."""


def dimension_names(
    program: torch.export.ExportedProgram,
    requested: DynamicShapes,
    input_names: Sequence[str] = (),
) -> dict[str, str]:
    """Returns a name per symbol of the capture: the user's, else ``<input>_dim_<axis>``.

    Args:
        program: The captured program.
        requested: What the user asked for.
        input_names: Names of the tensors among the inputs, in order.
    """
    given: dict[str, str] = {}
    plain = sorted(plain_names(requested.requested))
    for dim, size in sizes_of(program, requested):
        symbol = root_symbol(size)
        if dim.name is not None and same_expression(dim.name, dim.name, plain):
            continue  # ``past + seq``: the capture has this relation, or the size is independent
        # The size of a derived dimension contains its root, unless the relation was given up.
        named = dim.name is not None and dim.derived != (symbol is not None and _is_symbol(size))
        if symbol is not None and named:
            given.setdefault(symbol, str(dim.name))
    taken = set(given.values())
    derived: dict[str, str] = {}
    inputs = [leaf for leaf in _user_inputs(program) if leaf and type(leaf.number) is not int]
    for index, leaf in enumerate(inputs):
        shown = input_names[index] if index < len(input_names) else leaf.name
        labelled = [(f"{shown}_dim_{axis}", size) for axis, size in enumerate(leaf.shape)]
        if leaf.number is not None:
            labelled.append((shown, leaf.number))
        for label, size in labelled:
            symbol = root_symbol(size)
            if symbol is not None and symbol not in given and symbol not in derived:
                derived[symbol] = _make_unique(label, taken)
    return derived | given


@dataclasses.dataclass(frozen=True)
class Binding:
    """Conditions on one requested dimension that only sizes near the example's fulfil.

    The capture keeps the dimension dynamic under such a condition, but contains a result computed
    for the example, such as half of the size as a Python number, or one side of a branch.

    Attributes:
        dim: The dimension.
        smallest: The smallest size that fulfils the conditions.
        largest: The largest size that fulfils them.
        condition: The first condition, as the user would write it.
        others: Dimensions that the condition binds together with this one.
    """

    dim: RequestedDim
    smallest: int
    largest: int
    condition: str
    others: tuple[RequestedDim, ...] = ()

    @property
    def fixes(self) -> bool:
        """True if no size but the example's fulfils the conditions."""
        return self.smallest == self.largest

    def __str__(self) -> str:
        if self.fixes:
            return f"{self.dim.place} to {self.smallest}"
        return f"{self.dim.place} to {self.smallest} to {self.largest}"


def find_bindings(
    program: torch.export.ExportedProgram,
    requested: DynamicShapes,
    conditions: Sequence[str],
    auto: bool = False,
) -> list[Binding]:
    """Finds the dimensions that conditions bind to sizes near the example's.

    With ``auto``, dimensions that may be static but came out dynamic are included.
    """
    found = []
    for dim, entries in conditions_by_dimension(requested, conditions).items():
        example = _example_size(program, dim)
        if example is None or (dim.may_be_static and not (auto and _is_dynamic(program, dim))):
            continue
        near = [entry for entry in entries if _only_near(entry.on_n, example)]
        if near:
            sizes: Iterable[int] = range(_limit(example))
            for entry in near:
                sizes = select_fulfilling(entry.on_n, "n", sizes)
            sizes = list(sizes)
            smallest, largest = min(sizes, default=example), max(sizes, default=example)
            found.append(Binding(dim, smallest, largest, near[0].shown))
    for condition in conditions:
        found += _bound_together(program, requested, condition)
    return found


def _bound_together(
    program: torch.export.ExportedProgram, requested: DynamicShapes, condition: str
) -> Iterator[Binding]:
    """Yields the dimensions of a condition that few sizes fulfil: ``(h - 2)*(w - 2) == 36``.

    ``h == 2*w + 1`` is not such a condition: every ``w`` has an ``h``.
    """
    terms = sorted({match[0] for match in SIZE_TERM.finditer(condition)})
    if len(terms) < 2:
        return
    shown = on_n = condition
    examples: dict[str, int] = {}
    dims = []
    for index, term in enumerate(terms):
        dim = requested.at(term)
        size = None if dim is None else _example_size(program, dim)
        if dim is None or size is None:
            return
        shown, on_n = shown.replace(term, dim.size), on_n.replace(term, f"n{index}")
        examples[f"n{index}"] = size
        dims.append(dim)
    if any(side.strip("() ") in examples for side in on_n.split(" == ")):
        return  # this size follows from the others
    if _holds_nearby(on_n, examples) or _has_far_solution(on_n, tuple(examples.items())):
        return
    for dim, size in zip(dims, examples.values(), strict=True):
        if not dim.may_be_static:
            yield Binding(dim, size, size, shown, tuple(o for o in dims if o != dim))


def _holds_nearby(condition: str, examples: dict[str, int]) -> bool:
    """True if changing the size of one dimension, or of all, can still fulfil the condition."""
    changes = ((1, 1), (1, 2), (1, -1), (2, 0), (1, 32))
    tried = [
        {n: factor * size + more if n in changed else size for n, size in examples.items()}
        for factor, more in changes
        for changed in (*((name,) for name in examples), tuple(examples))
    ]
    return any(holds(condition, sizes) is not False for sizes in tried)


@functools.lru_cache(256)  # the condition comes again at each question about the same dimensions
def _has_far_solution(condition: str, sizes: tuple[tuple[str, int], ...]) -> bool:
    """True if a size far above the examples fulfils a condition with some size of another term.

    Several far sizes are tried: if one size is a multiple of the other, few have a second size.
    They are fewer where there are more terms or larger sizes, so that the time is bounded.
    """
    examples = dict(sizes)
    far = max(map(_limit, examples.values()))
    pairs = list(itertools.permutations(examples, 2))
    count = min(64, max(4, TRIED_SIZES // (len(pairs) * (far + 64))))
    return any(
        holds(condition, {**examples, first: size, second: other}) is not False
        for first, second in pairs
        for size in range(far, far + count)
        for other in range(far + 64)
    )


class Condition(NamedTuple):
    """A condition on one dimension, written in terms of ``n`` and as the user would write it."""

    on_n: str
    shown: str


def conditions_by_dimension(
    requested: DynamicShapes, conditions: Sequence[str]
) -> dict[RequestedDim, list[Condition]]:
    """Groups the conditions that involve only one requested dimension by that dimension."""
    found: dict[RequestedDim, list[Condition]] = {}
    for condition in conditions:
        terms = {match[0] for match in SIZE_TERM.finditer(condition)}
        if len(terms) != 1:
            continue
        (term,) = terms
        dim = requested.at(term)
        if dim is not None:
            entry = Condition(condition.replace(term, "n"), condition.replace(term, dim.size))
            found.setdefault(dim, []).append(entry)
    return found


def _example_size(program: torch.export.ExportedProgram, dim: RequestedDim) -> int | None:
    leaf = list(_user_inputs(program))[dim.leaf]
    return None if leaf is None else example_size(leaf.size(dim.axis))


def _is_dynamic(program: torch.export.ExportedProgram, dim: RequestedDim) -> bool:
    leaf = list(_user_inputs(program))[dim.leaf]
    size = None if leaf is None else leaf.size(dim.axis)
    return isinstance(size, torch.SymInt) and bool(symbolic_expression(size).free_symbols)


@functools.lru_cache(1024)  # each attempt asks about nearly the same conditions, several times
def _only_near(condition: str, example: int) -> bool:
    """True if sizes far above the example and some size below it violate a condition on ``n``.

    If all sizes below fulfil it, it is a bound such as ``n <= 50``. This does not apply if the
    model computed a number: ``trunc(0.1*n) == 0`` binds just as ``trunc(0.1*n) == 1`` does.
    """
    if NUMBER_COMPUTED.search(condition):
        return not _any_fulfils(condition, _far_sizes(example))
    # The usual case comes first, found without testing every size.
    first = (2 * example + 1, 3 * example + 2, _limit(example))
    if _any_fulfils(condition, first):
        return False
    if _any_fulfils(condition, range(2 * example + 1, _limit(example))):
        return False
    below = select_fulfilling(condition, "n", range(example))
    return example == 0 or any(n != m for n, m in itertools.zip_longest(range(example), below))


def _far_sizes(example: int) -> Iterator[int]:
    """Yields sizes far above the example, of which ``n % k == 0`` has one that fulfils it.

    They are consecutive up to 8,192, because testing a long condition takes a millisecond for a
    hundred sizes; then come multiples of the example, for every ``k`` that divides it.
    """
    limit = _limit(example)
    yield from range(limit, limit + min(limit + 512, 8192))
    yield from range(5 * example, 500 * example, max(example, 1))


def _any_fulfils(condition: str, sizes: Iterable[int]) -> bool:
    return next(select_fulfilling(condition, "n", sizes), None) is not None


def _limit(example: int) -> int:
    """Upper end of the sizes that are tested."""
    return 4 * example + 64


def keeps_dimensions(
    before: torch.export.ExportedProgram, after: torch.export.ExportedProgram
) -> bool:
    """True if each input and output has as many dynamic dimensions as before."""
    return _count_dynamic(before) == _count_dynamic(after)


def _count_dynamic(program: torch.export.ExportedProgram) -> list[int]:
    results = next(iter(reversed(program.graph.nodes))).args[0]
    specs = program.graph_signature.output_specs
    shapes = [leaf.shape for leaf in _user_inputs(program) if leaf is not None]
    for result, spec in zip(results, specs, strict=True):
        value = result.meta.get("val") if isinstance(result, torch.fx.Node) else None
        if spec.kind == OutputKind.USER_OUTPUT and isinstance(value, torch.Tensor):
            shapes.append(tuple(value.shape))
    return [sum(map(_is_expression, shape)) for shape in shapes]


def find_renamed(
    program: torch.export.ExportedProgram, requested: DynamicShapes
) -> Iterator[tuple[RequestedDim, str]]:
    """Yields every dimension whose name differs from the requested one, with a sentence on it."""
    names = dimension_names(program, requested)
    plain = sorted(plain_names(requested.requested))
    for dim, size in sizes_of(program, requested):
        if dim.name is None or not _is_expression(size) or (dim.derived and not _is_symbol(size)):
            continue
        called = python_expression(symbolic_expression(size), names)
        if called == dim.name or same_expression(dim.name, called, plain):
            continue
        if not _is_symbol(size):
            yield dim, f"{dim} is always {called!r} and is called so"
        elif dim.derived or same_expression(dim.name, dim.name, plain):
            yield dim, f"{dim} is a size of its own and is called {called!r}"
        else:
            yield dim, f"{dim} always equals {called!r} and is called so"


def find_equal(
    program: torch.export.ExportedProgram, requested: DynamicShapes
) -> Iterator[RequestedDim]:
    """Yields the dimensions that have the size of an earlier one with another name."""
    plain = plain_names(requested.requested)
    first: dict[str, str] = {}
    for dim, size in sizes_of(program, requested):
        if dim.name not in plain or dim.derived or not _is_expression(size):
            continue
        if first.setdefault(str(symbolic_expression(size)), dim.name) != dim.name:
            yield dim


def static_dimensions(
    program: torch.export.ExportedProgram, requested: DynamicShapes, left_to_model: bool = False
) -> list[tuple[RequestedDim, int]]:
    """Returns the dimensions that were requested as dynamic but are static, with their sizes.

    Args:
        program: The captured program.
        requested: What the user asked for.
        left_to_model: Whether to return those that may be static instead, as with ``Dim.AUTO``.
    """
    return [
        (dim, example_size(size) or 0)
        for dim, size in sizes_of(program, requested)
        if dim.may_be_static == left_to_model and not _is_expression(size)
    ]


def sizes_of(
    program: torch.export.ExportedProgram, requested: DynamicShapes
) -> Iterator[tuple[RequestedDim, Size]]:
    """Yields each requested dimension with the size that the capture recorded."""
    leaves = list(_user_inputs(program))
    for dim in requested.requested:
        leaf = leaves[dim.leaf]
        if leaf is not None:
            yield dim, leaf.size(dim.axis)


class _Input(NamedTuple):
    """A leaf of the inputs: its name in the graph, and its shape or its value as a number."""

    name: str
    shape: tuple[Size, ...]
    number: Size | None = None

    def size(self, axis: int | None) -> Size:
        if axis is None:
            assert self.number is not None
            return self.number
        return self.shape[axis]


def _user_inputs(program: torch.export.ExportedProgram) -> Iterator[_Input | None]:
    """Yields what the capture recorded for each leaf of the inputs; None for a non-int constant."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for spec in program.graph_signature.input_specs:
        if spec.kind != InputKind.USER_INPUT:
            continue
        if isinstance(spec.arg, ConstantArgument):
            value = spec.arg.value
            yield _Input(spec.arg.name, (), value) if type(value) is int else None
            continue
        value = nodes[spec.arg.name].meta["val"]
        if isinstance(value, torch.Tensor):
            yield _Input(spec.arg.name, tuple(value.shape))
        else:
            yield _Input(spec.arg.name, (), value)


def _make_unique(name: str, taken: set[str]) -> str:
    """Returns the name, with the first numeric suffix that makes it unique if it is taken."""
    unique = next(
        candidate
        for number in itertools.count()
        if (candidate := f"{name}_{number}" if number else name) not in taken
    )
    taken.add(unique)
    return unique


def _is_expression(size: Size) -> bool:
    """True if a size contains symbols; a SymInt may have none left."""
    return isinstance(size, torch.SymInt) and not getattr(
        symbolic_expression(size), "is_number", False
    )


def _is_symbol(size: Size) -> bool:
    return isinstance(size, torch.SymInt) and is_symbol(size)
