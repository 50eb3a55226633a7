"""Runs a captured program at sizes other than those of the capture, and compares it with the model.

These are the sizes of the user's example, if the capture was made with others, and 0 and 1 if the
model's code tests for them.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from onnx_aot.capture.inputs import Inputs
from onnx_aot.capture.module_state import run_model
from onnx_aot.capture.sizes.captured_dimensions import sizes_of
from onnx_aot.capture.sizes.data_equalities import find_data_equalities
from onnx_aot.capture.sizes.dimension_requests import DynamicShapes, RequestedDim
from onnx_aot.capture.sizes.graph_runs import may_write_weights, run_graph
from onnx_aot.capture.sizes.guards import Decision
from onnx_aot.capture.sizes.other_examples import Root, find_root, resize_inputs
from onnx_aot.capture.sizes.size_branches import (
    find_crossings,
    find_small_branches,
    is_rare,
)
from onnx_aot.capture.sizes.small_copies import find_small_copies
from onnx_aot.capture.tracing_state import running_as_in_export
from onnx_aot.dimensions.conditions import fulfils_condition, holds
from onnx_aot.torch_compat import (
    SIZE_TERM,
    has_elements,
    is_symbol,
    pytree,
    set_size_conditions,
    size_conditions,
    symbolic_expression,
    write_counts,
)

__all__ = [
    "Crossing",
    "accepts",
    "describe_crossings",
    "describe_wrong_sizes",
    "find_smallest",
    "find_wrong_crossings",
    "has_equal_results",
    "is_right_for_example",
    "keep_decisions",
    "size_in_example",
    "sizes_together",
]

Crossing = tuple[dict[RequestedDim, int], str]
"""An equal size of several dimensions, and the line that chooses otherwise for it."""

STRICTER = 30
"""The tolerances of ONNX Runtime's results are larger than those of captured graphs by this."""


def is_right_for_example(
    program: torch.export.ExportedProgram,
    module: torch.nn.Module,
    inputs: Inputs,
    requested: DynamicShapes,
    bounded: Mapping[Root, int] | None = None,
) -> bool:
    """True if a program gives the model's results for the example.

    Both are run and compared. A program that cannot be run, or has no values, or draws other random
    numbers than the model, counts as right if the example fulfils all of its conditions. If the
    example violates some, because the model treats its sizes differently, these are conditions no
    longer. Those such as ``h != w`` exclude more sizes, and are compared at twice the sizes too.
    Programs for one side of a bound, as ``n > 64`` is one, are refused.

    Args:
        program: The capture, which was made with inputs of other sizes.
        module: The model.
        inputs: The user's example inputs.
        requested: The user's request.
        bounded: Dimensions with bounds that the model keeps, and the smallest sizes below.
    """
    bounded = bounded or {}
    conditions = size_conditions(program)
    violated = [c for c in conditions if fulfils_condition(c, requested.values) is False]
    samples, others = [inputs], []
    for condition in violated:
        sizes = _find_sizes(condition, requested)
        if sizes is None:
            return False
        doubled = {dim: 2 * size for dim, size in sizes.items()}
        if len(sizes) > 1 and " != " in condition:
            samples.append(resize_inputs(inputs, requested, doubled))
        elif len(sizes) != 1:
            return False
        elif bounded.keys() >= set(map(find_root, sizes)):
            samples += _make_smaller(inputs, requested, sizes, bounded)
        elif not _excludes_one_size(condition, *sizes.values()):
            if not is_rare(functools.partial(_violates, condition), *sizes.values()):
                return False
            samples.append(resize_inputs(inputs, requested, doubled))
            alike = _find_violating(condition, *sizes.values())
            others += [resize_inputs(inputs, requested, dict.fromkeys(sizes, n)) for n in alike]
    smaller = _find_smaller(program, requested, bounded)
    answers = [has_equal_results(program, module, sample) for sample in samples]
    if False in answers or (None in answers and (violated or smaller)):
        return False
    if any(has_equal_results(program, module, sample) is False for sample in others):
        return False  # the values of the example may make both branches equal; None: refused sizes
    set_size_conditions(program, [c for c in conditions if c not in violated])
    for symbol, size in smaller.items():
        limits = program.range_constraints[symbol]
        program.range_constraints[symbol] = type(limits)(size, limits.upper)
    return True


def describe_wrong_sizes(
    program: torch.export.ExportedProgram,
    module: torch.nn.Module,
    inputs: Inputs,
    requested: DynamicShapes,
    decisions: Iterable[Decision],
    said: str,
) -> tuple[str, ...]:
    """Finds the lines that branch for size 0 or 1, if the program then differs from the model.

    It also differs if it fails where the model does not, as ``ids.max()`` of no elements does
    behind ``if len(ids) > 0:``, or if PyTorch repeats a size of 1 that the capture takes to be
    equal to a size of data, or if a copy is none at size 1 and is written to. Nothing is said of a
    program that cannot be compared, as ``is_right_for_example`` says, nor of sizes that the model
    refuses.

    Args:
        program: The capture.
        module: The model.
        inputs: The user's example inputs.
        requested: The user's request.
        decisions: The decisions of the capture.
        said: Text of warnings; dimensions that it names are left out.

    Returns:
        Entries such as ``"`if x.shape[0] == 1:` at model.py:7 in forward, for size 1"``.
    """
    leaves = pytree.tree_leaves((inputs.args, inputs.kwargs))
    if not all(has_elements(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)):
        return ()
    equal: dict[tuple[RequestedDim, int], bool | None] = {}
    found: dict[str, list[int]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's on sizes that the user has not given
        branches = find_small_branches(requested, tuple(decisions), said)
        equalities = find_data_equalities(program, requested)
        copies = find_small_copies(program, requested)
        for dim, size, line, pieces in itertools.chain(branches, equalities, copies):
            sizes = sizes_together(program, requested, dim, size)
            if any(other < 0 for other in sizes.values()):
                continue
            sample = resize_inputs(inputs, requested, sizes)
            if (dim, size) not in equal:
                result = has_equal_results(program, module, sample)
                if result is None and _fails_only_at(program, module, sample, inputs):
                    result = False
                equal[dim, size] = result
            if equal[dim, size] is False or (pieces and accepts(module, sample)):
                found.setdefault(line, []).append(size)
    return tuple(
        f"{line}, for {' and '.join(f'size {size}' for size in dict.fromkeys(sizes))}"
        for line, sizes in found.items()
    )


def describe_crossings(crossings: Iterable[Crossing]) -> tuple[str, ...]:
    """Returns entries as ``describe_wrong_sizes`` does: ``for x.shape[2] and x.shape[3] of 64``."""
    return tuple(
        f"{line}, for {' and '.join(dim.size for dim in sizes)} of {next(iter(sizes.values()))}"
        for sizes, line in crossings
    )


def find_wrong_crossings(
    program: torch.export.ExportedProgram,
    module: torch.nn.Module,
    inputs: Inputs,
    requested: DynamicShapes,
    decisions: Sequence[Decision],
) -> list[Crossing]:
    """Returns those of ``find_crossings`` at which the program differs from the model."""
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's on sizes that the user has not given
        for sizes, line in find_crossings(requested, decisions):
            numbers = {dim: dim.root_at(size) for dim, size in sizes.items()}
            known = {dim: number for dim, number in numbers.items() if number is not None}
            if len(known) < len(numbers):
                continue  # there is no such size
            sample = resize_inputs(inputs, requested, known)
            if has_equal_results(program, module, sample) is False:
                wrong.append((sizes, line))
    return wrong


def sizes_together(
    program: torch.export.ExportedProgram, requested: DynamicShapes, dim: RequestedDim, size: int
) -> dict[RequestedDim, int]:
    """Returns the sizes of a dimension and of those that the capture computes from it.

    One is negative if the dimension cannot have the size.

    Dimensions without a name, as with ``Dim.AUTO``, are known to be equal from the capture only.
    """
    recorded = {
        other: symbolic_expression(symbolic)
        for other, symbolic in sizes_of(program, requested)
        if isinstance(symbolic, torch.SymInt) and not other.derived
    }
    import sympy  # slow to import, and only captures with such branches need it

    def evaluate(expression: Any) -> int:
        try:
            return int(expression.xreplace({symbol: sympy.Integer(size)}))
        except (TypeError, ZeroDivisionError):
            return -1  # there is no such size, of 12 // n for n = 0

    symbol = recorded.get(dim)
    alike = {
        other: evaluate(expression)
        for other, expression in recorded.items()
        if symbol is not None and symbol.is_Symbol and expression.free_symbols == {symbol}
    }
    return alike | {dim: size}


def _fails_only_at(
    program: torch.export.ExportedProgram,
    module: torch.nn.Module,
    sample: Inputs,
    inputs: Inputs,
) -> bool:
    """True if a program that runs with the example fails with inputs that the model accepts."""

    def runs(given: Inputs) -> bool:
        leaves = pytree.tree_leaves((given.args, given.kwargs))
        try:
            run_graph(program, leaves, may_write_weights(program))
        except Exception:
            return False
        return True

    return accepts(module, sample) and runs(inputs) and not runs(sample)


def accepts(module: torch.nn.Module, inputs: Inputs) -> bool:
    """True if the model runs with these inputs."""
    try:
        run_model(module, inputs)
    except Exception:
        return False
    return True


def find_smallest(
    program: torch.export.ExportedProgram, requested: DynamicShapes, dims: Iterable[RequestedDim]
) -> dict[Root, int]:
    """Returns the smallest sizes that a program accepts for some dimensions."""
    roots = set(map(find_root, dims))
    found: dict[Root, int] = {}
    for dim, size in sizes_of(program, requested):
        if find_root(dim) in roots and isinstance(size, torch.SymInt) and is_symbol(size):
            limits = program.range_constraints[symbolic_expression(size)]
            found[find_root(dim)] = max(int(limits.lower), found.get(find_root(dim), 0))
    return found


def keep_decisions(decisions: Iterable[Decision], requested: DynamicShapes) -> tuple[Decision, ...]:
    """Returns the decisions that hold for the example.

    At sizes where the others do not hold, the program was compared with the model.
    """

    def holds_for_example(decision: Decision) -> bool:
        sizes = {}
        for symbol, (sources, _) in decision.symbols.items():
            dim = requested.at(sources[0]) if sources else None
            if dim is not None:
                sizes[symbol] = size_in_example(dim, requested)
        return decision.kind != "guard" or decision.holds(sizes) is not False

    return tuple(filter(holds_for_example, decisions))


def _make_smaller(
    inputs: Inputs,
    requested: DynamicShapes,
    sizes: Mapping[RequestedDim, int],
    bounded: Mapping[Root, int],
) -> Iterator[Inputs]:
    """Yields inputs with a half and a quarter of some sizes."""
    for part in (2, 4):
        smaller = {d: max(bounded[find_root(d)], size // part, 1) for d, size in sizes.items()}
        yield resize_inputs(inputs, requested, smaller)


def _find_smaller(
    program: torch.export.ExportedProgram, requested: DynamicShapes, bounded: Mapping[Root, int]
) -> dict[Any, int]:
    """Returns the symbols whose range begins above the size in the example, and where it should.

    This is the size in the example, or the smallest one below a bound.
    """
    found = {}
    for dim, size in sizes_of(program, requested):
        if isinstance(size, torch.SymInt) and is_symbol(size):
            symbol, example = symbolic_expression(size), size_in_example(dim, requested)
            limits = program.range_constraints.get(symbol)
            if limits is not None and example < limits.lower:
                found[symbol] = bounded.get(find_root(dim), example)
    return found


def _find_sizes(condition: str, requested: DynamicShapes) -> dict[RequestedDim, int] | None:
    """Returns the example's sizes in a condition; None if it has others than requested ones."""
    found = {}
    for match in SIZE_TERM.finditer(condition):
        dim = requested.at(match[0])
        if dim is None:
            return None
        found[dim] = size_in_example(dim, requested)
    return found


def size_in_example(dim: RequestedDim, requested: DynamicShapes) -> int:
    """Returns the size of a dimension in the user's example."""
    leaf = pytree.tree_leaves(dict(requested.values))[dim.leaf]
    return int(leaf if dim.axis is None else leaf.shape[dim.axis])


def _excludes_one_size(condition: str, size: int) -> bool:
    """True if sizes near one fulfil a condition, except those below 2."""
    near = [n for n in (size - 1, *range(size + 1, size + 9), 2 * size, 8 * size) if n > 1]
    return not any(_violates(condition, n) for n in near)


def _find_violating(condition: str, example: int) -> list[int]:
    """Returns the smallest sizes other than the example's that violate a condition: two at most."""
    sizes = (n for n in range(1, 2 * example + 9) if n != example and _violates(condition, n))
    return list(itertools.islice(sizes, 2))


def _violates(condition: str, size: int) -> bool:
    """True if the only dimension in a condition must not have a size."""
    return holds(SIZE_TERM.sub("n", condition), {"n": size}) is False


def has_equal_results(
    program: torch.export.ExportedProgram, module: torch.nn.Module, inputs: Inputs
) -> bool | None:
    """True if model and program give equal results, but for rounding.

    None if they cannot be compared. Programs that draw random numbers begin with the generator's
    state that the model has, so they draw the same, unless the capture draws in another order.
    """
    weights = [*program.state_dict.values(), *program.constants.values()]
    leaves = pytree.tree_leaves((inputs.args, inputs.kwargs))
    if any(isinstance(w, torch.Tensor) and not has_elements(w) for w in (*weights, *leaves)):
        return None
    writes, counts = may_write_weights(program), write_counts(module.parameters())
    try:
        with running_as_in_export():
            expected = pytree.tree_leaves(run_model(module, inputs, writes))
        actual, is_random = run_graph(program, leaves, writes)
    except Exception:  # nodes that were captured only for translation do not run
        return None
    if not writes and write_counts(module.parameters()) != counts:
        return False  # only the model writes to its weights, at these sizes
    equal = len(expected) == len(actual) and all(map(_is_close, actual, expected))
    return True if equal else None if is_random else False


def _is_close(actual: Any, expected: Any) -> bool:
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        return bool(actual == expected)
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    from onnx_aot.dtypes import TOLERANCES  # imports onnx_ir, which few captures need here

    tolerance = TOLERANCES.get(expected.dtype)
    if tolerance is None:
        return torch.equal(actual, expected)
    # Both are computed by torch, so only the order of sums may differ. Another branch can be nearly
    # right, such as that of odd sizes for even ones.
    relative = tolerance.relative / STRICTER
    known = expected.abs().nan_to_num(0, 0, 0)
    largest = float(known.max()) if known.numel() else 0.0
    return torch.allclose(actual, expected, relative, relative * largest, equal_nan=True)
