"""Rows: one line names an operator and its arguments, and everything else is checked.

A row is exported with static sizes, at an early opset and the highest that ONNX Runtime reads. Rows
differ in the early one, so that together they cover all opsets up to 17. A row with named sizes is
also exported with them dynamic. Each model must pass ``onnx.checker`` with shape inference, load in
ONNX Runtime, and match eager PyTorch in value, type and shape. The declared shapes must match too.
A static model is run at the example's sizes, a dynamic model at several sizes.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
from torch.utils import _pytree as pytree

import onnx_aot
from onnx_aot.capture.patches import capture_conditions
from onnx_aot.graph.opset_range import BUILT_OPSET, MIN_OPSET
from onnx_aot.inspection.differences import compare_outputs
from onnx_aot.inspection.verification import format_differences
from onnx_aot.torch_compat import Missing
from tests.releases import HIGHEST_OPSET

__all__ = [
    "EVERY_SIZE",
    "SIZES",
    "Call",
    "Row",
    "T",
    "bools",
    "check",
    "check_dynamic",
    "floats",
    "given",
    "ints",
    "parametrize",
    "positive",
]

SIZES = (
    {"n": 4, "m": 6, "k": 5, "h": 9, "w": 8, "l": 3},
    {"n": 1, "m": 3, "k": 7, "h": 12, "w": 11, "l": 1},
    {"n": 7, "m": 9, "k": 2, "h": 8, "w": 15, "l": 4},
)
"""Values of the named sizes; the first set is the example."""

BFLOAT16_SINCE = 13
"""The first opset whose Cast takes bfloat16."""

EVERY_SIZE = (
    SIZES[0],
    {"n": 1, "m": 1, "k": 1, "h": 1, "w": 1, "l": 1},
    {"n": 3, "m": 7, "k": 2, "h": 7, "w": 5, "l": 5},
    {"n": 9, "m": 5, "k": 8, "h": 12, "w": 13, "l": 4},
    {"n": 1, "m": 8, "k": 1, "h": 16, "w": 3, "l": 1},
    {"n": 0, "m": 0, "k": 0, "h": 0, "w": 0, "l": 0},
    {"n": 0, "m": 6, "k": 5, "h": 9, "w": 8, "l": 3},
    {"n": 4, "m": 0, "k": 5, "h": 9, "w": 8, "l": 0},
)
"""Values at which tests of models/every_size.py run a function, including 1 and 0."""


@dataclasses.dataclass(frozen=True)
class T:
    """A tensor among a row's arguments.

    Attributes:
        sizes: Numbers, or names from ``SIZES`` for dynamic dimensions.
        dtype: Element type.
        make: Function that makes the values from concrete sizes.
    """

    sizes: tuple[int | str, ...]
    dtype: torch.dtype
    make: Callable[..., torch.Tensor] = dataclasses.field(repr=False)

    def example(self, sizes: Mapping[str, int]) -> torch.Tensor:
        concrete = [sizes[s] if isinstance(s, str) else s for s in self.sizes]
        return self.make(*concrete).to(self.dtype)

    def dynamic_axes(self) -> dict[int, str]:
        """Names of the named sizes, by axis."""
        return {axis: size for axis, size in enumerate(self.sizes) if isinstance(size, str)}


def floats(
    *sizes: int | str, low: float = -3.0, high: float = 3.0, dtype: torch.dtype = torch.float32
) -> T:
    """Uniformly distributed numbers."""
    return T(sizes, dtype, lambda *s: torch.rand(s) * (high - low) + low)


def positive(*sizes: int | str, dtype: torch.dtype = torch.float32) -> T:
    """Uniformly distributed numbers between 0.1 and 4."""
    return floats(*sizes, low=0.1, high=4.0, dtype=dtype)


def ints(*sizes: int | str, low: int = -5, high: int = 6, dtype: torch.dtype = torch.int64) -> T:
    """Integers from low to high - 1."""
    return T(sizes, dtype, lambda *s: torch.randint(low, high, s))


def bools(*sizes: int | str) -> T:
    """Random booleans."""
    return T(sizes, torch.bool, lambda *s: torch.rand(s) > 0.4)


def given(*values: float, dtype: torch.dtype = torch.float32) -> T:
    """A tensor with these numbers."""
    return T((len(values),), dtype, lambda *_: torch.tensor(values, dtype=dtype))


@dataclasses.dataclass(frozen=True)
class Row:
    """One call of one operator.

    Attributes:
        target: Operator that must be in the captured graph; called if ``call`` is not given.
        args: Arguments; a ``T`` anywhere in them is a tensor input.
        kwargs: Keyword arguments, also with tensor inputs.
        call: Function to export instead, called with ``args`` and ``kwargs``.
        since: Lowest opset at which the row is run, unless it is 17.
        sizes: More values of the named sizes, such as ``({"n": 0},)``.
        name: Distinguishes rows with the same target in the test's name.
        captured: Operator in the captured graph instead, if ``target`` occurs only among the
            operators that torch decomposes this one into.
        refused: Whether torch.export captures the operator only with the patches of this package.
    """

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    call: Callable[..., Any] | None = None
    since: int = BUILT_OPSET
    sizes: tuple[dict[str, int], ...] = ()
    name: str = ""
    captured: Any = None
    refused: bool = False

    def __str__(self) -> str:
        target = self.target if hasattr(self.target, "_schema") else self.target.__name__
        return f"{target}{'-' if self.name else ''}{self.name}"

    def inputs(self) -> list[T]:
        return [
            leaf for leaf in pytree.tree_leaves((self.args, self.kwargs)) if isinstance(leaf, T)
        ]

    def dynamic_shapes(self) -> tuple[dict[int, str], ...]:
        return tuple(tensor.dynamic_axes() for tensor in self.inputs())

    def examples(self, sizes: Mapping[str, int]) -> tuple[torch.Tensor, ...]:
        return tuple(tensor.example(sizes) for tensor in self.inputs())


class Call(torch.nn.Module):
    """Calls a row's operator with tensors in place of its ``T``s."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        self._row = row

    def forward(self, *tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        args, kwargs = pytree.tree_map(
            lambda leaf: next(given) if isinstance(leaf, T) else leaf,
            (self._row.args, self._row.kwargs),
        )
        return (self._row.call or self._row.target)(*args, **kwargs)


def check(row: Row) -> None:
    """Runs a row; see the docstring of the module."""
    torch.default_generator.manual_seed(0)
    module = Call(row)
    examples = row.examples(SIZES[0])
    captured = _capture(row, module, examples)
    targets = {node.target for node in captured.graph.nodes}
    dynamic = any(row.dynamic_shapes())
    wanted = row.captured or row.target
    assert wanted in targets or dynamic, f"{wanted} is not in the graph, which has {targets}"
    if row.since > HIGHEST_OPSET:
        pytest.skip(f"ONNX Runtime reads opsets up to {HIGHEST_OPSET}")
    for opset in sorted({_early_opset(row, captured), HIGHEST_OPSET}):
        program = onnx_aot.export(captured, opset_version=opset)
        assert program.model.opset_imports[""] == opset
        _compare(program, module, examples)
    if dynamic:
        check_dynamic(row, module, examples)


def _early_opset(row: Row, captured: torch.export.ExportedProgram) -> int:
    if row.since != BUILT_OPSET:
        return row.since
    values = (node.meta.get("val") for node in captured.graph.nodes)
    types = {getattr(value, "dtype", None) for value in pytree.tree_leaves(list(values))}
    lowest = BFLOAT16_SINCE if torch.bfloat16 in types else MIN_OPSET
    return lowest + zlib.crc32(str(row).encode()) % (BUILT_OPSET + 1 - lowest)


def _capture(
    row: Row, module: Call, examples: tuple[torch.Tensor, ...]
) -> torch.export.ExportedProgram:
    if not row.refused:
        return torch.export.export(module, examples)
    with capture_conditions():
        return torch.export.export(module, examples)


def check_dynamic(row: Row, module: Call, examples: tuple[torch.Tensor, ...]) -> None:
    """Runs a row with its named sizes dynamic."""
    program = onnx_aot.export(
        module,
        examples,
        dynamic_shapes=(row.dynamic_shapes(),),
        opset_version=max(row.since, 20),
    )
    targets = {node.target for node in program.exported_program.graph.nodes}
    wanted = row.captured or row.target
    assert wanted in targets, f"{wanted} is not in the graph, which has {targets}"
    for sizes in (*SIZES, *({**SIZES[0], **more} for more in row.sizes)):
        torch.default_generator.manual_seed(1)
        _compare(program, module, row.examples(sizes))


def _compare(program: Any, module: Call, inputs: tuple[torch.Tensor, ...]) -> None:
    onnx.checker.check_model(program.model_proto, full_check=True)
    with torch.no_grad():
        returned = module(*(tensor.clone() for tensor in inputs))
    expected = [
        leaf if isinstance(leaf, torch.Tensor) else torch.tensor(leaf)
        for leaf in pytree.tree_leaves(returned)
    ]
    actual = program(*inputs)
    names = [str(value.name) for value in program.model.graph.outputs]
    differences = compare_outputs(names, expected, actual)
    for value, output in zip(program.model.graph.outputs, actual, strict=True):
        _check_declared(value, output)
    shapes = [list(tensor.shape) for tensor in inputs]
    assert all(d.within for d in differences), (
        f"inputs {shapes}, opset {program.model.opset_imports['']}:\n"
        f"{format_differences(differences)}\n{program.model}"
    )


def _check_declared(value: ir.Value, output: torch.Tensor) -> None:
    """Checks that the declared sizes of an output match the actual ones."""
    assert value.shape is not None
    sizes = list(torch.view_as_real(output).shape if output.is_complex() else output.shape)
    declared = [n if isinstance(n, int) else sizes[i] for i, n in enumerate(value.shape)]
    assert declared == sizes, f"{value.name} has {sizes}, the model says {value.shape}"


def parametrize(rows: Iterable[Row]) -> Any:
    """``@parametrize(ROWS)`` makes one test per row whose operator this release of torch has."""
    present = [row for row in rows if not isinstance(row.target, Missing)]
    return pytest.mark.parametrize("row", present, ids=str)
