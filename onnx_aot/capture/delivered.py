"""Which dimensions came out dynamic, and under which names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

import torch
import torch.fx
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind

from onnx_aot.capture.dynamic_shapes import DynamicShapes, RequestedDim
from onnx_aot.errors import DynamicShapeError
from onnx_aot.torch_compat import (
    condition_holds,
    example_size,
    is_symbol,
    root_symbol,
    symbolic_expression,
)

__all__ = ["bound_dimensions", "dimension_names", "keeps_dimensions", "refuse_static", "renamed"]

# How torch writes one dimension of an input, in conditions and in messages.
SIZE_TERM = re.compile(r"L\['(\w+)'\]((?:\['?\w+'?\])*)\.size\(\)\[(\d+)\]")

Size = int | torch.SymInt


def dimension_names(
    program: torch.export.ExportedProgram,
    requested: DynamicShapes,
    input_names: Sequence[str] = (),
) -> dict[str, str]:
    """Names for the capture's symbols: the user's, else ``<input>_dim_<axis>``.

    Args:
        program: The captured program.
        requested: What the user asked for.
        input_names: Names that the tensors among the inputs get, in order.
    """
    given: dict[str, str] = {}
    for dim, size in _sizes(program, requested):
        symbol = root_symbol(size)
        if symbol is not None and dim.name is not None and (dim.derived or _is_symbol(size)):
            given.setdefault(symbol, dim.name)
    taken = set(given.values())
    derived: dict[str, str] = {}
    tensors = [leaf for leaf in _user_inputs(program) if leaf is not None]
    for index, (name, shape) in enumerate(tensors):
        shown = input_names[index] if index < len(input_names) else name
        for axis, size in enumerate(shape):
            symbol = root_symbol(size)
            if symbol is not None and symbol not in given and symbol not in derived:
                derived[symbol] = _unique(f"{shown}_dim_{axis}", taken)
    return derived | given


def bound_dimensions(
    program: torch.export.ExportedProgram, requested: DynamicShapes, conditions: Sequence[str]
) -> list[str]:
    """Looks for conditions that only sizes around the example's fulfil.

    The capture holds a dimension to be dynamic under such a condition, but answers with what it
    worked out from the example, such as half of the size in Python numbers, or a branch.

    Returns:
        A sentence for every such condition on a dimension that was asked to be dynamic.

    Raises:
        DynamicShapeError: The example's size is the only one that fulfils it, as for ``n == 1``.
    """
    examples = {
        (dim.path, dim.axis): example_size(size)
        for dim, size in _sizes(program, requested)
        if not dim.may_be_static
    }
    by_dimension: dict[tuple[str, int], list[tuple[str, str]]] = {}
    for condition in conditions:
        terms = {match[0]: match for match in SIZE_TERM.finditer(condition)}
        if len(terms) == 1:
            ((term, match),) = terms.items()
            path, axis = match[1] + match[2], int(match[3])
            shown = condition.replace(term, f"{path}.shape[{axis}]")
            entry = (condition.replace(term, "n"), shown)
            by_dimension.setdefault((path, axis), []).append(entry)
    pinned, bound = [], []
    for (path, axis), found in by_dimension.items():
        example = examples.get((path, axis))
        if example is None:
            continue
        near = [entry for entry in found if _only_near(entry[0], example)]
        if not near:
            continue
        sizes = [n for n in range(_limit(example)) if all(_holds(on_n, n) for on_n, _ in near)]
        if len(sizes) > 1:
            bound.append(f"{path}, axis {axis}: {min(sizes)} to {max(sizes)}")
        else:
            pinned.append(f"  {path}, axis {axis}: captured for {near[0][1]}")
    if pinned:
        raise DynamicShapeError(
            "dimensions that were asked to be dynamic are bound to the example's size by "
            "conditions in the model:\n"
            + "\n".join(pinned)
            + "\nMake the model compute with tensors or x.shape there instead of Python numbers, "
            "give an example of another size where it is 0 or 1, or leave these dimensions out of "
            "dynamic_shapes."
        )
    return bound


def _only_near(condition: str, example: int) -> bool:
    """Whether sizes far above the example and some below it do not fulfil a condition on ``n``."""
    for far in (2 * example + 1, 3 * example + 2, _limit(example)):
        if _holds(condition, far):
            return False  # nearly always, without looking at every size
    above = range(2 * example + 1, _limit(example))
    return not any(_holds(condition, n) for n in above) and (
        example == 0 or not all(_holds(condition, n) for n in range(example))
    )


def _holds(condition: str, size: int) -> bool:
    return condition_holds(condition, {"n": size}) is not False


def _limit(example: int) -> int:
    """Sizes are looked at up to here."""
    return 4 * example + 64


def keeps_dimensions(
    before: torch.export.ExportedProgram, after: torch.export.ExportedProgram
) -> bool:
    """Whether inputs and outputs that had dynamic dimensions still have as many."""
    return _count_dynamic(before) == _count_dynamic(after)


def _count_dynamic(program: torch.export.ExportedProgram) -> list[int]:
    results = next(iter(reversed(program.graph.nodes))).args[0]
    specs = program.graph_signature.output_specs
    shapes = [leaf[1] for leaf in _user_inputs(program) if leaf is not None]
    for result, spec in zip(results, specs, strict=True):
        value = result.meta.get("val") if isinstance(result, torch.fx.Node) else None
        if spec.kind == OutputKind.USER_OUTPUT and isinstance(value, torch.Tensor):
            shapes.append(tuple(value.shape))
    return [sum(map(_is_expression, shape)) for shape in shapes]


def renamed(program: torch.export.ExportedProgram, requested: DynamicShapes) -> list[str]:
    """A sentence for every dimension whose name is another than the one asked for."""
    names = dimension_names(program, requested)
    found = []
    for dim, size in _sizes(program, requested):
        symbol = root_symbol(size)
        if dim.name is None or dim.derived or symbol is None:
            continue
        where = f"{dim.path}, axis {dim.axis} ({dim.name!r})"
        if not _is_symbol(size):
            found.append(f"{where} is a multiple or sum of {names[symbol]!r}")
        elif names[symbol] != dim.name:
            found.append(f"{where} always equals {names[symbol]!r} and is called so")
    return found


def refuse_static(program: torch.export.ExportedProgram, requested: DynamicShapes) -> None:
    """Compares the captured sizes with what was asked.

    Raises:
        DynamicShapeError: Dimensions that were asked to be dynamic are static.
    """
    static = [
        f"  {dim.path}, axis {dim.axis}"
        + (f" ({dim.name!r})" if dim.name else "")
        + f": fixed at {size}"
        for dim, size in _sizes(program, requested)
        if not dim.may_be_static and not _is_expression(size)
    ]
    if static:
        raise DynamicShapeError(
            "dimensions that were asked to be dynamic came out static, because the model computes "
            "with their example values, or was captured with them fixed:\n"
            + "\n".join(static)
            + "\nMake the model use x.shape there instead of Python numbers, or leave these "
            "dimensions out of dynamic_shapes, or give them as Dim.AUTO to accept either."
        )


def _sizes(
    program: torch.export.ExportedProgram, requested: DynamicShapes
) -> Iterator[tuple[RequestedDim, Size]]:
    """Each requested dimension with the size that the capture recorded."""
    leaves = list(_user_inputs(program))
    for dim in requested.requested:
        leaf = leaves[dim.leaf]
        if leaf is not None:
            yield dim, leaf[1][dim.axis]


def _user_inputs(
    program: torch.export.ExportedProgram,
) -> Iterator[tuple[str, Sequence[Size]] | None]:
    """Per leaf of the inputs its name and shape; numbers have no shape, constants are None."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for spec in program.graph_signature.input_specs:
        if spec.kind != InputKind.USER_INPUT:
            continue
        if isinstance(spec.arg, ConstantArgument):
            yield None
            continue
        value = nodes[spec.arg.name].meta["val"]
        yield spec.arg.name, tuple(value.shape) if isinstance(value, torch.Tensor) else ()


def _unique(name: str, taken: set[str]) -> str:
    """The name, with the first number behind it that makes it another than those taken."""
    unique = next(
        candidate
        for number in itertools.count()
        if (candidate := f"{name}_{number}" if number else name) not in taken
    )
    taken.add(unique)
    return unique


def _is_expression(size: Size) -> bool:
    """Whether a size has symbols in it; a SymInt may have none left."""
    return isinstance(size, torch.SymInt) and not getattr(
        symbolic_expression(size), "is_number", False
    )


def _is_symbol(size: Size) -> bool:
    return isinstance(size, torch.SymInt) and is_symbol(size)
