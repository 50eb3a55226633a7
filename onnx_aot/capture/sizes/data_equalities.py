"""Finds sizes that a capture takes to be equal to a number of the data, which they are not.

Where a size meets one that the data decides, PyTorch repeats the one of them that is 1. Torch takes
them to be equal in a capture, unless it knows that one is 1.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.fx

from onnx_aot.capture.sizes.captured_dimensions import sizes_of
from onnx_aot.capture.sizes.dimension_requests import DynamicShapes, RequestedDim
from onnx_aot.capture.sizes.graph_runs import (
    WithoutAssertions,
    may_write_weights,
    run_graph,
)
from onnx_aot.capture.sizes.guards import Location
from onnx_aot.capture.sizes.size_branches import SmallBranch
from onnx_aot.metadata.provenance import location
from onnx_aot.torch_compat import (
    OpOverload,
    aten,
    decision_symbols,
    has_elements,
    is_taken_for_data,
    pytree,
    symbolic_expression,
    takes_data_for_sizes,
)

__all__ = ["describe_repeated", "find_data_equalities", "find_repeated"]

_WHAT = (
    "taken to be equal to a size that the data decides, from which it differs in the example; "
    "PyTorch repeats the one of them that is 1"
)
_FIX = (
    "give an example in which neither is 1, or leave {size} out of dynamic_shapes if it is always 1"
)


def find_repeated(
    program: torch.export.ExportedProgram, requested: DynamicShapes, left_to_model: bool = True
) -> list[RequestedDim]:
    """Returns the dimensions that differ, in the example, from a size that they are taken for.

    Args:
        program: The captured program.
        requested: The request.
        left_to_model: Whether dimensions that may be static, such as those with ``Dim.AUTO``, are
            returned; otherwise all others.
    """
    found = _compare(program, requested)
    return [dim for dim in found if dim.may_be_static == left_to_model]


def describe_repeated(
    program: torch.export.ExportedProgram, requested: DynamicShapes
) -> dict[RequestedDim, tuple[str, str, tuple[Location, ...]]]:
    """Describes those of ``find_repeated`` that may not be static, with fix and line each."""
    described: dict[RequestedDim, tuple[str, str, tuple[Location, ...]]] = {}
    for dim, node in _compare(program, requested).items():
        if not dim.may_be_static:
            line = location(node)
            lines = () if line is None else (Location(line.file, line.line, line.function),)
            described[dim] = _WHAT, _FIX.format(size=dim.size), lines
    return described


def find_data_equalities(
    program: torch.export.ExportedProgram, requested: DynamicShapes
) -> Iterator[SmallBranch]:
    """Yields the dimensions that are taken to be equal to a size of data, which 1 need not be."""
    sizes = [(dim, size) for dim, size in sizes_of(program, requested) if _is_symbolic(size)]
    if not _has_equalities(program, sizes):
        return
    lines: dict[Any, str] = {}
    for node in program.graph.nodes:
        line = location(node)
        for size in getattr(node.meta.get("val"), "shape", ()) if line is not None else ():
            if is_taken_for_data(size):
                lines.setdefault(symbolic_expression(size), str(line))
    for dim, size in sizes:
        line_of_data = lines.get(symbolic_expression(size))
        if line_of_data is not None and dim.limits[0] <= 1:
            yield SmallBranch(dim, 1, f"a broadcast to a size of data at {line_of_data}", False)


_READS_DATA = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


def _has_equalities(
    program: torch.export.ExportedProgram, sizes: Sequence[tuple[RequestedDim, Any]]
) -> bool:
    """True if sizes may be taken to be equal to numbers of the data.

    Torch makes the same symbols for slices whose sizes it cannot tell; they are no numbers of data.
    """
    return any(takes_data_for_sizes(size) for _, size in sizes) and any(
        _READS_DATA & set(node.target.tags)
        for node in program.graph.nodes
        if isinstance(node.target, OpOverload)
    )


def _compare(
    program: torch.export.ExportedProgram, requested: DynamicShapes
) -> dict[RequestedDim, torch.fx.Node]:
    """Returns the dimensions, each with the first node that has another size in the example."""
    sizes = [(dim, size) for dim, size in sizes_of(program, requested) if _is_symbolic(size)]
    if not _has_equalities(program, sizes):
        return {}
    if program not in _DIFFERING:
        _DIFFERING[program] = _run_example(program)
    differing = _DIFFERING[program]
    found = {}
    for dim, size in sizes:
        symbols = getattr(symbolic_expression(size), "free_symbols", ())
        nodes = [differing[symbol] for symbol in symbols if symbol in differing]
        if nodes:
            found[dim] = nodes[0]
    return found


_DIFFERING: Any = weakref.WeakKeyDictionary()
"""Nodes that have other sizes in the example, by symbols of the sizes, by program.

They are found before its assertions are taken away.
"""


def _run_example(program: torch.export.ExportedProgram) -> dict[Any, torch.fx.Node]:
    differing: dict[Any, torch.fx.Node] = {}

    class Comparison(WithoutAssertions):
        def run_node(self, n: torch.fx.Node) -> Any:
            condition = n.args[0] if n.target == aten._assert_scalar.default else None
            if isinstance(condition, torch.fx.Node) and not self.env[condition]:
                for node in condition.all_input_nodes:
                    _note(differing, node, node.meta.get("val"))
            result = super().run_node(n)
            recorded = n.meta.get("val")
            if isinstance(result, torch.Tensor) and isinstance(recorded, torch.Tensor):
                shapes: Any = zip(recorded.shape, result.shape, strict=True)
                for size, actual in shapes:
                    if _number(size) not in (None, actual):
                        _note(differing, n, size)
            return result

    leaves = pytree.tree_leaves(program.example_inputs)
    if all(has_elements(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)):
        # nodes that were captured only for translation do not run
        with contextlib.suppress(Exception):
            run_graph(program, leaves, may_write_weights(program), Comparison)
    return differing


def _note(differing: dict[Any, torch.fx.Node], node: torch.fx.Node, size: Any) -> None:
    for symbol in symbolic_expression(size).free_symbols if _is_symbolic(size) else ():
        differing.setdefault(symbol, node)


def _number(size: Any) -> int | None:
    """The number that a recorded size has in the example; None if the data decides it."""
    if not _is_symbolic(size):
        return None
    expression = symbolic_expression(size)
    symbols = decision_symbols(size.node.shape_env, expression)
    values = {symbol: symbols[str(symbol)][1] for symbol in expression.free_symbols}
    return None if None in values.values() else int(expression.xreplace(values))


def _is_symbolic(size: Any) -> bool:
    return isinstance(size, torch.SymInt)
